from __future__ import annotations

import gzip
import http.client
import io
import json
import socket
import threading
import time
import zlib
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image

INFER = "/v2/models/birds/infer"


@pytest.fixture
def client(url: str) -> Any:
    with httpx.Client(base_url=url, timeout=60) as c:
        yield c


def _entry(pixels: Any, **changes: Any) -> dict[str, Any]:
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    return {"inputs": [{**entry, **changes}]}


def _probabilities(reply: Any) -> Any:
    output = next(o for o in reply["outputs"] if o["name"] == "probabilities")
    return np.array(output["data"]).reshape(output["shape"])


def _png(seed: int = 0, size: tuple[int, int] = (40, 60)) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size, 3)).astype(np.uint8)).save(buffer, "png")
    return buffer.getvalue()


def _exchange(url: str, data: bytes, *, shut: bool = False, to_the_end: bool = False) -> bytes:
    """What comes back on a fresh connection: one answer, or all until the server closes it."""
    with socket.create_connection(_at(url), timeout=60) as s:
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := s.recv(65536):
            got += chunk
            if not to_the_end and _complete(got):
                break
        return got


def _at(url: str) -> tuple[str, int]:
    at = urlsplit(url)
    assert at.hostname is not None
    assert at.port is not None
    return at.hostname, at.port


def _complete(got: bytes) -> bool:
    head, _, body = got.partition(b"\r\n\r\n")
    lengths = [int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")]
    return bool(lengths) and len(body) >= lengths[0]


def test_the_answers_about_health_and_models(client: httpx.Client) -> None:
    assert client.get("/v2/health/live").json()["live"] is True
    assert client.get("/v2/health/ready").json()["ready"] is True
    assert client.head("/v2/health/live").content == b""
    assert client.get("/v2/").json()["name"] == "calibrant"
    assert "binary_tensor_data" in client.get("/v2").json()["extensions"]
    metadata = client.get("/v2/models/birds/versions/1").json()
    assert metadata["versions"] == ["1"]
    assert metadata["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 16, 16, 3]}]
    assert metadata["parameters"]["calibrant"]["calibrator"]["method"] == "temperature"
    assert client.get("/v2/models/birds/ready").json() == {"name": "birds", "ready": True}
    assert client.get("/v2/models/birds/config").json()["input"][0]["dims"] == [16, 16, 3]
    assert client.post("/v2/repository/index").json()[0]["state"] == "READY"


def test_json_and_binary_and_people_get_the_same_probabilities(client: httpx.Client, tiny: ModuleType) -> None:
    picture = _png()
    pixels = tiny.PREPROCESSING.pixels(Image.open(io.BytesIO(picture)).convert("RGB"))[None]
    wanted = tiny.expected(pixels)
    by_json = _probabilities(client.post(INFER, json=_entry(pixels)).json())
    np.testing.assert_allclose(by_json, wanted, atol=1e-6)
    head = json.dumps({"inputs": [{"name": "images", "shape": list(pixels.shape), "datatype": "UINT8",
                                   "parameters": {"binary_data_size": pixels.nbytes}}]}).encode()  # fmt: skip
    headers = {"Inference-Header-Content-Length": str(len(head))}
    by_binary = _probabilities(client.post(INFER, content=head + pixels.tobytes(), headers=headers).json())
    np.testing.assert_array_equal(by_binary, by_json)
    bare = client.post("/predict", content=picture).json()["predictions"][0]
    assert bare["confidence"] == pytest.approx(float(np.max(by_json[0])), abs=1e-6)
    answer = client.post("/predict?top_k=4", content=picture).json()["predictions"][0]
    by_people = {row["index"]: row["probability"] for row in answer["top"]}
    np.testing.assert_allclose([by_people[k] for k in range(4)], by_json[0], atol=1e-6)
    raw = client.post(INFER, content=pixels.tobytes(), headers={"Inference-Header-Content-Length": "0"})
    np.testing.assert_array_equal(_probabilities(raw.json()), by_json)


def test_knobs_ride_as_parameters(client: httpx.Client, tiny: ModuleType) -> None:
    pixels = tiny.pictures(3)
    body = {**_entry(pixels), "parameters": {
        "temperature": 0.7, "adjust_strength": 0.5, "target_prior": "0.1,0.2,0.3,0.4",
        "abstain_below": 0.99, "ood": True, "top_k": 2}}  # fmt: skip
    reply = client.post(INFER, json=body).json()
    wanted = tiny.expected(pixels, 0.7, 0.5, (0.1, 0.2, 0.3, 0.4))
    np.testing.assert_allclose(_probabilities(reply), wanted, atol=1e-6)
    named = {o["name"]: o for o in reply["outputs"]}
    assert named["abstained"]["data"] == (wanted.max(axis=1) < 0.99).tolist()
    assert named["top"]["data"][:2] == np.argsort(-wanted[0])[:2].tolist()
    with_sets = client.post(INFER, json={**_entry(pixels), "parameters": {"temperature": 0.7, "coverage": 0.9}}).json()
    assert {o["name"]: o["shape"] for o in with_sets["outputs"]}["prediction_set"] == [3, 4]
    moved = client.post(INFER, json={**_entry(pixels), "parameters": {"target_prior": "train", "coverage": 0.9}})
    assert moved.status_code == 400
    assert "not under that of the request" in moved.json()["error"]
    bad = client.post(INFER, json={**_entry(pixels), "parameters": {"coverage": 0.5}})
    assert bad.status_code == 400
    assert "it holds: 0.9, 0.95" in bad.json()["error"]


def test_a_knob_that_the_model_has_no_answer_to_never_reaches_it(client: httpx.Client, tiny: ModuleType) -> None:
    def runs() -> int:
        return int(client.get("/v2/models/birds/stats").json()["model_stats"][0]["execution_count"])

    pixels, before = tiny.pictures(1), runs()
    for change, says in (
        ({"parameters": {"coverage": 0.5}}, "it holds: 0.9, 0.95"),
        ({"parameters": {"target_prior": "0.5,0.5"}}, "2 shares for 4 classes"),
        ({"outputs": [{"name": "prediction_set"}]}, "needs the parameter `coverage`"),
        ({"outputs": [{"name": "ood_score"}]}, "needs the parameter `ood`"),
    ):
        reply = client.post(INFER, json={**_entry(pixels), **change})
        assert reply.status_code == 400
        assert says in reply.json()["error"]
    assert runs() == before
    assert client.post("/predict?coverage=0.5", content=_png()).status_code == 400
    assert runs() == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404), ("GET", "/v2/models/bird", 404), ("POST", "/v2/models/bird/infer", 404),
        ("GET", INFER, 405), ("DELETE", "/v2", 405), ("GET", "/v2/models/birds/versions/9", 404),
        ("GET", "/v2/models/birds/nothing", 404), ("POST", INFER, 400), ("GET", "/v2/models/%ff%00", 404),
    ],
)  # fmt: skip
def test_every_error_is_an_error_object(client: httpx.Client, method: str, path: str, status: int) -> None:
    reply = client.request(method, path)
    assert reply.status_code == status
    assert list(reply.json()) == ["error"]


