from __future__ import annotations

import contextlib
import gc
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.errors import CalibrantError
from calibrant.serve.protocol import body as body_
from calibrant.serve.protocol.answer import encode
from calibrant.serve.protocol.errors import Refusal, TooLarge
from calibrant.serve.protocol.request import InferRequest, Target
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec, bytes_elements, to_bytes


def target(datatype: str = "FP32", shape: tuple[int, ...] = (-1, 2, 3), *, batched: bool = True) -> Target:
    inputs = {"x": TensorSpec("x", datatype, shape), "t": TensorSpec("t", "FP32", (-1, 1), optional=True)}
    outputs = {"p": TensorSpec("p", "FP32", (-1, 4)), "q": TensorSpec("q", "FP32", (-1, 4))}
    return Target("m", inputs, outputs, {}, batched, 100, True)


def message(**changes: Any) -> dict[str, Any]:
    entry = {"name": "x", "shape": [2, 2, 3], "datatype": "FP32", "data": list(range(12)), **changes}
    return {"inputs": [{k: v for k, v in entry.items() if v is not ...}]}


def parse(body: dict[str, Any], tail: bytes = b"", *, to: Target | None = None) -> InferRequest:
    head = json.dumps(body).encode()
    return body_.parse(memoryview(head + tail), len(head) if tail else None, to or target())


def refused(body: Any, tail: bytes = b"", *, to: Target | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        parse(body, tail, to=to)
    assert caught.value.status == 400
    return caught.value.message


def test_data_may_be_flat_or_nested() -> None:
    wanted = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.testing.assert_array_equal(parse(message()).feeds["x"], wanted)
    np.testing.assert_array_equal(parse(message(data=wanted.tolist())).feeds["x"], wanted)


def test_binary_is_little_endian_row_major_and_may_stand_beside_json() -> None:
    values = np.array([[1.5, -2.25, 3.0]] * 4, "<f4").reshape(2, 2, 3)
    body = message(data=..., parameters={"binary_data_size": 48})
    body["inputs"].append({"name": "t", "shape": [1, 1], "datatype": "FP32", "data": [2.0]})
    request = parse(body, values.tobytes())
    np.testing.assert_array_equal(request.feeds["x"], values)
    assert request.feeds["t"].tolist() == [[2.0]]
    assert request.rows == 2


def test_foreign_keys_and_parameters_are_ignored() -> None:
    body = {**message(), "model_name": "other", "surprise": [1], "parameters": {"triton_x": 1, "priority": 3}}
    assert parse(body).rows == 2


def test_a_raw_body_is_the_one_input() -> None:
    data = np.arange(18, dtype="<f4")
    found = body_.parse(memoryview(data.tobytes()), 0, target())
    np.testing.assert_array_equal(found.feeds["x"], data.reshape(3, 2, 3))
    with pytest.raises(Refusal, match="do not fill"):
        body_.parse(memoryview(data.tobytes()[:-1]), 0, target())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "y"}, 'no input "y"'),
        ({"name": ...}, "no `name`"),
        ({"datatype": "FP64"}, "must be FP32, got FP64"),
        ({"datatype": ...}, "no `datatype`"),
        ({"shape": [2, 2, 4]}, r"must have the shape [-1, 2, 3]"),
        ({"shape": [2, 2]}, "must have the shape"),
        ({"shape": [-1, 2, 3]}, "at least 0"),
        ({"shape": [2.0, 2, 3]}, "whole numbers"),
        ({"shape": [True, 2, 3]}, "whole numbers"),
        ({"shape": [2**62, 2, 3]}, "more than the 100"),
        ({"shape": [101, 2, 3]}, "more than the 100"),
        ({"shape": [0, 2, 3], "data": []}, "no elements"),
        ({"shape": "2"}, "needs a `shape`"),
        ({"shape": [1] * 40}, "needs a `shape`"),
        ({"data": ...}, "no `data` list"),
        ({"data": list(range(11))}, "flat list of 12"),
        ({"data": [[1, 2], [3]]}, "ragged"),
        ({"data": [None] * 12}, "numbers only"),
        ({"data": ["1"] * 12}, "numbers only"),
        ({"data": [True] * 12}, "numbers only"),
        ({"data": [1e39] * 12}, "must be finite; element 0 is inf"),
        ({"parameters": {"binary_data_size": 48}}, "both `data`"),
        ({"data": ..., "parameters": {"binary_data_size": 48}}, "48 binary bytes but 0 are left"),
        ({"data": ..., "parameters": {"binary_data_size": -1}}, "whole number of bytes"),
        ({"data": ..., "parameters": {"binary_data_size": "48"}}, "whole number of bytes"),
        ({"data": ..., "parameters": {"binary_data_size": True}}, "whole number of bytes"),
        ({"parameters": 3}, "must be an object"),
    ],
)
def test_each_mistake_in_an_input_is_said(changes: dict[str, Any], says: str) -> None:
    assert says in refused(message(**changes))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "`inputs` must be a list"),
        ({"inputs": []}, "`inputs` must be a list"),
        ({"inputs": {}}, "`inputs` must be a list"),
        ({"inputs": [3]}, "must be an object"),
        ({"inputs": message()["inputs"] * 2}, "given twice"),
        ({"inputs": [{"name": "t", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}, '"x" is missing'),
        ({**message(), "outputs": [{"name": "r"}]}, 'no output "r"'),
        ({**message(), "outputs": [{"name": "p"}, {"name": "p"}]}, "asked for twice"),
        ({**message(), "outputs": "p"}, "must be a list"),
        ({**message(), "outputs": [{"name": "p", "parameters": {"binary_data": 1}}]}, "true or false"),
        ({**message(), "outputs": [{"name": "p", "parameters": {"classification": -1}}]}, "whole number of classes"),
        ({**message(), "id": 7}, "`id` must be a string"),
        ({**message(), "parameters": []}, "parameters must be an object"),
        ({**message(), "parameters": {"timeout": -4}}, "microseconds"),
        ({"inputs": [*message()["inputs"], {"name": "t", "shape": [3, 1], "datatype": "FP32", "data": [1, 1, 1]}]},
         "give 1, or 2"),
    ],
)  # fmt: skip
def test_each_mistake_in_the_request_is_said(body: dict[str, Any], says: str) -> None:
    assert says in refused(body)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"inputs": NaN}', b"[" * 5000])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        body_.parse(memoryview(text), None, target())


