"""A deployed file as a static folder that answers in a browser, also without a network.

    SITE/index.html, its modules and style    SITE/model.onnx    SITE/settings.json    SITE/onnxruntime/

The folder may hold other files (a host's own, a .git): those are left alone.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.atomic import replacing, write_bytes, write_json, write_text
from calibrant.errors import ConfigError
from calibrant.export.checks.inspection import check_intact
from calibrant.export.edit import retail
from calibrant.export.web.icon import icon
from calibrant.export.web.runtime import PACKAGE, WebRuntime, find_runtime
from calibrant.export.web.settings import page_settings

PAGE = Path(__file__).parent / "page"
MARKER = "settings.json"
MUCH = 100_000_000  # bytes of a model that many telephones do not hold in a page
TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".json": "application/json", ".wasm": "application/wasm", ".png": "image/png", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True)
class Site:
    folder: Path
    version: str
    model_bytes: int
    runtime_bytes: int
    page_bytes: int
    runtime_version: str
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return self.model_bytes + self.runtime_bytes + self.page_bytes

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "version": self.version, "bytes": self.bytes,
            "model_bytes": self.model_bytes, "runtime_bytes": self.runtime_bytes, "page_bytes": self.page_bytes,
            "runtime": f"{PACKAGE} {self.runtime_version}", "notes": list(self.notes),
        }  # fmt: skip


def export_web(
    model: str | Path,
    site: str | Path,
    *,
    runtime: str | Path | None = None,
    name: str | None = None,
    overwrite: bool = False,
) -> Site:
    """Writes the folder; `runtime` as `find_runtime` takes it, `name` in the place of the file's own."""
    source, site = OnnxFile.open(model), Path(site)
    card = source.card()
    check_intact(source, card)
    _check(card, source, site)
    if (site / MARKER).exists() and not overwrite:
        raise ConfigError("holds a site already", where=site, fix="pass --overwrite, or name another folder")
    found = find_runtime(runtime)
    site.mkdir(parents=True, exist_ok=True)
    notes = _copy_model(source, card, site / "model.onnx")
    file = OnnxFile.open(site / "model.onnx")
    models = ["model.onnx", *file.external_names()]
    title = name or (card.name if card.name != "model" else source.path.stem)
    version = _hash(*(site / m for m in models))[:12]
    settings = page_settings(file, file.card(), version=version, name=title)
    runtimes = _copy_runtime(found, site)
    pages = _write_page(site, file.card(), title, settings, found)
    _write_service_worker(site, [*pages, *runtimes, *models])
    parts = {"model": models, "runtime": runtimes, "page": [*pages, "service-worker.js"]}
    size = {part: sum((site / name).stat().st_size for name in names) for part, names in parts.items()}
    if size["model"] > MUCH:
        notes.append("the model is large for telephones: calibrant quantize makes a smaller one")
    return Site(site, version, size["model"], size["runtime"], size["page"], found.version, tuple(notes))


def _check(card: ModelCard, file: OnnxFile, site: Path) -> None:
    if not card.input.pictures:
        raise ConfigError("takes rows of numbers, and the page takes photos", where=file.path)
    if card.input.dtype not in ("uint8", "float32") or (card.input.dtype, card.input.layout) == ("float32", "NHWC"):
        raise ConfigError(
            f"takes {card.input.dtype} {card.input.layout}, which the page does not make", where=file.path
        )
    if site.is_file():
        raise ConfigError("is a file, and the site is a folder", where=site)


def _copy_model(source: OnnxFile, card: ModelCard, target: Path) -> list[str]:
    """What was changed on the way. Knobs that must be given stay at what the file's card says."""
    if target.exists() and target.samefile(source.path):
        raise ConfigError("is the site's own model", where=source.path, fix="keep the file elsewhere")
    if card.knobs == "required":
        retail(source, replace(card, knobs="baked"), "required knobs were folded in, for browsers", target)
        return ["the knobs that this file asks for were folded into its weights at the values of its card"]
    for data, name in zip(source.external_files(), source.external_names(), strict=True):
        _copy(data, target.parent / name)
    _copy(source.path, target)
    return []


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def _copy_runtime(runtime: WebRuntime, site: Path) -> list[str]:
    for name, path in runtime.files.items():
        _copy(path, site / "onnxruntime" / name)
    return [f"onnxruntime/{name}" for name in runtime.files]


def _write_page(site: Path, card: ModelCard, title: str, settings: Mapping[str, Any], runtime: WebRuntime) -> list[str]:
    written = []
    for path in sorted(PAGE.iterdir()):
        if path.suffix in (".js", ".css", ".html") and path.name != "service-worker.js":
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".html":
                text = text.replace("{{name}}", html.escape(title))
                text = text.replace("{{description}}", html.escape(card.description))
            write_text(site / path.name, text)
            written.append(path.name)
    for size in (192, 512):
        write_bytes(site / f"icon-{size}.png", icon(size))
    write_json(site / "manifest.json", {
        "name": title, "short_name": title[:12], "description": card.description, "id": "./", "start_url": "./",
        "scope": "./", "display": "standalone", "background_color": "#f7f8f7", "theme_color": "#14603f",
        "icons": [
            {"src": f"icon-{size}.png", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
            for size in (192, 512) for purpose in ("any", "maskable")
        ],
    })  # fmt: skip
    write_text(site / "licences.txt", _licences(card, runtime))
    write_json(site / MARKER, settings)
    return [*written, "icon-192.png", "icon-512.png", "manifest.json", "licences.txt", MARKER]


def _licences(card: ModelCard, runtime: WebRuntime) -> str:
    own = card.licence or "none is named in its file"
    by = f", by {card.author}" if card.author else ""
    return (
        f"The model {card.name}{by}. Licence: {own}.\n\n"
        "The page: Calibrant. Licence: Apache-2.0, https://www.apache.org/licenses/LICENSE-2.0\n\n"
        f"onnxruntime/: {PACKAGE} {runtime.version}, Copyright (c) Microsoft Corporation. Licence: MIT.\n\n{MIT}"
    )


def _write_service_worker(site: Path, names: list[str]) -> None:
    """Last, for it names what all other files must hold."""
    files = {
        n: {"bytes": (site / n).stat().st_size, "hash": _hash(site / n)[:16], "type": _type(n)} for n in sorted(names)
    }
    version = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:12]
    text = (PAGE / "service-worker.js").read_text(encoding="utf-8")
    text = text.replace("const FILES = {};", f"const FILES = {json.dumps(files, indent=2)};")
    text = text.replace('const VERSION = "";', f'const VERSION = "{version}";')
    write_text(site / "service-worker.js", text)


def _type(name: str) -> str:
    return TYPES.get(Path(name).suffix, "application/octet-stream")


def _hash(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