def test_compressed_requests_and_answers(client: httpx.Client, tiny: ModuleType) -> None:
    pixels = tiny.pictures(2)
    text = json.dumps(_entry(pixels)).encode()
    for name, packed in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
        headers = {"Content-Encoding": name, "Accept-Encoding": name}
        reply = client.post(INFER, content=packed, headers=headers)
        assert reply.headers["content-encoding"] == name
        np.testing.assert_allclose(_probabilities(reply.json()), tiny.expected(pixels), atol=1e-6)
    parts = gzip.compress(text[:50]) + gzip.compress(text[50:])  # one stream of gzip may hold several members
    assert _probabilities(client.post(INFER, content=parts, headers={"Content-Encoding": "gzip"}).json()).shape == (
        2,
        4,
    )
    assert client.post(INFER, content=parts[:-3], headers={"Content-Encoding": "gzip"}).status_code == 400
    assert client.post(INFER, content=parts + b"x", headers={"Content-Encoding": "gzip"}).status_code == 400
    assert client.post(INFER, content=packed[:-3], headers={"Content-Encoding": "deflate"}).status_code == 400
    assert client.post(INFER, content=text, headers={"Content-Encoding": "br"}).status_code == 415
    bomb = gzip.compress(bytes(129 << 20), 9)
    reply = client.post(INFER, content=bomb, headers={"Content-Encoding": "gzip"})
    assert reply.status_code == 413