def test_sizes_must_add_up_to_the_body() -> None:
    body = message(data=..., parameters={"binary_data_size": 48})
    assert "1 bytes follow" in refused(body, bytes(49))
    assert "needs 48 bytes, got 44" in refused(message(data=..., parameters={"binary_data_size": 44}), bytes(44))
    with pytest.raises(Refusal, match="is 99 but the body has 2"):
        body_.parse(memoryview(b"{}"), 99, target())


def test_binary_values_that_are_not_finite_are_refused() -> None:
    values = np.zeros(12, "<f4")
    values[5] = np.nan
    assert "element 5 is nan" in refused(message(data=..., parameters={"binary_data_size": 48}), values.tobytes())
    large = np.full(12, 3e38, "<f4")  # finite, but their sum is not
    assert parse(message(data=..., parameters={"binary_data_size": 48}), large.tobytes()).rows == 2


@pytest.mark.parametrize(("datatype", "good", "bad"), [("UINT8", 255, 256), ("INT8", -128, -129), ("BOOL", True, 1)])
def test_json_integers_must_fit_the_type(datatype: str, good: Any, bad: Any) -> None:
    to = target(datatype, (-1, 1))
    assert parse(message(datatype=datatype, shape=[1, 1], data=[good]), to=to).feeds["x"].dtype == NUMPY[datatype]
    refused(message(datatype=datatype, shape=[1, 1], data=[bad]), to=to)
    refused(message(datatype=datatype, shape=[1, 1], data=[0.5]), to=to)


def test_every_value_of_a_64_bit_type_comes_through_json() -> None:
    for datatype, values in (
        ("UINT64", [0, 2**64 - 1, 2**63, 1]),
        ("INT64", [-(2**63), 2**63 - 1, 0, 1]),
        ("UINT64", [[2**64 - 1, 0], [1, 2**53 + 1]]),
    ):
        to = target(datatype, (-1, 2))
        request = parse({"inputs": [{"name": "x", "shape": [2, 2], "datatype": datatype, "data": values}]}, to=to)
        assert request.feeds["x"].ravel().tolist() == np.array(values, object).ravel().tolist()
        for odd in (1.5, "1", None, 2**64, -(2**63) - 1):
            data = [*np.array(values, object).ravel().tolist()[:3], odd]
            entry = {"name": "x", "shape": [2, 2], "datatype": datatype, "data": data}
            assert 'input "x"' in refused({"inputs": [entry]}, to=to)


def test_tensors_in_shared_memory_are_refused_by_name() -> None:
    """Ignored, the client would read whatever lies in its region as the answer."""
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 48}
    assert "shared memory" in refused(message(data=..., parameters=region))
    assert "shared memory" in refused({**message(), "outputs": [{"name": "p", "parameters": region}]})


