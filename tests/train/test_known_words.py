"""What a shell completes in the commands: the names of their tables."""

from __future__ import annotations

import pytest

from calibrant.commands.root import cli


@pytest.mark.parametrize(
    ("words", "start", "expected"),
    [
        (["calibrate", "fit", "--method"], "iso", {"isotonic"}),
        (["calibrate", "fit", "--set-kind"], "", {"lac", "aps", "raps"}),
        (["serve", "--provider"], "c", {"cpu", "cuda", "coreml"}),
        (["train", "--loss"], "fedlas", {"fedlas-ls", "fedlas-mbls"}),
        (["train", "--recipe"], "aircraft", {"aircraft"}),
        (["train", "--token-reduction"], "to", {"topk", "tome"}),
        (["head", "--kind"], "l", {"linear", "logistic", "lda"}),
        (["export", "run", "--knobs"], "", {"baked", "runtime", "required"}),
        (["quantize", "--ranges"], "", {"minmax", "percentile", "entropy"}),
    ],
)
def test_completion_knows_the_words_of_tables(words: list[str], start: str, expected: set[str]) -> None:
    from click.shell_completion import BashComplete

    if words[0] in ("train", "head", "export", "quantize"):
        pytest.importorskip("torch")
    complete = BashComplete(cli, {}, "calibrant", "_CALIBRANT_COMPLETE")
    found = {c.value for c in complete.get_completions(words, start)}
    assert expected <= found if words[-1] == "--recipe" else found == expected
