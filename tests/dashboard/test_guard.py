"""Who may ask the dashboard, and what its answers let a browser do. Driven without a server, one request at a time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from calibrant.dashboard.guard import Guard, content_policy, headers, host_of, inline_scripts, is_guarded

NAMES = ("127.0.0.1", "localhost", "::1", "lab-7.example.org")


async def behind(scope: Any, receive: Any, send: Any) -> None:
    """The application behind the guard; its own weaker header must not win."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    sent = [(b"Content-Security-Policy", b"default-src *"), (b"x-kept", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": sent})
    await send({"type": "http.response.body", "body": b"a secret"})


def asked(*hosts: str, kind: str = "http") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "headers": [(b"host", host.encode()) for host in hosts]}
    asyncio.run(Guard(behind, NAMES, headers())(scope, receive, send))
    return sent


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost", "LOCALHOST:1", "[::1]:8501", "lab-7.example.org."])
def test_a_name_that_was_allowed_is_answered(host: str) -> None:
    assert asked(host)[0]["status"] == 200
    assert asked(host, kind="websocket")[0]["type"] == "websocket.accept"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "evil.example/localhost", "", "[::1", "a:b"],
)
def test_a_foreign_name_is_refused_by_http_as_by_the_socket(host: str) -> None:
    start, body = asked(host)
    assert start["status"] == 403
    assert b"secret" not in body["body"]
    assert asked(host, kind="websocket")[0]["type"] == "websocket.close"


def test_no_name_and_two_names_are_refused() -> None:
    assert asked()[0]["status"] == asked("localhost", "evil.example")[0]["status"] == 403


def test_every_answer_has_the_headers_once_and_keeps_the_others() -> None:
    for host in ("localhost", "evil.example"):
        found = [(name.lower(), value) for name, value in asked(host)[0]["headers"]]
        names = [name for name, _ in found]
        assert names.count(b"content-security-policy") == names.count(b"x-content-type-options") == 1
        assert dict(found)[b"x-content-type-options"] == b"nosniff"
        assert dict(found)[b"x-frame-options"] == b"DENY"
        assert b"frame-ancestors 'none'" in dict(found)[b"content-security-policy"]
    assert (b"x-kept", b"1") in asked("localhost")[0]["headers"]


def test_a_script_inside_the_page_runs_by_its_hash_only() -> None:
    digest = base64.b64encode(hashlib.sha256(b"here()").digest()).decode()
    (rule,) = (r for r in content_policy(["here()"]).split("; ") if r.startswith("script-src"))
    assert f"'sha256-{digest}'" in rule
    assert "unsafe-inline" not in rule
    assert "http:" not in content_policy()
    assert "*" not in content_policy()


def test_the_scripts_of_streamlits_page_are_found() -> None:
    pytest.importorskip("streamlit")
    assert any("prerenderReady" in text for text in inline_scripts())


def test_an_answer_that_did_not_pass_the_guard_is_told_apart() -> None:
    assert is_guarded(content_policy())
    assert not is_guarded(None)
    assert not is_guarded("default-src 'self'")


def test_a_host_is_read_without_its_port() -> None:
    assert host_of("Localhost:80") == "localhost"
    assert host_of("[::1]:80") == "::1"
    assert host_of("u@localhost") is None
