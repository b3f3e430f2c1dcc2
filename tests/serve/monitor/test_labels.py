from __future__ import annotations

import pytest

from calibrant.serve.monitor.labels import MAX_LABELS, Labels, Reply, read_labels
from calibrant.serve.protocol.errors import Refusal, TooLarge


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"labels": []}', b'{"labels": [3]}', b'{"labels": [{"id": "", "label": 1}]}',
     b'{"labels": [{"id": "a"}]}', b'{"labels": [{"id": "a", "label": 2}]}',
     b'{"labels": [{"id": "a", "label": 0}], "chosen": 1}', b'{"labels": [{"id": "a", "label": 0, "chosen": true}]}',
     b'{"labels": [{"id": "a", "label": true}]}', b'{"labels": [{"id": "a", "label": 0, "row": -1}]}'],
)  # fmt: skip
def test_labels_that_mean_nothing_are_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read_labels(memoryview(body), ("auk", "crane"))
    assert caught.value.status == 400


def test_labels_come_by_name_or_number_and_for_a_row() -> None:
    body = b'{"labels": [{"id": "a", "label": "crane"}, {"id": "b", "row": 4, "label": 0}]}'
    assert read_labels(memoryview(body), ("auk", "crane")) == Labels(["a", "b/4"], [1, 0])


def test_a_message_says_of_all_its_labels_that_they_are_no_random_sample() -> None:
    body = b'{"labels": [{"id": "a", "label": 1}], "chosen": true}'
    assert read_labels(memoryview(body), ("auk", "crane")) == Labels(["a"], [1], chosen=True)
    assert read_labels(memoryview(b'{"id": "a", "label": 1, "chosen": true}'), ("auk", "crane")).chosen


def test_more_labels_than_a_request_may_hold_are_refused() -> None:
    entries = ", ".join(['{"id": "a", "label": 0}'] * (MAX_LABELS + 1))
    with pytest.raises(TooLarge, match="10001 labels"):
        read_labels(memoryview(f'{{"labels": [{entries}]}}'.encode()), ("auk", "crane"))


def test_the_best_of_what_was_said_about_an_id_is_told() -> None:
    """Several files were asked; it is unknown only if none has it."""
    reply = Reply()
    for state in ("unknown", "accepted", "repeated"):
        reply.note("a", state)
    reply.note("b", "unknown")
    assert reply.states == {"a": "accepted", "b": "unknown"}
    assert (reply.unknown, reply.count("accepted")) == (["b"], 1)