def test_strings_come_as_json_or_with_length_prefixes() -> None:
    to = target("BYTES", (-1, 1))
    assert parse(message(datatype="BYTES", shape=[2, 1], data=["a", "é"]), to=to).feeds["x"].tolist() == [["a"], ["é"]]
    tail = bytes(to_bytes(np.array(["a", "é"], object)))
    body = message(datatype="BYTES", shape=[2, 1], data=..., parameters={"binary_data_size": len(tail)})
    assert parse(body, tail, to=to).feeds["x"].tolist() == [["a"], ["é"]]
    broken = tail[:4] + b"\xff" + tail[5:]
    assert "UTF-8" in refused(body, broken, to=to)
    with pytest.raises(ValueError, match="claims 9 bytes"):
        bytes_elements(memoryview(b"\x09\x00\x00\x00ab"), 1)


def _answer(request: InferRequest, **arrays: Any) -> tuple[dict[str, Any], bytes]:
    encoded = encode("m", "1", request, arrays, ("a", "b", "c", "d"))
    body = b"".join(encoded.parts)
    at = encoded.header_length or len(body)
    return json.loads(body[:at]), body[at:]


def test_binary_outputs_follow_in_the_order_of_the_outputs_list() -> None:
    body = {**message(), "id": "7", "outputs": [{"name": "q", "parameters": {"binary_data": True}}, {"name": "p"}]}
    q, p = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    reply, tail = _answer(parse(body), p=p, q=q)
    assert [o["name"] for o in reply["outputs"]] == ["q", "p"]
    assert reply["outputs"][0]["parameters"]["binary_data_size"] == len(tail) == 32
    assert "data" not in reply["outputs"][0]
    assert reply["outputs"][1]["data"] == [0.0] * 8
    assert (reply["id"], reply["model_name"], reply["model_version"]) == ("7", "m", "1")
    assert tail == q.tobytes()


def test_the_outputs_own_choice_of_binary_wins_over_the_requests() -> None:
    parameters = {"binary_data_output": True}
    body = {**message(), "parameters": parameters, "outputs": [{"name": "p", "parameters": {"binary_data": False}}]}
    assert not parse(body).outputs[0].binary
    assert all(w.binary for w in parse({**message(), "parameters": parameters}).outputs)


def test_a_head_that_was_seen_before_is_checked_against_its_new_tensors() -> None:
    to = target()
    body = message(data=..., parameters={"binary_data_size": 48})
    body["outputs"] = [{"name": "q", "parameters": {"binary_data": True}}]
    first, second = np.zeros((2, 2, 3), "<f4"), np.arange(12, dtype="<f4").reshape(2, 2, 3)
    parse(body, first.tobytes(), to=to)
    request = parse(body, second.tobytes(), to=to)
    assert request.plan is not None
    np.testing.assert_array_equal(request.feeds["x"], second)
    for rows in ([[1.0] * 4] * 2, [[2.0] * 4] * 2):  # the second answer reuses the first one's JSON
        reply, tail = _answer(request, q=np.array(rows, np.float32))
        assert reply["outputs"][0]["shape"] == [2, 4]
        assert np.frombuffer(tail, "<f4").tolist() == rows[0] * 2
    short = {**body, "inputs": [{**body["inputs"][0], "parameters": {"binary_data_size": 44}}]}
    assert "needs 48 bytes" in refused(short, bytes(44), to=to)
    assert "1 bytes follow" in refused(body, bytes(49), to=to)
    bad = second.copy()
    bad[0, 0, 0] = np.inf
    assert "element 0 is inf" in refused(body, bad.tobytes(), to=to)


def test_requests_that_differ_in_their_id_alone_are_one_plan_and_each_keeps_its_own() -> None:
    to = target()
    body = message(data=..., parameters={"binary_data_size": 48})
    body["outputs"] = [{"name": "q", "parameters": {"binary_data": True}}]
    q = np.zeros((2, 4), np.float32)
    for id_ in ("7", "älter", "", None, "8"):
        request = parse({**({} if id_ is None else {"id": id_}), **body}, bytes(48), to=to)
        assert request.id == id_
        for _ in range(2):
            assert _answer(request, q=q)[0].get("id") == id_
    assert len(to.plans) == 1
    assert request.plan is not None


