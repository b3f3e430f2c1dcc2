"""The folder of a fit: what it was asked, which steps are done, and what each of them found.

A step writes its files first and then its line in fit.json, so that a run that was killed does again what was not
finished and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant.atomic import write_json
from calibrant.errors import ConfigError, DataError, FormatError

FILE = "fit.json"
FORMAT_VERSION = 1


class Project:
    """DIR with fit.json, features/, predictions/, calibrator.json, model.onnx, report.html ..."""

    def __init__(self, path: Path, settings: Mapping[str, Any], steps: dict[str, Any]) -> None:
        self.path, self.settings, self.steps = path, dict(settings), steps

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, Any], *, overwrite: bool) -> Project:
        """A new project, or the one that is there if it was asked the same."""
        file = path / FILE
        if path.exists() and not path.is_dir():
            raise ConfigError("is a file", where=path, fix="name a folder with --out")
        if path.is_dir() and any(path.iterdir()):
            if not file.is_file():
                raise ConfigError(
                    "is not empty and was not made by calibrant fit", where=path, fix="name another --out"
                )
            if not overwrite:
                return cls._go_on(path, settings)
            shutil.rmtree(path)
        project = cls(path, settings, {})
        project._write()
        return project

    @classmethod
    def _go_on(cls, path: Path, settings: Mapping[str, Any]) -> Project:
        block = read(path)
        asked = json.loads(json.dumps(settings))
        different = sorted(
            k for k in asked.keys() | block["settings"].keys() if asked.get(k) != block["settings"].get(k)
        )
        if different:
            was = ", ".join(f"{k} {block['settings'].get(k)}" for k in different)
            raise ConfigError(
                f"holds a fit with {was}",
                where=path,
                fix="ask the same to go on with it, name another --out, or throw it away with --overwrite",
            )
        return cls(path, settings, dict(block["steps"]))

    def done(self, step: str) -> dict[str, Any] | None:
        found = self.steps.get(step)
        return dict(found) if found is not None else None

    def finish(self, step: str, found: Mapping[str, Any]) -> dict[str, Any]:
        self.steps[step] = dict(found)
        self._write()
        return dict(found)

    def same_images(self, digest: str) -> None:
        """Refuse to go on with other images than it began with."""
        known = self.steps.get("data", {}).get("images_sha256")
        if known is not None and known != digest:
            raise DataError(
                "the images are not those that this fit began with",
                where=self.path,
                fix="start anew with --overwrite, or name another --out",
            )

    def _write(self) -> None:
        block = {"kind": "fit", "format_version": FORMAT_VERSION, "settings": self.settings, "steps": self.steps}
        write_json(self.path / FILE, block)


def read(path: Path) -> dict[str, Any]:
    """fit.json of a project."""
    try:
        block = json.loads((path / FILE).read_text())
        kind, version = block["kind"], int(block["format_version"])
        if kind != "fit" or not isinstance(block["steps"], dict) or not isinstance(block["settings"], dict):
            raise ValueError(kind)
    except (OSError, KeyError, TypeError, ValueError):
        raise FormatError("is not the record of a fit", where=path / FILE, fix="start anew with --overwrite") from None
    if version > FORMAT_VERSION:
        raise FormatError(
            f"format {version} is newer than this Calibrant reads", where=path / FILE, fix="update calibrant"
        )
    return dict(block)


def digest_of(names: Mapping[str, Any]) -> str:
    """Of names and labels of all images."""
    return hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
