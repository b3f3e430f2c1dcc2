"""Triton's own HTTP client against the server, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.http")


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with triton.InferenceServerClient(url.removeprefix("http://")) as c:
        yield c


def _input(pixels: Any, *, binary: bool = True) -> Any:
    tensor = triton.InferInput("images", list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels, binary_data=binary)
    return tensor


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_every_way_of_asking_gives_the_same_answer(
    client: Any, tiny: ModuleType, binary_in: bool, binary_out: bool, compression: str | None
) -> None:
    pixels = tiny.pictures(3)
    names = ("logits", "probabilities")  # not the model's own order
    reply = client.infer(
        "birds", [_input(pixels, binary=binary_in)], model_version="1", request_id="r 1",
        outputs=[triton.InferRequestedOutput(name, binary_data=binary_out) for name in names],
        request_compression_algorithm=compression, response_compression_algorithm=compression,
    )  # fmt: skip
    np.testing.assert_allclose(reply.as_numpy("probabilities"), tiny.expected(pixels), atol=1e-6)
    logits = reply.as_numpy("logits").astype(np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, tiny.expected(pixels), atol=1e-6)
    assert reply.get_response()["id"] == "r 1"


def test_no_outputs_named_gives_all_of_them_in_binary(client: Any, tiny: ModuleType) -> None:
    reply = client.infer("birds", [_input(tiny.pictures(1))])
    assert [o["name"] for o in reply.get_response()["outputs"]] == ["probabilities", "logits"]
    assert reply.as_numpy("logits").shape == (1, 4)


def test_classification(client: Any, tiny: ModuleType) -> None:
    pixels = tiny.pictures(2)
    reply = client.infer(
        "birds", [_input(pixels)], outputs=[triton.InferRequestedOutput("probabilities", class_count=2)]
    )
    value, index, label = reply.as_numpy("probabilities")[1, 0].decode().split(":")
    p = tiny.expected(pixels)[1]
    assert (int(index), label) == (p.argmax(), tiny.CLASSES[p.argmax()])
    assert float(value) == pytest.approx(p.max(), abs=1e-5)


def test_the_calls_about_server_and_models(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("birds", "1")
    assert not client.is_model_ready("eggs")
    assert client.get_server_metadata()["name"] == "calibrant"
    assert client.get_model_metadata("birds")["platform"] == "onnxruntime_onnx"
    assert client.get_model_config("birds")["max_batch_size"] == 1024
    assert client.get_model_repository_index() == [{"name": "birds", "version": "1", "state": "READY", "reason": ""}]
    assert client.get_inference_statistics("birds")["model_stats"][0]["name"] == "birds"


def test_an_error_is_the_clients_own_exception(client: Any, tiny: ModuleType) -> None:
    with pytest.raises(triton.InferenceServerException) as caught:
        client.infer("birdz", [_input(tiny.pictures(1))])
    assert caught.value.status() == "404"
    assert 'did you mean "birds"' in caught.value.message()
    with pytest.raises(triton.InferenceServerException, match="403|off"):
        client.unload_model("birds")


def test_a_name_with_odd_letters_is_quoted_both_ways(client: Any, tiny: ModuleType) -> None:
    with pytest.raises(triton.InferenceServerException, match='no model "a b"'):
        client.infer("a b", [_input(tiny.pictures(1))])


def test_many_at_once(url: str, tiny: ModuleType) -> None:
    pixels = [tiny.pictures(1, seed) for seed in range(40)]
    with triton.InferenceServerClient(url.removeprefix("http://"), concurrency=8) as client:
        pending = [client.async_infer("birds", [_input(p)]) for p in pixels]
        for p, reply in zip(pixels, pending, strict=True):
            np.testing.assert_allclose(reply.get_result().as_numpy("probabilities"), tiny.expected(p), atol=1e-6)
