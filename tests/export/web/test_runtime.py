"""Where onnxruntime-web comes from; npm is a script here that does what npm pack does."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.export.web.runtime import FILES, PACKAGE, VERSION, cache_folder, find_runtime


def package(folder: Path, version: str = "1.2.3", name: str = PACKAGE) -> Path:
    for file in FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{file} of {version}")
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))
    return folder


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called npm, alone on the path, that packs the folder beside it; it writes down how it was called."""
    content = package(tmp_path / "content" / "package", VERSION)
    archive = tmp_path / "packed.tgz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(content, arcname="package")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    script = bin_ / "npm"
    lines = ["#!/bin/sh", f'echo "$@" >> {tmp_path}/calls', "for last; do :; done", f'/bin/cp {archive} "$last/p.tgz"']
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("inner", [f"node_modules/{PACKAGE}", PACKAGE, "."])
def test_a_folder_of_npms_is_taken(tmp_path: Path, inner: str) -> None:
    package(tmp_path / inner)
    found = find_runtime(tmp_path)
    assert found.version == "1.2.3"
    assert {name: path.read_text() for name, path in found.files.items()} == {
        "ort.js": "dist/ort.wasm.bundle.min.mjs of 1.2.3", "ort.wasm": "dist/ort-wasm-simd-threaded.wasm of 1.2.3",
    }  # fmt: skip


def test_a_folder_without_it_is_refused_with_the_line_that_helps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"--runtime .*npm install {PACKAGE}@{VERSION}"):
        find_runtime(tmp_path)
    package(tmp_path, name="something-else")
    with pytest.raises(ConfigError, match="no node_modules"):
        find_runtime(tmp_path)
    (package(tmp_path) / "dist/ort-wasm-simd-threaded.wasm").unlink()
    with pytest.raises(ConfigError, match="has no dist/ort-wasm-simd-threaded.wasm"):
        find_runtime(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="the script is one for a shell")
def test_npm_is_asked_once_and_the_cache_after(npm: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = find_runtime(), find_runtime()
    assert first == second
    assert first.version == VERSION
    assert all(path.is_relative_to(cache_folder()) and path.is_file() for path in first.files.values())
    (call,) = (npm / "calls").read_text().splitlines()
    assert call.startswith(f"pack {PACKAGE}@{VERSION} ")
    assert "--ignore-scripts" in call
    assert "33 MB" in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="the script is one for a shell")
def test_no_npm_and_one_that_fails_are_said(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (npm / "bin" / "npm").write_text("#!/bin/sh\necho 'ENOTFOUND registry' >&2\nexit 1\n")
    with pytest.raises(ConfigError, match=r"could not fetch .*ENOTFOUND registry.*--runtime"):
        find_runtime()
    monkeypatch.setenv("PATH", str(npm))
    with pytest.raises(ConfigError, match=r"no npm here.*npm install"):
        find_runtime()
