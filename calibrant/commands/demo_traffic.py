"""Served traffic for the demo: each test image once, and pictures that blur while their labels come late."""

from __future__ import annotations

import io
import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from calibrant.artifacts.predictions import Predictions
from calibrant.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CALM, _BLURRED = 300, 800  # answers before and after the lens goes out of focus
_LATE, _AT_ONCE = 100, 25  # a label comes so many answers later, with others
_KEPT = "pictures"  # below the log: what was sent, under ids by which the dashboard finds it
_BASELINE = 500  # labelled rows that the alarm needs to know what is normal, held out or served


@dataclass(frozen=True)
class Traffic:
    """What the server says in the end. `blurred_from`: the first answer to a blurred picture."""

    report: dict[str, Any]
    answers: int
    blurred_from: int


def send(model: Path, name: str, images: Path, test: Predictions, baseline: Path, known: int, log: Path) -> Traffic:
    """Serves the file with its monitor on; `known`: labelled rows in `baseline`. The log stays for the dashboard."""
    import numpy as np

    from calibrant.serve.processes.background import running

    rng = np.random.default_rng(0)
    calm = _CALM + max(0, _BASELINE - known)
    drawn = rng.integers(0, len(test.ids), calm + _BLURRED)
    waiting: list[dict[str, str]] = []
    (log / _KEPT).mkdir(parents=True, exist_ok=True)
    watch = ("--monitor", "--feedback-log", str(log), "--baseline", str(baseline), "--quiet")
    with running(model, arguments=watch) as server:
        address = f"{server}/v2/models/{name}"
        for n, row in progress(list(enumerate(drawn)), what="serving pictures", unit="img"):
            id_ = f"{_KEPT}/{'sharp' if n < calm else 'blurred'}-{n:04d}.png"
            picture = _png(images / "test" / test.ids[row], blurred=n >= calm)
            (log / id_).write_bytes(picture)
            _post(f"{server}/predict?id={quote(id_)}", picture, "image/png")
            waiting.append({"id": id_, "label": test.class_names[test.labels[row]]})
            if len(waiting) >= _LATE + _AT_ONCE:
                waiting = _label(address, waiting, _AT_ONCE)
        _label(address, waiting, len(waiting))
        with urllib.request.urlopen(f"{address}/monitor", timeout=60) as response:
            return Traffic(json.load(response), len(drawn), calm)


def _label(address: str, waiting: list[dict[str, str]], most: int) -> list[dict[str, str]]:
    """Sends the oldest labels; returns those that are still to come."""
    _post(f"{address}/feedback", json.dumps({"labels": waiting[:most]}).encode(), "application/json")
    return waiting[most:]


def _png(path: Path, *, blurred: bool) -> bytes:
    if not blurred:
        return path.read_bytes()
    from PIL import ImageFilter

    from calibrant.images.decode import open_image

    image, stream = open_image(path), io.BytesIO()
    image.filter(ImageFilter.GaussianBlur(min(image.size) / 20)).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def _post(url: str, body: bytes, kind: str) -> None:
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


def ask_for_all(model: Path, name: str, images: Path, test: Predictions) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """The probabilities that a running server gives for the test images, and one answer to show."""
    import numpy as np

    from calibrant.images.decode import open_image
    from calibrant.serve.processes.background import running

    def post(url: str, body: bytes, kind: str) -> dict[str, Any]:
        request = urllib.request.Request(url, body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    answers = []
    with running(model) as server:
        for start in range(0, len(test), 25):
            batch = [np.asarray(open_image(images / "test" / i)) for i in test.ids[start : start + 25]]
            tensor = {"name": "images", "datatype": "UINT8", "shape": [len(batch), *batch[0].shape]}
            inputs = [{**tensor, "data": np.stack(batch).ravel().tolist()}]
            body = json.dumps({"inputs": inputs, "outputs": [{"name": "probabilities"}]}).encode()
            output = post(f"{server}/v2/models/{name}/infer", body, "application/json")["outputs"][0]
            answers.append(np.asarray(output["data"], np.float64).reshape(output["shape"]))
        first = images / "test" / test.ids[0]
        example = post(f"{server}/predict", first.read_bytes(), "image/png")
    return np.concatenate(answers), {"image": first, "label": test.class_names[test.labels[0]], "answer": example}
