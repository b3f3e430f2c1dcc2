"""Models in object storage: on fsspec's own storage in memory, and on an S3 server of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from calibrant.errors import ConfigError, DataError
from calibrant.serve.models.folder import is_model_path
from calibrant.serve.models.remote_folder import RemoteFolder
from calibrant.serve.processes.background import running

pytest.importorskip("fsspec")


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_only_what_may_be_a_model_is_copied() -> None:
    assert all(map(is_model_path, ("birds.onnx", "birds@2.onnx", "birds/1/model.onnx", "birds/12/other.onnx")))
    bad = ("notes.txt", "birds/model.onnx", "birds/one/model.onnx", "a/b/1/model.onnx", ".x.onnx", "birds/1/.x.onnx",
           "../1/model.onnx", "birds/1/model.onnx.part")  # fmt: skip
    assert not any(map(is_model_path, bad))


def test_files_come_change_and_go_as_they_do_in_the_storage(tmp_path: Path, storage: Any) -> None:
    storage.pipe("/models/birds/1/model.onnx", b"one")
    storage.pipe("/models/birds@2.onnx", b"two")
    storage.pipe("/models/README.md", b"no model")
    found = RemoteFolder("memory://models/", tmp_path)
    found.fetch()
    assert _names(found.folder) == {"birds/1/model.onnx", "birds@2.onnx"}
    first = (found.folder / "birds@2.onnx").stat().st_mtime_ns
    storage.pipe("/models/birds/1/model.onnx", b"uno")
    storage.rm("/models/birds@2.onnx")
    storage.pipe("/models/crows.onnx", b"three")
    found.refresh()
    assert _names(found.folder) == {"birds/1/model.onnx", "crows.onnx"}
    assert (found.folder / "birds/1/model.onnx").read_bytes() == b"uno"
    kept = (found.folder / "crows.onnx").stat().st_mtime_ns
    found.refresh()
    assert (found.folder / "crows.onnx").stat().st_mtime_ns == kept > first  # nothing is copied twice


def test_a_storage_that_is_gone_changes_nothing_and_is_told_of_once(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage.pipe("/models/birds.onnx", b"one")
    found = RemoteFolder("memory://models", tmp_path)
    found.fetch()

    def gone(*_: Any, **__: Any) -> Any:
        raise OSError("no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "find", gone)
        found.refresh()
        found.refresh()
        with pytest.raises(DataError, match="memory://models: cannot be read"):
            found.fetch()
    found.refresh()
    assert (_names(found.folder), found.failures) == ({"birds.onnx"}, 2)
    assert [r.getMessage().partition("models ")[2] for r in caplog.records] == [
        "cannot be read (no route to host): what was loaded goes on", "can be read again",
    ]  # fmt: skip


def test_a_storage_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="calibrant\\[storage\\]"):
        RemoteFolder("nowhere://models", tmp_path)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.2)


@pytest.mark.slow  # 10 s
def test_a_server_serves_a_bucket_takes_what_comes_and_counts_what_is_gone(
    tmp_path: Path, tiny: ModuleType, bucket: Any
) -> None:
    file = tiny.write(tmp_path / "birds.onnx")
    bucket.upload_file(str(file), "models", "all/birds/1/model.onnx")
    arguments = ["--threads", "1", "--reload", "0.3"]
    with (
        running("s3://models/all", arguments=arguments) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.get("/v2/models/birds").json()["versions"] == ["1"]
        bucket.upload_file(str(file), "models", "all/birds/2/model.onnx")
        _until(lambda: client.get("/v2/models/birds").json()["versions"] == ["1", "2"])
        bucket.delete_object(Bucket="models", Key="all/birds/1/model.onnx")
        gone = 'calibrant_model_file_missing{model="birds",version="1"} 1'
        _until(lambda: gone in client.get("/metrics").text)
        assert client.get("/v2/models/birds/versions/1/ready").status_code == 200  # from memory
        assert 'calibrant_storage_failures_total{address="s3://models/all"} 0' in client.get("/metrics").text
