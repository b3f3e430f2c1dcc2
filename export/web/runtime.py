"""Where the browser's onnxruntime comes from: a folder of npm's, or npm itself, once, into the user's cache."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from calibrant.atomic import write_bytes
from calibrant.errors import ConfigError

log = logging.getLogger(__name__)

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"  # what is fetched; it was tried with the page
# Of the package's 140 MB these two are needed; they are named so that every host knows their types.
FILES = {"dist/ort.wasm.bundle.min.mjs": "ort.js", "dist/ort-wasm-simd-threaded.wasm": "ort.wasm"}
_SECONDS = 600  # for npm
_INSTALL = f"npm install {PACKAGE}@{VERSION}"


@dataclass(frozen=True)
class WebRuntime:
    version: str
    files: dict[str, Path]  # by their names on the site


def find_runtime(folder: str | Path | None = None) -> WebRuntime:
    """`folder`: one with node_modules/onnxruntime-web, or that package itself. Else the cache, else npm."""
    if folder is not None:
        return _given(Path(folder))
    cache = cache_folder()
    if not _whole(cache):
        _fetch(cache)
    return _package(cache)


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "calibrant" / f"{PACKAGE}-{VERSION}"


def _given(folder: Path) -> WebRuntime:
    for place in (folder / "node_modules" / PACKAGE, folder / PACKAGE, folder):
        if (place / "package.json").is_file() and _name(place) == PACKAGE:
            if not _whole(place):
                missing = next(name for name in FILES if not (place / name).is_file())
                raise ConfigError(f"has no {missing}", where=place, fix=_INSTALL)
            return _package(place)
    raise ConfigError(
        f"no node_modules/{PACKAGE} here", where=f"--runtime {folder}", fix=f"run in that folder: {_INSTALL}"
    )


def _whole(place: Path) -> bool:
    return all((place / name).is_file() for name in (*FILES, "package.json"))


def _manifest(place: Path) -> dict[str, object]:
    try:
        found = json.loads((place / "package.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(place: Path) -> str:
    return str(_manifest(place).get("name"))


def _package(place: Path) -> WebRuntime:
    version = str(_manifest(place).get("version", "unknown"))
    return WebRuntime(version, {ours: place / theirs for theirs, ours in FILES.items()})


def _fetch(cache: Path) -> None:
    npm = shutil.which("npm")
    by_hand = f"where npm and a network are: {_INSTALL}; then pass --runtime FOLDER"
    if npm is None:
        raise ConfigError(f"{PACKAGE} is needed, and there is no npm here to fetch it", fix=by_hand)
    log.warning("fetching %s %s with npm (33 MB, once) into %s", PACKAGE, VERSION, cache)
    with tempfile.TemporaryDirectory() as folder:
        line = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts", "--pack-destination", folder]
        try:
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"npm did not fetch {PACKAGE} within {_SECONDS} s", fix=by_hand) from None
        packed = next(Path(folder).glob("*.tgz"), None)
        if done.returncode or packed is None:
            said = next((text for text in reversed(done.stderr.splitlines()) if text.strip()), "it said nothing")
            raise ConfigError(f"npm could not fetch {PACKAGE} ({said[:200]})", fix=by_hand)
        with tarfile.open(packed) as archive:  # npm has checked its hash
            for name in (*FILES, "package.json"):
                stream = archive.extractfile(f"package/{name}")
                if stream is None:
                    raise ConfigError(f"{PACKAGE} {VERSION} has no {name}", fix="update calibrant")
                write_bytes(cache / name, stream.read())