def test_a_form_of_several_pictures_answers_each(client: httpx.Client) -> None:
    files = [("image", ("a.png", _png(1))), ("image", ("b.png", _png(2)))]
    reply = client.post("/predict", files=files, data={"top_k": "1", "ood": "true"}).json()
    assert [p["image"] for p in reply["predictions"]] == ["a.png", "b.png"]
    assert all(len(p["top"]) == 1 and "ood_score" in p for p in reply["predictions"])
    assert client.post("/predict", files=files, data={"id": "order-17"}).json()["id"] == "order-17"


def test_people_get_told_what_is_wrong_with_their_picture(client: httpx.Client) -> None:
    for content, says in ((b"", "empty"), (b"junk", "not a JPEG"), (_png()[:200], "cannot be decoded")):
        reply = client.post("/predict", content=content)
        assert reply.status_code == 400
        assert says in reply.json()["error"]
    assert 'did you mean "top_k"' in client.post("/predict?topk=1", content=_png()).json()["error"]
    assert client.post("/predict?temperature=0", content=_png()).status_code == 400
    for name in ("temperature", "top_k", "coverage", "ood", "target_prior", "id", "model"):
        reply = client.post(f"/predict?{name}=", content=_png())
        assert reply.status_code in (400, 404), name  # not taken as left out
    assert "twice" in client.post("/predict?top_k=1&top_k=2", content=_png()).json()["error"]
    huge = io.BytesIO()
    Image.new("1", (20000, 20000)).save(huge, "png")  # 50 kB that unpack to 1.2 GB
    assert "pixels" in client.post("/predict", content=huge.getvalue()).json()["error"]


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET\r\n\r\n",
    b"GET /v2 HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET /v2 HTTP/1.1\r\n\r\n",
    b"GET /v2 HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST %b HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
    b"POST %b HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: -9\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 40000 + b"\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_request_gets_a_4xx_and_the_next_caller_an_answer(url: str, data: bytes) -> None:
    got = _exchange(url, data.replace(b"%b", INFER.encode()))
    status, body = got.split(b" ", 2)[1], got.partition(b"\r\n\r\n")[2]
    assert status in (b"400", b"404", b"405", b"413", b"431"), got[:200]
    assert json.loads(body)["error"]
    assert httpx.get(url + "/v2/health/ready", timeout=60).status_code == 200


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n", b"\n\r\n\r\n\r\n"])
def test_blank_lines_before_a_request_are_passed_over(url: str, blank: bytes) -> None:
    """As RFC 9112 (2.2) asks; some old callers end a body with them."""
    got = _exchange(
        url, blank + b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", to_the_end=True
    )
    assert got.startswith(b"HTTP/1.1 200")
    assert got.endswith(b'{"live":true}')


