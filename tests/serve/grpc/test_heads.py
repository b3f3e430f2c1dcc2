from __future__ import annotations

import pytest

from calibrant.serve.grpc.frames import COMPRESSION_ERROR, ConnectionFault

hpack = pytest.importorskip("hpack")
from calibrant.serve.grpc import heads  # noqa: E402

CALL = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("te", "trailers"),
        ("content-type", "application/grpc+proto"), ("grpc-encoding", "gzip"),
        ("authorization", "Bearer x")]  # fmt: skip


def _changed(**fields: str) -> list[tuple[str, str]]:
    return [*{**dict(CALL), **{k.replace("_", "-"): v for k, v in fields.items()}}.items()]


def test_a_block_is_known_again_until_the_table_changes() -> None:
    """An index means another field once something was put before it: a block of the same bytes is another head then."""
    encoder, reader = hpack.Encoder(), heads.HeadReader(4096)
    first = reader.read(encoder.encode(CALL))
    block = encoder.encode(CALL)
    assert min(block) > 127  # references only
    known = reader.read(block)
    assert known == first
    assert reader.read(block) is known
    assert (known.path, known.encoding, known.authorization) == ("/a.B/C", "gzip", b"Bearer x")
    shifted = encoder.encode(_changed(authorization="Bearer y"))
    assert reader.read(shifted).authorization == b"Bearer y"
    again = encoder.encode(CALL)
    assert reader.read(again) == first
    assert reader.read(encoder.encode(_changed(authorization="Bearer y"))).authorization == b"Bearer y"


def test_the_same_bytes_are_another_head_once_the_table_has_changed() -> None:
    """POST, http, and the fields that were put into the table last but one and last (RFC 7541, 6.1 and 6.2.1)."""
    reader, kind = heads.HeadReader(4096), b"\x5f\x10application/grpc"
    references = b"\x83\x86\xbf\xbe"
    for path in (b"/p1", b"/p2", b"/p3"):
        assert reader.read(b"\x83\x86\x44\x03" + path + kind).path == path.decode()
        assert reader.read(references).path == path.decode()
        assert reader.read(references).path == path.decode()


def test_each_of_a_thousand_heads_is_what_an_encoder_of_others_wrote() -> None:
    encoder, reader = hpack.Encoder(), heads.HeadReader(4096)
    for number in range(1000):
        path = f"/s/{number * 7919 % 13}"
        more = {"authorization": f"t{number % 5}", "x-request-id": f"id{number % 3}"}
        head = reader.read(encoder.encode(_changed(**{":path": path}, **more)))
        assert (head.path, head.authorization) == (path, f"t{number % 5}".encode())
        assert head.request_id == f"id{number % 3}".encode()


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("5S", 5), ("2M", 120), ("1H", 3600), ("250m", 0.25), ("7u", 7e-6), ("3n", 3e-9), ("99999999H", 99999999 * 3600),
     ("123456789S", None), ("5s", None), ("-1S", None), ("", None), ("5", None)],
)  # fmt: skip
def test_timeouts_are_read_as_grpc_writes_them(timeout: str, seconds: float | None) -> None:
    head = heads.HeadReader(4096).read(hpack.Encoder().encode([*CALL, ("grpc-timeout", timeout)]))
    assert head.timeout == pytest.approx(seconds)


def test_answers_are_what_a_decoder_of_others_reads() -> None:
    decoder = hpack.Decoder()
    assert dict(decoder.decode(heads.ANSWER)) == {
        ":status": "200", "content-type": "application/grpc", "grpc-accept-encoding": "identity,deflate,gzip",
    }  # fmt: skip
    assert decoder.decode(heads.OK_TRAILERS) == [("grpc-status", "0")]
    said = dict(decoder.decode(heads.trailers(3, 'no "é" 100 %\n')))
    assert said == {"grpc-status": "3", "grpc-message": 'no "%C3%A9" 100 %25%0A'}
    long = dict(decoder.decode(heads.trailers_only(8, "x" * 5000)))
    assert long["grpc-message"] == "x" * heads.LONGEST_MESSAGE
    assert dict(decoder.decode(heads.no_call(415, "no")))[":status"] == "415"
    assert (
        decoder.header_table.maxsize - decoder.header_table._current_size == decoder.header_table.maxsize
    )  # untouched


def test_a_block_that_cannot_be_decoded_ends_the_connection() -> None:
    with pytest.raises(ConnectionFault) as caught:
        heads.HeadReader(4096).read(b"\xff\xff\xff")
    assert caught.value.code == COMPRESSION_ERROR
