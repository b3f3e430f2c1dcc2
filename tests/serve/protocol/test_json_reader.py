"""What the reading process makes of a request is what the server would have made of it."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.errors import CalibrantError
from calibrant.serve.protocol import json_reader
from calibrant.serve.protocol.body import parse
from calibrant.serve.protocol.errors import Refusal
from calibrant.serve.protocol.json_reader import (
    ANSWERED,
    ASKED,
    KEPT,
    answer,
    as_binary,
    described,
    received,
    target_of,
)
from calibrant.serve.protocol.request import InferRequest
from calibrant.serve.protocol.tensors import NUMPY
from tests.serve.protocol.test_body import ENTRY, REST, message, target


def read(body: bytes, length: int, to: Any) -> InferRequest:
    head, tensors = as_binary(memoryview(body), length, to)
    return parse(memoryview(b"".join([head, *tensors])), len(head), to)


def same(a: InferRequest, b: InferRequest) -> None:
    assert (a.rows, a.outputs, a.id, a.knobs, a.timeout, a.parameters) == (
        b.rows, b.outputs, b.id, b.knobs, b.timeout, b.parameters,
    )  # fmt: skip
    assert a.feeds.keys() == b.feeds.keys()
    for name, array in a.feeds.items():
        assert (array.dtype, array.shape) == (b.feeds[name].dtype, b.feeds[name].shape)
        np.testing.assert_array_equal(array, b.feeds[name])


@pytest.mark.parametrize("datatype", sorted(NUMPY))
def test_tensors_of_every_type_survive(datatype: str) -> None:
    values: list[Any] = [0, 1] if datatype != "BOOL" else [False, True]
    if datatype == "BYTES":
        values = ["", "Gruß"]
    body = {
        **message(datatype=datatype, shape=[2, 1], data=[[v] for v in values]),
        "id": "a",
        "parameters": {"top_k": 2},
    }
    body["outputs"] = [{"name": "q"}]
    text, to = json.dumps(body).encode(), target(datatype, (-1, 1))
    same(read(text, len(text), to), parse(memoryview(text), None, to))


def test_json_may_stand_beside_binary_tensors() -> None:
    body = message()
    body["inputs"].append({"name": "t", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}})
    text, tail = json.dumps(body).encode(), np.float32(2.5).tobytes()
    same(read(text + tail, len(text), target()), parse(memoryview(text + tail), len(text), target()))


@settings(max_examples=200, deadline=None)
@given(entry=ENTRY, rest=REST, tail=st.binary(max_size=60))
def test_the_answer_or_the_refusal_is_the_same(entry: Any, rest: Any, tail: bytes) -> None:
    body = message()
    body["inputs"][0].update(entry)
    text = json.dumps({**body, **rest}).encode()
    found: list[Any] = []
    for how in (
        lambda: read(text + tail, len(text), target()),
        lambda: parse(memoryview(text + tail), len(text), target()),
    ):
        try:
            found.append(how())
        except (Refusal, CalibrantError) as error:
            found.append((type(error), str(error)))
    if isinstance(found[1], InferRequest):
        same(*found)
    else:
        assert found[0] == found[1]


def test_what_is_known_of_a_model_survives_the_way() -> None:
    assert target_of(described(target())) == target()


@pytest.mark.parametrize(
    ("error", "status", "memory"), [(MemoryError(), 413, KEPT), (ZeroDivisionError(), 500, KEPT + 1)]
)
def test_what_goes_wrong_is_an_answer_too(
    error: Exception, status: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(json_reader, "as_binary", fails)
    monkeypatch.setattr(json_reader, "resident_bytes", lambda: memory)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        about = described(target())
        ours.sendall(ASKED.pack(len(about), 2, 2) + about + b"{}")
        thread = threading.Thread(target=answer, args=(theirs,))
        thread.start()
        got, size, tensors, last = ANSWERED.unpack(received(ours, ANSWERED.size))
        assert (got, tensors, last) == (status, 0, memory > KEPT)
        assert received(ours, size).nbytes == size > 10
        thread.join()
