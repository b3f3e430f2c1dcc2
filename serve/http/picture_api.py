"""POST /predict: a picture in, a labelled answer out, for people and for scripts that want no tensors."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.message import Message
from itertools import pairwise
from typing import Any

from calibrant.errors import did_you_mean
from calibrant.serve.engine.knobs import NAMES, Knobs
from calibrant.serve.engine.result import Result
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.errors import BadInput, TooLarge, UnknownEncoding
from calibrant.serve.protocol.pictures import Pictures

MOST_FIELDS = 64  # of a form, beside its pictures
MOST_PART_HEAD, MOST_TEXT = 16 << 10, 64 << 10  # bytes of a part of a form: its head; a field that is no picture
_PIECE, _A_MOMENT = 1 << 18, 1e-5  # bytes that are searched, and seconds in which others have their turn


def read(
    body: memoryview, content_type: bytes, query: Mapping[str, str], request_id: str | None, limits: Limits
) -> Pictures:
    """Pictures and parameters of a request: multipart/form-data, or one picture as the body.

    `request_id`: of the query; one in the form comes before it.
    """
    if not len(body):
        raise BadInput("the body is empty; send a picture: curl --data-binary @photo.jpg URL/predict")
    fields = dict(query)
    kind, parameters = _content_type(content_type)
    if kind == "multipart/form-data":
        boundary = parameters.get("boundary")
        if not boundary:
            raise BadInput("multipart/form-data without a boundary")
        pictures, more = _multipart(body, boundary.encode(), limits)
        fields.update(more)
    elif kind == "application/json":
        raise UnknownEncoding("/predict takes a picture or a form; send JSON tensors to /v2/models/NAME/infer")
    else:  # curl says x-www-form-urlencoded for --data-binary; the bytes themselves tell what they are
        pictures = [("image", body)]
    own_id = fields.pop("id", None)
    if own_id == "":
        raise BadInput("`id` is empty; leave it out or give one")
    for name in fields:
        if name not in NAMES:
            raise BadInput(f'no parameter "{name[:60]}"; {did_you_mean(name, NAMES)}')
    if not pictures:
        raise BadInput("the form holds no picture; send a file field: curl -F image=@photo.jpg URL/predict")
    return Pictures(pictures, Knobs.parse(fields) if fields else None, own_id or request_id)


def body(model: Model, asked: Pictures, result: Result, request_id: str | None) -> dict[str, Any]:
    rows = result.to_rows()
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


def _multipart(
    data: memoryview, boundary: bytes, limits: Limits
) -> tuple[list[tuple[str, memoryview]], dict[str, str]]:
    """Files and text fields of a form (RFC 7578)."""
    most, sign = limits.max_images + MOST_FIELDS, b"\r\n--" + boundary
    places = _places(data, sign, most + 2)
    if bytes(data[: len(sign) - 2]) == sign[2:]:  # nothing stands before the first
        places.insert(0, -2)
    if len(places) > most + 1:
        raise TooLarge(f"the form has more than {most} parts")
    if len(places) < 2 or bytes(data[places[-1] + len(sign) :][:2]) != b"--":
        raise BadInput("the multipart form is cut off: its closing boundary is missing")
    pictures: list[tuple[str, memoryview]] = []
    fields: dict[str, str] = {}
    for start, end in pairwise(places):
        part = data[start + len(sign) : end]
        head, blank, _ = bytes(part[:MOST_PART_HEAD]).partition(b"\r\n\r\n")
        if not blank:
            raise BadInput("a part of the multipart form has no header")
        content = part[len(head) + len(blank) :]
        disposition = next(
            (h.partition(b":")[2] for h in head.split(b"\r\n") if h.lower().startswith(b"content-disposition:")), b""
        )
        name, file = _NAME.search(disposition), _FILE.search(disposition)
        if name is None:
            raise BadInput("a part of the multipart form has no name")
        if file is None:
            if len(content) > MOST_TEXT:
                raise TooLarge(f"a field of the form has more than {MOST_TEXT} bytes")
            fields[name.group(1).decode(errors="replace")] = bytes(content).decode(errors="replace").strip()
            continue
        pictures.append((file.group(1).decode(errors="replace") or f"image {len(pictures) + 1}", content))
        if len(pictures) > limits.max_images:
            raise TooLarge(f"the form holds more than {limits.max_images} pictures")
    return pictures, fields


def _places(data: memoryview, sign: bytes, most: int) -> list[int]:
    """The first places where `sign` stands; looked for a piece at a time, since a search holds Python's lock."""
    found: list[int] = []
    for at in range(0, len(data), _PIECE):
        piece = bytes(data[at : at + _PIECE + len(sign) - 1])
        place = piece.find(sign)
        while place >= 0 and len(found) < most:
            found.append(at + place)
            place = piece.find(sign, place + len(sign))
        if len(data) > _PIECE:
            time.sleep(_A_MOMENT)
    return found
