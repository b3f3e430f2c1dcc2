"""A worker that is not there is told of once, and again only when it had come back meanwhile."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from calibrant.serve.processes.other_workers import OtherWorkers
from calibrant.serve.processes.workers import Seat


def test_a_silence_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    others = OtherWorkers(Seat(0, 2, -1, -1, -1, str(tmp_path), None))

    async def asked(times: int) -> None:
        for _ in range(times):
            await others.flush()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def back_and_gone() -> None:
        async with await asyncio.start_unix_server(answer, tmp_path / "1.sock"):
            await asked(1)
        (tmp_path / "1.sock").unlink(missing_ok=True)
        await asked(2)

    with caplog.at_level(logging.WARNING):
        asyncio.run(asked(3))
        assert [r.getMessage().partition(" (")[0] for r in caplog.records] == ["worker 1 does not answer"]
        asyncio.run(back_and_gone())
        assert len(caplog.records) == 2
