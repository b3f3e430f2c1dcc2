"""The real process, and its ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest

from calibrant.serve.protocol import json_process
from calibrant.serve.protocol.body import LARGE_JSON
from calibrant.serve.protocol.errors import BadInput, DeadlinePassed, TooLarge
from calibrant.serve.protocol.json_process import JsonProcess
from tests.serve.protocol.test_body import message, target

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no file descriptors are passed on elsewhere")


@pytest.fixture
def process() -> Iterator[JsonProcess]:
    found = JsonProcess()
    yield found
    found.close()


def text(pad: int = LARGE_JSON) -> memoryview:
    return memoryview(json.dumps(message()).encode() + b" " * pad)


def of(process: JsonProcess) -> psutil.Process:
    assert process._process is not None
    return psutil.Process(process._process.pid)


def test_one_process_reads_one_request_after_the_other_and_ends_with_its_server(process: JsonProcess) -> None:
    assert not process.started
    pids = set()
    for _ in range(3):
        request = process.read(text(), None, target())
        assert request.feeds["x"].ravel().tolist() == list(range(12))
        assert request.feeds["x"].ctypes.data % 16 == 0
        pids.add(of(process).pid)
    assert len(pids) == 1
    with pytest.raises(BadInput, match="not valid JSON"):
        process.read(text()[1:], None, target())
    child = of(process)
    assert child.nice() >= 5
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as when a terminal or systemd ends all of a group
        child.send_signal(number)
    assert process.read(text(), None, target()).rows == 2
    assert of(process).pid == child.pid
    process.close()
    assert not process.started
    assert not psutil.pid_exists(child.pid)


def test_a_killed_one_is_a_refusal_at_most_and_the_next_is_another(process: JsonProcess) -> None:
    process.read(text(), None, target())
    child = of(process)
    child.kill()
    child.wait()
    assert process.read(text(), None, target()).rows == 2
    assert of(process).pid != child.pid


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded by /proc")
def test_what_takes_too_much_memory_is_refused_and_nothing_stays(process: JsonProcess) -> None:
    for _ in range(2):
        with pytest.raises(TooLarge, match="more memory|more than 1024 MiB"):
            process.read(memoryview(b'{"inputs":[' + b"7," * (60 << 20) + b"7]}"), None, target())
    assert process.read(text(), None, target()).rows == 2
    assert of(process).memory_info().rss < 256 << 20


def test_what_takes_too_long_is_refused(process: JsonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_process, "SECONDS", 1.0)
    process.read(text(), None, target())
    child = of(process)
    child.suspend()
    with pytest.raises(DeadlinePassed, match="within 1 s"):
        process.read(text(), None, target())
    assert not psutil.pid_exists(child.pid)
    assert process.read(text(), None, target()).rows == 2


def test_where_no_process_can_be_started_it_is_read_here(
    process: JsonProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for _ in range(2):
        assert process.read(text(), None, target()).rows == 2
    assert not process.started
    assert [r.getMessage() for r in caplog.records if "none can be started" in r.getMessage()]
