"""Forms and pictures as they lie in a body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant.serve.http import picture_api
from calibrant.serve.http.picture_api import MOST_TEXT, read
from calibrant.serve.limits import Limits
from calibrant.serve.protocol.errors import BadInput, TooLarge

KIND = b"multipart/form-data; boundary=xYz"


def part(content: bytes, name: str = "image", file: str | None = "a.jpg") -> bytes:
    file_name = "" if file is None else f'; filename="{file}"'
    return f'--xYz\r\nContent-Disposition: form-data; name="{name}"{file_name}\r\n\r\n'.encode() + content + b"\r\n"


CONTENTS = st.lists(
    st.lists(st.sampled_from([b"\r\n", b"--", b"--xY", b"a", b"\0", b"\r\n--xY"]), max_size=9), max_size=4
)


@given(parts=CONTENTS, before=st.sampled_from([b"", b"hello\r\n"]), piece=st.integers(7, 40))
def test_what_was_put_into_a_form_comes_out_wherever_it_is_cut(
    parts: list[list[bytes]], before: bytes, piece: int
) -> None:
    contents = [b"".join(pieces) for pieces in parts]
    form = before + b"".join(map(part, contents)) + part(b" 0.9 ", "coverage", None) + b"--xYz--\r\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture_api, "_PIECE", piece)
        patch.setattr(picture_api, "_A_MOMENT", 0)
        if not contents:
            with pytest.raises(BadInput, match="no picture"):
                read(memoryview(form), KIND, {}, None, Limits())
            return
        found = read(memoryview(form), KIND, {}, "id", Limits())
    assert [(name, bytes(data)) for name, data in found.images] == [("a.jpg", c) for c in contents]
    assert found.id == "id"
    assert found.knobs is not None
    assert found.knobs.coverage == 0.9


@pytest.mark.parametrize(
    ("form", "error", "says"),
    [
        (part(b"a")[:-2], BadInput, "cut off"),
        (part(b"a"), BadInput, "cut off"),
        (b"--xYz\r\nno head\r\n--xYz--", BadInput, "no header"),
        (b"--xYz\r\nA: b\r\n\r\nx\r\n--xYz--", BadInput, "no name"),
        (part(b"a" * (MOST_TEXT + 1), "id", None) + b"--xYz--", TooLarge, "field"),
        (part(b"a") * 33 + b"--xYz--", TooLarge, "more than 32 pictures"),
        (part(b"a", "x", None) * 97 + b"--xYz--", TooLarge, "more than 96 parts"),
    ],
)
def test_a_form_that_is_none_is_refused(form: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        read(memoryview(form), KIND, {}, None, Limits())


def test_a_picture_is_not_copied() -> None:
    body = memoryview(bytearray(b"picture"))
    ((_, data),) = read(body, b"image/jpeg", {}, None, Limits()).images
    body[:3] = b"PIC"
    assert bytes(data) == b"PICture"
