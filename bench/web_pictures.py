"""The picture of docs/web.md: a demo's model on a phone, once sure and once not, without a network.

    calibrant demo
    python bench/web_pictures.py calibrant-demo

Needs npm, playwright and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from calibrant.export.edit import set_threshold
from calibrant.export.web.site import export_web
from calibrant.images.layouts import list_images
from calibrant.serve.engine.classifier import load

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "web.png"
THRESHOLD = 0.5
PATIENCE = 300_000  # milliseconds


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


def two(demo: Path, model: Path) -> list[Path]:
    """A test picture that is answered rightly and surely, and one that is not answered."""
    images = list_images(demo / "images" / "test").whole()
    files = [Path(str(f)) for f in images.files or ()]
    found = load(model).predict(files)
    right = np.array([f.parent.name == name for f, name in zip(files, found.names, strict=True)])
    return [files[int(np.argmax(right * found.confidence))], files[int(np.argmin(found.confidence))]]


def photographs(site: Path, pictures: list[Path], folder: Path) -> list[Image.Image]:
    from playwright.sync_api import sync_playwright

    shots = []
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": 390, "height": 900}, has_touch=True, is_mobile=True, device_scale_factor=1.5
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        ready = page.locator("#status", has_text=re.compile(r"^Ready\. Works without"))
        ready.wait_for()
        server.shutdown()
        context.set_offline(True)
        page.reload()
        ready.wait_for()
        for n, (picture, scheme) in enumerate(zip(pictures, ("light", "dark"), strict=True)):
            page.emulate_media(color_scheme=scheme)
            page.set_input_files("#camera input", str(picture))
            page.locator("body:not([aria-busy])").wait_for()
            page.evaluate("() => scrollTo(0, 0)")
            page.screenshot(path=str(folder / f"{n}.png"))
            shots.append(Image.open(folder / f"{n}.png").convert("RGB"))
        browser.close()
    return shots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path)
    demo = parser.parse_args().demo
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        set_threshold(demo / "model.onnx", THRESHOLD, out=folder / "leaves.onnx")
        export_web(folder / "leaves.onnx", folder / "site", name="Leaves")
        shots = photographs(folder / "site", two(demo, folder / "leaves.onnx"), folder)
        gap = 24
        whole = Image.new("RGB", (sum(s.width for s in shots) + gap, shots[0].height), "#888888")
        for n, shot in enumerate(shots):
            whole.paste(shot, (n * (shot.width + gap), 0))
        whole.quantize(200).save(OUT, optimize=True)
    print(f"wrote {OUT}: {OUT.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
