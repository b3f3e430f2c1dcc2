"""The core without a transport: outcomes or named errors, and nothing of HTTP or gRPC."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrant.serve.control import Control
from calibrant.serve.inference import Inference, Ticket
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.protocol.errors import BadInput, Forbidden, ModelNotFound, NotFound, NotReady, QueueFull, Refusal
from calibrant.serve.protocol.pictures import Pictures
from calibrant.serve.protocol.request import InferRequest, Wanted

SERVE = Path(__file__).resolve().parents[2] / "serve"
TRANSPORTS = ("calibrant.serve.http", "calibrant.serve.grpc")


@pytest.fixture
def inference(model_file: Path) -> Iterator[Inference]:
    repository = Repository()
    core = Inference(repository, Limits())
    repository.add(Model.load(model_file, threads=1, deliver=core.deliver))
    yield core
    core.close()
    for model in repository.all():
        model.batcher.close()


def _outcome(core: Inference, ask: Callable[..., None], model: Model, asked: Any, ticket: Ticket, **more: Any) -> Any:
    """What came back: an answer or a refusal."""

    async def main() -> Any:
        core.loop = asyncio.get_running_loop()
        back: asyncio.Future[Any] = core.loop.create_future()
        ask(model, asked, ticket, answer=back.set_result, refuse=back.set_result, **more)
        return await asyncio.wait_for(back, 60)

    return asyncio.run(main())


def _request(pixels: Any, *outputs: str) -> InferRequest:
    return InferRequest({"images": pixels}, len(pixels), [Wanted(name, True) for name in outputs])


def test_who_names_no_model_is_told_when_there_is_none(inference: Inference) -> None:
    assert inference.admit(None, None).name == "birds"
    inference.repository.starting = 1  # a second one may come: which is meant shows then
    with pytest.raises(NotReady, match="still being loaded"):
        inference.admit(None, None)
    inference.repository.starting = 0
    inference.repository.remove("birds", "1").batcher.close()
    with pytest.raises(ModelNotFound, match="no model is loaded"):
        inference.admit(None, None)


def test_a_request_for_tensors_is_answered_with_tensors(inference: Inference, tiny: ModuleType) -> None:
    model, pixels = inference.admit("birds", None), tiny.pictures(3)
    got = _outcome(
        inference, inference.infer, model, _request(pixels, "probabilities"), Ticket(time.monotonic()), write=dict
    )
    np.testing.assert_allclose(got["probabilities"], tiny.expected(pixels), atol=1e-6)
    assert (model.statistics.success, model.active) == (1, 0)


def test_a_request_that_the_model_cannot_answer_is_a_named_error_and_counted(
    inference: Inference, tiny: ModuleType
) -> None:
    model = inference.admit(None, None)
    ticket = Ticket(time.monotonic())
    got = _outcome(inference, inference.infer, model, _request(tiny.pictures(1), "prediction_set"), ticket, write=dict)
    assert type(got) is BadInput
    assert "coverage" in got.message
    assert (model.statistics.fail, model.active) == (1, 0)


def test_what_cannot_be_written_is_the_answer_instead(inference: Inference, tiny: ModuleType) -> None:
    def write(tensors: Any) -> Any:
        raise BadInput("no such form")

    model = inference.admit("birds", "1")
    ticket = Ticket(time.monotonic())
    got = _outcome(inference, inference.infer, model, _request(tiny.pictures(1), "logits"), ticket, write=write)
    assert type(got) is BadInput
    assert (model.statistics.success, model.statistics.fail) == (0, 1)


def test_a_ticket_that_is_given_up_gets_no_answer(inference: Inference, tiny: ModuleType) -> None:
    model, ticket, said = inference.admit("birds", None), Ticket(time.monotonic()), []

    async def main() -> None:
        inference.loop = asyncio.get_running_loop()
        request = _request(tiny.pictures(1), "logits")
        inference.infer(model, request, ticket, write=dict, answer=said.append, refuse=said.append)
        ticket.give_up()
        while model.active:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert said == []
    assert (model.statistics.cancelled, ticket.job) == (1, None)


def test_pictures_are_answered_with_a_result(inference: Inference, tiny: ModuleType) -> None:
    import io

    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(tiny.pictures(1)[0]).save(data, "png")
    model, ticket = inference.admit(None, None), Ticket(time.monotonic())
    got = _outcome(
        inference, inference.predict, model, Pictures([("a", data.getvalue())], None, "me"), ticket,
        write=lambda result, id_: (len(result), id_),
    )  # fmt: skip
    assert got == (1, "me")
    bad = _outcome(
        inference, inference.predict, model, Pictures([("a.png", b"text")], None), ticket, write=lambda *_: None
    )
    assert type(bad) is BadInput
    assert bad.message.startswith("a.png: ")


def test_who_is_admitted(inference: Inference) -> None:
    with pytest.raises(ModelNotFound):
        inference.admit("eggs", None)
    with pytest.raises(ModelNotFound, match="no version"):
        inference.admit("birds", "2")
    inference.limits = SimpleNamespace(max_wait=-1.0)  # type: ignore[assignment]
    with pytest.raises(QueueFull, match="queue is full"):
        inference.admit("birds", None)


def test_the_control_plane_answers_without_a_server(inference: Inference) -> None:
    control = Control(inference.repository)
    assert control.metadata("birds", None)["versions"] == ["1"]
    assert [row["state"] for row in control.index(only_ready=True)] == ["READY"]
    assert asyncio.run(control.statistics(None, None))[0]["name"] == "birds"
    with pytest.raises(Forbidden):
        control.require_admin()
    with pytest.raises(NotFound, match="--monitor"):
        asyncio.run(control.report(control.model("birds", None), pinned=False))
    for refused in (lambda: control.config("eggs", None), lambda: control.metadata("birds", "9")):
        with pytest.raises(Refusal):
            refused()


@pytest.mark.parametrize("module", ["inference", "control"])
def test_the_core_loads_no_transport(module: str) -> None:
    code = f"import calibrant.serve.{module}, sys; print(*[m for m in sys.modules if m.startswith({TRANSPORTS!r})])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_only_transports_and_processes_name_a_transport() -> None:
    rooms = {path.relative_to(SERVE).parts[0] for path in SERVE.rglob("*.py") if _names(path)}
    assert rooms == {"http", "grpc", "processes"}


def _names(path: Path) -> bool:
    tree = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith(TRANSPORTS) for node in tree)