@pytest.mark.parametrize(
    ("head", "wanted"),
    [('{"id":"a\\u0041",', "aA"), ('{"id":"a","id":"b",', "b"), ('{"id":null,', None), ('{ "id":"a",', "a"),
     ('{"id": 7,', "must be a string"), ('{"id":"a\x01",', "not valid JSON"), ('{"id":"a"', "not valid JSON"),
     ('{"id":"a",,', "not valid JSON")],
)  # fmt: skip
def test_an_id_that_is_more_than_its_bytes_is_read_as_json(head: str, wanted: str | None) -> None:
    """A second time, and after the same request without an id, too."""
    to = target()
    rest = json.dumps({"inputs": message(data=..., parameters={"binary_data_size": 48})["inputs"]})
    body_.parse(memoryview(rest.encode() + bytes(48)), len(rest), to)
    text = head.encode() + rest[1:].encode()
    body = memoryview(text + bytes(48))
    for _ in range(2):
        if wanted is None or len(wanted) <= 2:
            assert body_.parse(body, len(text), to).id == wanted
        else:
            with pytest.raises(Refusal, match=wanted):
                body_.parse(body, len(text), to)


def test_classification_is_sorted_and_labelled_and_clipped() -> None:
    body = {**message(), "outputs": [{"name": "p", "parameters": {"classification": 9}}]}
    p = np.array([[0.1, 0.4, 0.2, 0.3], [0.7, 0.1, 0.1, 0.1]], np.float32)
    reply, _ = _answer(parse(body), p=p)
    assert reply["outputs"][0]["shape"] == [2, 4]
    assert reply["outputs"][0]["datatype"] == "BYTES"
    assert reply["outputs"][0]["data"][:5] == [
        "0.400000:1:b", "0.300000:3:d", "0.200000:2:c", "0.100000:0:a", "0.700000:0:a",
    ]  # fmt: skip


def test_nan_is_refused_in_json_and_passes_in_binary() -> None:
    p = np.array([[np.nan, 0, 0, 0]], np.float32)
    with pytest.raises(Refusal, match="NaN or infinity"):
        _answer(parse({**message(), "outputs": [{"name": "p"}]}), p=p)
    binary = {**message(), "outputs": [{"name": "p", "parameters": {"binary_data": True}}]}
    assert math.isnan(np.frombuffer(_answer(parse(binary), p=p)[1], "<f4")[0])
    with pytest.raises(Refusal, match="no order"):
        _answer(parse({**message(), "outputs": [{"name": "p", "parameters": {"classification": 2}}]}), p=p)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id", "x",
                         "binary_data_size", "classification", "temperature"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


ENTRY = st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), JSON, max_size=5)
REST = st.dictionaries(st.sampled_from(["outputs", "parameters", "id"]), JSON, max_size=3)


@settings(max_examples=300, deadline=None)
@given(entry=ENTRY, rest=REST, tail=st.binary(max_size=60))
def test_no_request_whatever_raises_anything_but_a_refusal(entry: Any, rest: Any, tail: bytes) -> None:
    body = message()
    body["inputs"][0].update(entry)
    with contextlib.suppress(Refusal, CalibrantError):
        parse({**body, **rest}, tail)


@pytest.mark.parametrize(
    ("piece", "most", "what"),
    [
        (b"[],", body_.MOST_LISTS - 1, "lists"), (b"{},", body_.MOST_OBJECTS - 1, "objects"),
        (b'"::",', (body_.MOST_KEYS - 1) // 2, "keys"),
    ],
)  # fmt: skip
def test_large_json_has_a_bound_on_what_python_would_make_of_it(piece: bytes, most: int, what: str) -> None:
    """One list, object and key is the frame's own. Signs within a text count too: cheap to look at, and no loss."""

    def text(pieces: int) -> memoryview:
        return memoryview(b'{"x":[' + piece * pieces + b"0" + b" " * body_.LARGE_JSON + b"]}")

    assert set(body_.json_object(text(most))) == {"x"}
    with pytest.raises(TooLarge, match=what):
        body_.json_object(text(most + 1))


def test_reading_json_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    body_.json_object(memoryview(b"{}"))
    with pytest.raises(Refusal):
        body_.json_object(memoryview(b"{"))
    assert gc.isenabled()


def test_a_second_binary_input_has_what_the_first_has_left() -> None:
    body = message(data=..., parameters={"binary_data_size": 48})
    body["inputs"].append({"name": "t", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}})
    assert parse(body, bytes(52)).feeds["t"].tolist() == [[0.0]]
    assert "claims 4 binary bytes but 2 are left" in refused(body, bytes(50))


def test_whole_numbers_that_json_readers_round_are_still_judged_by_their_value() -> None:
    """Beside -1, 2^63 makes numpy take all of them for floating point."""
    said = refused(message(datatype="INT64", shape=[1, 2], data=[2**63, -1]), to=target("INT64", (-1, 2)))
    assert f"must lie in {-(2**63)}..{2**63 - 1}, got {2**63}" in said
