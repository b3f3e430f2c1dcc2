from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrant.serve.grpc import wire
from calibrant.serve.grpc.known_requests import MOST, KnownRequests
from calibrant.serve.grpc.messages import request_of, split
from calibrant.serve.protocol.errors import BadInput
from calibrant.serve.protocol.request import Target
from calibrant.serve.protocol.tensors import TensorSpec


@pytest.fixture
def target() -> Target:
    inputs = {"x": TensorSpec("x", "FP32", (-1, 2))}
    return Target("m", inputs, {"p": TensorSpec("p", "FP32", (-1, 4))}, {}, True, 99, True)


def _request(values: Any, *, id_: str = "", version: str = "", more: bytes = b"", last: bytes = b"") -> memoryview:
    array = np.array(values, "<f4")
    tensor = wire.field(1, "x") + wire.field(2, "FP32") + wire.packed(3, array.shape)
    head = wire.field(1, "m") + wire.field(2, version) + wire.field(3, id_) + more + wire.message(5, tensor)
    return memoryview(head + wire.message(7, array.tobytes()) + last)


def _learn(known: KnownRequests, data: memoryview, target: Target) -> None:
    parts = split(data)
    known.learn(data, parts, request_of(parts, target), target)


def test_a_request_that_was_seen_is_read_with_its_own_id_and_tensor(target: Target) -> None:
    known = KnownRequests()
    _learn(known, _request([[1, 2]], id_="first"), target)
    for id_, values in (("first", [[3, 4]]), ("another one", [[5, 6]]), ("x" * 100, [[7, 8]])):
        data = _request(values, id_=id_)
        found = known.find(data)
        assert found is not None
        one, got = found
        request = one.follow(data, target.plans[one.key], got)
        assert (one.name, one.version, request.id, request.rows) == ("m", None, id_, 1)
        np.testing.assert_array_equal(request.feeds["x"], values)
    without = known.find(_request([[9, 9]]))
    assert without is not None
    assert without[1] is None


def test_whatever_else_differs_is_read_anew(target: Target) -> None:
    known = KnownRequests()
    knob = wire.message(4, wire.field(1, "temperature") + wire.message(2, b"\x21" + np.float64(2).tobytes()))
    _learn(known, _request([[1, 2]], id_="a", version="7"), target)
    for data in (
        _request([[1, 2]], id_="a", version="8"), _request([[1, 2], [3, 4]], id_="a", version="7"),
        _request([[1, 2]], id_="a", version="7", more=knob), _request([[1, 2]], id_="a"),
        _request([[1, 2]], id_="i" * 200, version="7"), memoryview(b""), memoryview(b"\x0a"), memoryview(b"\x0a\x05m"),
        memoryview(b"\x0a\x01m\x1a\x09"), memoryview(bytes(_request([[1, 2]], id_="a", version="7"))[::-1]),
    ):  # fmt: skip
        assert known.find(data) is None


def test_what_follows_the_tensor_or_has_two_is_not_learned(target: Target) -> None:
    known = KnownRequests()
    for data in (_request([[1, 2]], last=wire.field(3, "late")), _request([[1, 2]], id_="i" * 200)):
        _learn(known, data, target)
        assert known.find(data) is None
    for number in range(MOST + 50):  # and what is learned has an end
        _learn(
            known, _request([[1, 2]], more=wire.message(4, wire.field(1, "n" * number) + wire.message(2, b""))), target
        )
    assert len(target.plans) <= MOST


def test_values_are_checked_all_the_same(target: Target) -> None:
    known = KnownRequests()
    _learn(known, _request([[1, 2]]), target)
    data = _request([[1, np.nan]])
    found = known.find(data)
    assert found is not None
    with pytest.raises(BadInput, match="must be finite"):
        found[0].follow(data, target.plans[found[0].key], None)


def test_over_the_wire_the_thousandth_is_as_the_first(talk: Any, tiny: ModuleType) -> None:
    one = talk()
    pixels = tiny.pictures(40)
    for number in range(40):
        tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, (1, 16, 16, 3))
        data = wire.field(1, "birds") + wire.field(3, f"q{number}") + wire.message(5, tensor)
        answer = one.ask(2 * number + 1, "ModelInfer", data + wire.message(7, pixels[number].tobytes()))
        fields = [(n, bytes(v)) for n, kind, v in wire.fields(memoryview(answer.messages[0])) if kind == wire.BYTES]
        assert (3, f"q{number}".encode()) in fields
        assert (2, b"1") in fields
        raw = next(v for n, v in fields if n == 6)
        np.testing.assert_allclose(np.frombuffer(raw, "<f4"), tiny.expected(pixels[number : number + 1])[0], atol=1e-6)
