from __future__ import annotations

import pytest

from calibrant.errors import ConfigError
from calibrant.train.jobs.shard import own_part, read_shard


def test_shards_divide_the_list_without_rest_and_without_overlap() -> None:
    jobs = list(range(11))
    parts = [own_part(jobs, read_shard(f"{i}/3")) for i in (1, 2, 3)]
    assert sorted(sum(parts, [])) == jobs
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "a/b", "1/", "-1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not I/N"):
        read_shard(text)
