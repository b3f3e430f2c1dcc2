"""One table says what each named error is on each transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from calibrant.errors import ConfigError
from calibrant.serve.protocol.errors import (
    CODES,
    BadInput,
    DeadlinePassed,
    InternalError,
    ModelNotFound,
    NotFound,
    NotReady,
    QueueFull,
    Refusal,
    TooLarge,
    Unauthorized,
)


def _below(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


def test_every_named_error_is_in_the_table_and_a_callers_mistake_is_never_a_5xx() -> None:
    assert set(_below(Refusal)) == set(CODES)
    fault = {name for name, codes in CODES.items() if codes.http >= 500}
    assert {kind.__name__ for kind in fault} == {
        "InternalError", "NotReady", "PutAway", "Overloaded", "QueueFull", "DeadlinePassed"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        (BadInput, 400, "INVALID_ARGUMENT"), (Unauthorized, 401, "UNAUTHENTICATED"), (NotFound, 404, "NOT_FOUND"),
        (ModelNotFound, 404, "NOT_FOUND"), (TooLarge, 413, "INVALID_ARGUMENT"), (InternalError, 500, "INTERNAL"),
        (NotReady, 503, "UNAVAILABLE"), (QueueFull, 503, "RESOURCE_EXHAUSTED"),
        (DeadlinePassed, 504, "DEADLINE_EXCEEDED"),
    ],
)  # fmt: skip
def test_an_error_has_the_code_that_the_protocol_asks_for(kind: type[Refusal], status: int, name: str) -> None:
    grpc = pytest.importorskip("grpc")
    assert (kind("why").status, kind("why").grpc_code) == (status, grpc.StatusCode[name].value[0])


def test_what_is_no_refusal_becomes_one_that_says_nothing_of_ours() -> None:
    assert type(Refusal.of(ConfigError("is wrong", where="top_k"))) is BadInput
    hidden = Refusal.of(ZeroDivisionError("secret"))
    assert type(hidden) is InternalError
    assert "secret" not in hidden.message
    full = QueueFull("busy", retry_after=2)
    assert Refusal.of(full) is full


def test_the_answer_of_another_worker_keeps_its_status() -> None:
    for codes in CODES.values():
        assert Refusal.with_status(codes.http, "why").status == codes.http
    assert Refusal.with_status(418, "why").status == 500