def test_the_whole_address_may_stand_in_the_request_line(url: str) -> None:
    """RFC 9112 (3.2.2): what a proxy would be sent must be understood."""
    for target in (b"http://elsewhere:80/v2/health/live", b"HTTP://a/v2/health/live?x=1"):
        got = _exchange(url, b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert got.endswith(b'{"live":true}'), got
    assert b" 200 " in _exchange(url, b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n")


def test_what_follows_a_chunked_body_is_no_header_of_the_request(url: str, tiny: ModuleType) -> None:
    body = json.dumps(_entry(tiny.pictures(1))).encode()
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
    got = _exchange(url, head + body + b"\r\n0\r\nInference-Header-Content-Length: 5\r\nContent-Encoding: br\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200"), got


def test_a_caller_that_reads_late_gets_every_byte(url: str) -> None:
    """More answers than the socket's buffer holds: what could not be written at once follows."""
    count = 6000
    want = httpx.get(f"{url}/v2/models/birds/config").content
    with socket.create_connection(_at(url), timeout=60) as connection:
        request = b"GET /v2/models/birds/config HTTP/1.1\r\nHost: x\r\n\r\n"
        sender = threading.Thread(target=connection.sendall, args=(request * count,))
        sender.start()
        time.sleep(0.5)  # the buffers fill up meanwhile; without it the test only proves less
        with connection.makefile("rb") as stream:
            for _ in range(count):
                assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
                size = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                assert stream.read(size) == want
        sender.join()


def test_what_is_refused_before_it_is_a_request_is_counted_too(url: str) -> None:
    def count() -> int:
        lines = httpx.get(url + "/metrics", timeout=60).text.splitlines()
        found = [line for line in lines if line.startswith('calibrant_http_requests_total{status="431"}')]
        return int(found[0].split()[-1]) if found else 0

    before = count()
    assert b" 431 " in _exchange(url, b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 40000 + b"\r\n\r\n")
    assert count() == before + 1


def test_requests_sent_ahead_are_answered_in_order(url: str) -> None:
    one = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /v2/models/birds/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    got = _exchange(url, one * 20 + last, to_the_end=True)
    assert got.count(b"HTTP/1.1 200") == 21
    assert got.endswith(b'{"name":"birds","ready":true}')


@pytest.mark.parametrize(
    "head", [b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"GET /v2 HTTP/1.0\r\n\r\n"]
)
def test_a_caller_that_wants_the_connection_closed_gets_it_closed(url: str, head: bytes) -> None:
    for _ in range(2):  # the second time the head is known
        got = _exchange(url, head, to_the_end=True)
        assert b"\r\nconnection: close\r\n" in got
        assert b'"name":"calibrant"' in got


def test_an_old_caller_that_wants_to_stay_is_told_that_it_may(url: str) -> None:
    """HTTP/1.0 closes unless both sides say otherwise; ab -k waits for ever where the answer does not say so."""
    head = b"GET /v2 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    with socket.create_connection(_at(url), timeout=60) as s:
        for _ in range(2):
            s.sendall(head)
            reply = http.client.HTTPResponse(s)
            reply.begin()
            assert reply.headers["connection"] == "keep-alive"
            assert b'"name":"calibrant"' in reply.read()


def test_a_chunked_body_is_read_and_the_connection_stays(url: str, tiny: ModuleType) -> None:
    pixels = tiny.pictures(1)
    text = json.dumps(_entry(pixels)).encode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    for _ in range(2):
        connection.request("POST", INFER, body=iter([text[:100], text[100:]]), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        reply = json.loads(connection.getresponse().read())
        np.testing.assert_allclose(_probabilities(reply), tiny.expected(pixels), atol=1e-6)
    connection.close()


def test_a_request_sent_behind_a_chunked_one_is_answered(url: str, tiny: ModuleType) -> None:
    """In one packet, and in the same one as the last chunk."""
    body = json.dumps(_entry(tiny.pictures(1))).encode()
    chunked = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
    chunked += body + b"\r\n0\r\n\r\n"
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n"
    got = _exchange(url, chunked + chunked + live + b"Connection: close\r\n\r\n", to_the_end=True)
    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert got.endswith(b'{"live":true}')


@pytest.mark.parametrize(
    "tail",
    [
        b"5" + b";x=" + b"y" * 20_000 + b"\r\n{}   \r\n0\r\n\r\n",
        b"".join(b"1;" + b"y" * 400 + b"\r\n \r\n" for _ in range(50)) + b"0\r\n\r\n",
        b"0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(4000)) + b"\r\n",
        b"0\r\nX: " + b"y" * 20_000,
    ],
)
def test_extensions_and_trailers_without_end_are_refused(url: str, tail: bytes) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    got = _exchange(url, head + tail)
    assert got.startswith(b"HTTP/1.1 431 "), got
    assert b"connection: close" in got


@pytest.mark.parametrize("framing", [b"Content-Length: 2", b"Transfer-Encoding: chunked"])
def test_http_1_0_gets_no_interim_answer(url: str, framing: bytes) -> None:
    """RFC 9110 (10.1.1): it would take 100 Continue for the answer."""
    body = b"{}" if b"Length" in framing else b"2\r\n{}\r\n0\r\n\r\n"
    head = f"POST {INFER} HTTP/1.0\r\nExpect: 100-continue\r\n".encode() + framing + b"\r\n\r\n"
    with socket.create_connection(_at(url), timeout=60) as s:
        s.sendall(head)
        time.sleep(0.1)
        s.sendall(body)
        assert s.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_expect_continue_is_answered_before_the_body(url: str) -> None:
    with socket.create_connection(_at(url), timeout=60) as s, s.makefile("rb") as lines:
        s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode())
        assert [lines.readline(), lines.readline()] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
        s.sendall(b"{}")
        assert lines.readline().startswith(b"HTTP/1.1 400 ")


def test_a_caller_that_closes_its_side_still_gets_the_answer(url: str) -> None:
    got = _exchange(url, b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n", shut=True)
    assert b'{"live":true}' in got


def test_a_body_too_large_is_refused_before_it_is_sent(url: str) -> None:
    got = _exchange(
        url, f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 30}\r\n\r\n".encode() + bytes(1 << 20)
    )
    assert b" 413 " in got
    assert b"at most 67108864" in got
