"""POST /predict: a picture in, a labelled answer out, for people and for scripts that want no tensors."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import DataError, did_you_mean
from calibrant.images.decode import open_image
from calibrant.serve.engine import pixels as images_
from calibrant.serve.engine.knobs import NAMES, Knobs
from calibrant.serve.engine.result import Result, answer
from calibrant.serve.engine.session import Arrays
from calibrant.serve.http.limits import Limits
from calibrant.serve.models.repository import Model
from calibrant.serve.protocol.errors import BadInput, TooLarge, UnknownEncoding


@dataclass(frozen=True)
class Asked:
    images: list[tuple[str, bytes]]  # name, encoded picture
    knobs: Knobs | None
    id: str | None = None  # a field of the form


def read(body: memoryview, content_type: bytes, query: Mapping[str, str], limits: Limits) -> Asked:
    """Pictures and parameters of a request: multipart/form-data, or one picture as the body."""
    if not len(body):
        raise BadInput("the body is empty; send a picture: curl --data-binary @photo.jpg URL/predict")
    fields = dict(query)
    kind, parameters = _content_type(content_type)
    if kind == "multipart/form-data":
        boundary = parameters.get("boundary")
        if not boundary:
            raise BadInput("multipart/form-data without a boundary")
        pictures, more = _multipart(bytes(body), boundary.encode(), limits)
        fields.update(more)
    elif kind == "application/json":
        raise UnknownEncoding("/predict takes a picture or a form; send JSON tensors to /v2/models/NAME/infer")
    else:  # curl says x-www-form-urlencoded for --data-binary; the bytes themselves tell what they are
        pictures = [("image", bytes(body))]
    request_id = fields.pop("id", None) if "id" not in query else None
    if request_id == "":
        raise BadInput("`id` is empty; leave it out or give one")
    for name in fields:
        if name not in NAMES:
            raise BadInput(f'no parameter "{name[:60]}"; {did_you_mean(name, NAMES)}')
    if not pictures:
        raise BadInput("the form holds no picture; send a file field: curl -F image=@photo.jpg URL/predict")
    return Asked(pictures, Knobs.parse(fields) if fields else None, request_id)


def decode(card: ModelCard, pictures: list[tuple[str, bytes]], limits: Limits) -> NDArray[Any]:
    """The model's input, through the evaluation transform stored in the file."""
    rows = []
    for name, data in pictures:
        try:
            rows.append(card.preprocessing.pixels(open_image(data, max_pixels=limits.max_pixels)))
        except DataError as error:
            raise BadInput(f"{name}: {error.what}") from None
    return images_.model_input(card, np.stack(rows))


def result(model: Model, knobs: Knobs | None, outputs: Arrays) -> Result:
    return answer(model.session.require_card(), model.classifier.formula, outputs, knobs or Knobs())


def body(model: Model, asked: Asked, answers: Result, request_id: str | None) -> dict[str, Any]:
    rows = answers.to_rows()
    for row, (name, _) in zip(rows, asked.images, strict=True):
        row["image"] = name
    identity = {} if request_id is None else {"id": request_id}
    return {"model_name": model.name, "model_version": model.version, **identity, "predictions": rows}


def _content_type(value: bytes) -> tuple[str, dict[str, str]]:
    message = Message()
    message["content-type"] = value.decode("latin-1")
    return message.get_content_type(), {k.lower(): str(v) for k, v in (message.get_params() or [])[1:]}


_NAME = re.compile(rb'(?:^|;)\s*name="([^"]*)"')
_FILE = re.compile(rb'(?:^|;)\s*filename="([^"]*)"')


def _multipart(data: bytes, boundary: bytes, limits: Limits) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    """Files and text fields of a form (RFC 7578)."""
    parts = (b"\r\n" + data).split(b"\r\n--" + boundary)
    if len(parts) < 3 or not parts[-1].startswith(b"--"):
        raise BadInput("the multipart form is cut off: its closing boundary is missing")
    pictures: list[tuple[str, bytes]] = []
    fields: dict[str, str] = {}
    for part in parts[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        if not blank:
            raise BadInput("a part of the multipart form has no header")
        disposition = next(
            (h.partition(b":")[2] for h in head.split(b"\r\n") if h.lower().startswith(b"content-disposition:")), b""
        )
        name, file = _NAME.search(disposition), _FILE.search(disposition)
        if name is None:
            raise BadInput("a part of the multipart form has no name")
        if file is None:
            fields[name.group(1).decode(errors="replace")] = content.decode(errors="replace").strip()
            continue
        pictures.append((file.group(1).decode(errors="replace") or f"image {len(pictures) + 1}", content))
        if len(pictures) > limits.max_images:
            raise TooLarge(f"the form holds more than {limits.max_images} pictures")
    return pictures, fields


def page(models: list[str]) -> str:
    """A form for a browser; nothing on it comes from elsewhere."""
    options = "".join(f"<option>{html.escape(name)}</option>" for name in models)
    return _PAGE.replace("OPTIONS", options)


_PAGE = """<!doctype html><meta charset="utf-8"><title>Calibrant</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td{padding:.2rem .4rem}td.bar{width:50%}
.bar div{background:#2a78b5;height:1rem}img{max-width:16rem;max-height:16rem;display:block;margin:1rem 0}</style>
<h1>Calibrant</h1>
<p>Choose a picture; the answer is the calibrated probability of each class.
<a href="docs">addresses</a>, <a href="metrics">metrics</a>, <a href="v2">server</a></p>
<p><select id="model">OPTIONS</select> <input type="file" id="file" accept="image/*"></p>
<img id="shown" alt="" hidden><p id="verdict" role="status"></p><table id="top"></table>
<script>
const at = id => document.getElementById(id);
at("file").onchange = async () => {
  const file = at("file").files[0];
  if (!file) return;
  at("shown").src = URL.createObjectURL(file); at("shown").hidden = false;
  const reply = await fetch("predict?model=" + encodeURIComponent(at("model").value), {method: "POST", body: file});
  const answer = await reply.json();
  at("top").replaceChildren();
  if (!reply.ok) { at("verdict").textContent = answer.error; return; }
  const row = answer.predictions[0];
  at("verdict").textContent = row.label + ", " + (100 * row.confidence).toFixed(1) + " %"
    + (row.abstained ? " (below the threshold: abstained)" : "")
    + ("ood_score" in row ? "; out-of-distribution score " + row.ood_score.toFixed(2) : "");
  for (const {label, probability} of row.top) {
    const line = at("top").insertRow();
    line.insertCell().textContent = label;
    line.insertCell().textContent = (100 * probability).toFixed(1) + " %";
    const bar = line.insertCell(); bar.className = "bar";
    const fill = bar.appendChild(document.createElement("div")); fill.style.width = 100 * probability + "%";
  }
};
</script>
"""
