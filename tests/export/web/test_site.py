"""The folder that is written, and the page in it: in Chromium, on fifty pictures, with and without a server."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from calibrant.artifacts.model_card import InputSpec
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.errors import ConfigError
from calibrant.export import export_onnx
from calibrant.export.cli import export
from calibrant.export.edit import relabel, restamp
from calibrant.export.web import runtime
from calibrant.export.web.site import PAGE, _check, export_web
from calibrant.images.decode import open_image
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.engine.classifier import load

from ...chromium import launched
from ...serve.tiny import write
from ..conftest import CLASSES, PRIOR
from ..conftest import pixels as noise

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "v1" / "deployed"
PATIENCE = 180_000  # milliseconds: a machine with other work is slow, not wrong
FILTERS = ("bilinear", "bicubic", "lanczos")
THRESHOLD = 0.6
SETS = {"0.1": {"kind": "lac", "threshold": 0.9}, "0.2": {"kind": "aps", "threshold": 0.8, "randomised": True}}


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder like npm's, with a package of the right names and no content."""
    package = tmp_path / "npm" / "node_modules" / runtime.PACKAGE
    for name in runtime.FILES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("// nothing")
    (package / "package.json").write_text(json.dumps({"name": runtime.PACKAGE, "version": "1.99.0"}))
    return tmp_path / "npm"


def test_the_command_writes_a_site_and_says_how_large_it_is(deployed: Path, fake: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / ".git").mkdir(parents=True)  # a folder that a host looks after
    line = ["web", str(deployed), str(site), "--runtime", str(fake), "--name", "Trees <&> more"]
    done = CliRunner().invoke(export, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    files = [p for p in site.rglob("*") if p.is_file()]
    assert f"{sum(p.stat().st_size for p in files) / 1e6:.1f} MB" in done.output
    assert "onnxruntime-web 1.99.0" in done.output
    assert (site / "model.onnx").read_bytes() == deployed.read_bytes()
    assert (site / ".git").is_dir()
    page = (site / "index.html").read_text()
    assert "<h1>Trees &lt;&amp;&gt; more</h1>" in page
    assert "{{" not in page
    manifest = json.loads((site / "manifest.json").read_text())
    assert (manifest["name"], manifest["display"]) == ("Trees <&> more", "standalone")
    assert all((site / icon["src"]).is_file() for icon in manifest["icons"])
    assert "Copyright (c) Microsoft Corporation" in (site / "licences.txt").read_text()


def test_the_service_worker_keeps_every_file_and_knows_each_by_its_content(
    deployed: Path, fake: Path, tmp_path: Path
) -> None:
    def kept(site: Path) -> tuple[dict[str, Any], str]:
        text = (site / "service-worker.js").read_text()
        found = re.search(r"const FILES = (\{.+?\n\});", text, re.DOTALL)
        version = re.search(r'const VERSION = "(\w+)";', text)
        assert found is not None
        assert version is not None
        return json.loads(found[1]), version[1]

    site = tmp_path / "site"
    export_web(deployed, site, runtime=fake)
    files, version = kept(site)
    on_disk = {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()}
    assert set(files) == on_disk - {"service-worker.js"}
    assert all(files[name]["bytes"] == (site / name).stat().st_size for name in files)
    export_web(deployed, site, runtime=fake, name="other", overwrite=True)
    again, other = kept(site)
    assert other != version
    changed = {name for name in files if again[name]["hash"] != files[name]["hash"]}
    assert changed == {"index.html", "manifest.json", "settings.json"}
    # No file asks another host, and the page forbids it.
    for path in site.rglob("*"):
        if path.suffix in (".js", ".css", ".html") and path.name != "ort.js":
            assert not re.search(r"https?://", path.read_text()), path
    assert "default-src 'none'" in (site / "index.html").read_text()


def test_the_package_holds_all_of_the_page() -> None:
    told = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert told["package-data"]["calibrant.export.web"] == ["page/*"]
    assert all(path.is_file() for path in PAGE.iterdir())


def test_a_site_is_replaced_only_when_told(
    deployed: Path, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALIBRANT_OVERWRITE")
    line = ["web", str(deployed), str(tmp_path / "site"), "--runtime", str(fake)]
    assert CliRunner().invoke(export, line).exit_code == 0
    assert "holds a site already; pass --overwrite" in str(CliRunner().invoke(export, line).exception)
    assert CliRunner().invoke(export, [*line, "--overwrite", "--json"]).exit_code == 0
    with pytest.raises(ConfigError, match="is a file"):
        export_web(deployed, deployed, runtime=fake)
    with pytest.raises(ConfigError, match="the site's own model"):
        export_web(tmp_path / "site" / "model.onnx", tmp_path / "site", runtime=fake, overwrite=True)


def test_knobs_that_must_be_given_are_folded_in(variant: Any, fake: Path, tmp_path: Path) -> None:
    fitted = Calibrator("temperature", len(CLASSES), {"temperature": 1.7})
    path, _ = variant(knobs="required", calibrator=fitted, adjust=0.5)
    done = export_web(path, tmp_path / "site", runtime=fake)
    assert "folded" in done.notes[0]
    copy = tmp_path / "site" / "model.onnx"
    assert OnnxFile.open(copy).card().knobs == "baked"
    images = noise(6)
    np.testing.assert_allclose(
        load(copy).predict(images).probabilities, load(path).predict(images).probabilities, atol=1e-6
    )


def test_rows_of_numbers_are_refused(deployed: Path, fake: Path, tmp_path: Path) -> None:
    file = OnnxFile.open(deployed)
    with pytest.raises(ConfigError, match="rows of numbers"):
        _check(replace(file.card(), input=InputSpec("rows", "float32", "NF")), file, tmp_path)
    with pytest.raises(ConfigError, match="float16 NCHW"):
        _check(replace(file.card(), input=InputSpec("images", "float16", "NCHW")), file, tmp_path)


# ---- the page itself ----


@dataclass
class Host:
    """A plain static host, as python -m http.server is one, that remembers what it was asked for."""

    folder: Path
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def up(self) -> Iterator[str]:
        asked = self.asked

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                asked.append(self.path)

        make = functools.partial(Handler, directory=str(self.folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", self.port), make) as server:
            self.port = server.server_port
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{self.port}/"
            finally:
                server.shutdown()
                thread.join()


@dataclass
class Seen:
    """What the page shows of one picture."""

    verdict: str
    probabilities: NDArray[np.float32]
    pixels: NDArray[np.uint8]
    members: str


class Page:
    """The site in a browser, used by its own buttons. (Its policy forbids the driver's waiting for expressions.)"""

    def __init__(self, browser: Any, address: str, *, kept: bool = True, ready: bool = True, **options: Any) -> None:
        """`kept`: for use without a network. `ready`: it is waited for."""
        workers = "allow" if kept else "block"
        self.context = browser.new_context(viewport={"width": 1400, "height": 1000}, service_workers=workers, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(m.text))
        self.context.on("request", lambda r: r.url.startswith((address, "blob:")) or self.foreign.append(r.url))
        self.page.goto(address)
        if kept and ready:
            self.ready()

    def ready(self) -> None:
        self.page.locator("#status", has_text=re.compile(r"^Ready\. Works without")).wait_for()

    def ask(self, path: Path) -> None:
        self.page.set_input_files("#files input", str(path))
        self.page.locator("body:not([aria-busy])").wait_for()

    def shown(self, classes: tuple[str, ...]) -> Seen:
        """What stands on the page."""
        rows, found = self.page.evaluate("""() => {
            const rows = [...document.querySelectorAll('#all li')].map(
                (li) => [li.querySelector('span').textContent, li.querySelector('data').value]);
            const { width, height } = document.getElementById('seen');
            const { data } = document.getElementById('seen').getContext('2d').getImageData(0, 0, width, height);
            const text = (id) => document.getElementById(id).textContent;
            return [rows, [text('verdict'), [...data], width, height, text('members')]];
        }""")
        by_name = {name: float(value) for name, value in rows}
        verdict, data, width, height, members = found
        rgba = np.array(data, np.uint8).reshape(height, width, 4)
        return Seen(verdict, np.float32([by_name[c] for c in classes]), rgba[..., :3], members)

    def answers(self, paths: list[Path], site: str = ".") -> list[dict[str, Any]]:
        """What the worker of the site in that folder answers to all of these."""
        self.page.evaluate("""() => document.getElementById('many') || document.body.append(
            Object.assign(document.createElement('input'), { type: 'file', multiple: true, id: 'many' }))""")
        self.page.set_input_files("#many", [str(path) for path in paths])
        found: list[dict[str, Any]] = self.page.evaluate(
            """(site) => new Promise((resolve, reject) => {
            const worker = new Worker(`${site}/classifier.js`, { type: 'module' });
            const files = [...document.getElementById('many').files];
            const answers = [];
            worker.onmessage = ({ data: { id, answer, error, failed } }) => {
                if (error || failed) reject(new Error(`${files[id]?.name}: ${error ?? failed}`));
                if (answer === undefined) return;
                const { probabilities, abstained, label, sets, seen } = answer;
                answers[id] = { probabilities: [...probabilities], abstained, label, sets, pixels: [...seen.data] };
                if (id === files.length - 1) { worker.terminate(); resolve(answers); }
            };
            worker.onerror = reject;
            files.forEach((blob, id) => worker.postMessage({ id, blob }));
        })""",
            site,
        )
        return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def npm() -> Path:
    """The real runtime, from the user's cache or npm."""
    before = runtime._SECONDS
    runtime._SECONDS = 120
    try:
        runtime.find_runtime()
    except ConfigError as error:
        pytest.skip(str(error))
    finally:
        runtime._SECONDS = before
    return runtime.cache_folder()


def screenshots(page: Any, name: str, fallback: Path) -> None:
    """Saved below CALIBRANT_SCREENSHOTS, to be looked at; nothing may be wider than a telephone."""
    folder = Path(os.environ.get("CALIBRANT_SCREENSHOTS", fallback))
    folder.mkdir(parents=True, exist_ok=True)
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=str(folder / f"web-{name}-{width}-{scheme}.png"), full_page=True)
        assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.set_viewport_size({"width": 1400, "height": 1000})


@pytest.fixture(scope="module")
def model(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated, adjusted, with sets and a threshold, for pictures of 48 x 40."""
    path = tmp_path_factory.mktemp("model") / "trees.onnx"
    card = export_onnx(
        tiny, path, class_names=CLASSES, preprocessing=Preprocessing((40, 48), 46), train_prior=PRIOR, adjust=1.0,
        calibrator=Calibrator("temperature", len(CLASSES), {"temperature": 0.8}),
    )  # fmt: skip
    restamp(path, replace(card, conformal=SETS, abstain_below=THRESHOLD))
    return path


@pytest.mark.slow  # 10 s
@pytest.mark.parametrize("interpolation", FILTERS)
def test_fifty_pictures_have_the_servers_pixels_and_probabilities(
    interpolation: Any, model: Path, pictures: list[Path], npm: Path, chromium: Any, tmp_path: Path
) -> None:
    copy, card = tmp_path / "m.onnx", OnnxFile.open(model).card()
    shutil.copy(model, copy)
    preprocessing = replace(card.preprocessing, interpolation=interpolation)
    restamp(copy, replace(card, preprocessing=preprocessing))
    export_web(copy, tmp_path / "site", runtime=npm)
    with Host(tmp_path / "site").up() as address:
        page = Page(chromium, address, kept=False)
        found = page.answers(pictures)
        page.context.close()
    assert page.foreign == []
    expected = load(copy).predict(pictures, coverage=0.9)
    for picture, answer in zip(pictures, found, strict=True):
        pixels = preprocessing.pixels(open_image(picture))
        np.testing.assert_array_equal(answer["pixels"], pixels.reshape(-1), err_msg=picture.name)
    worst = np.abs(np.float32([a["probabilities"] for a in found]) - expected.probabilities).max()
    print(f"{interpolation}: {len(found)} pictures, largest difference of a probability {worst:.1e}")  # noqa: T201
    assert worst <= 1e-5
    assert [a["label"] for a in found] == expected.labels.tolist()
    assert [a["abstained"] for a in found] == expected.abstained.tolist()
    assert 0 < expected.abstained.sum() < len(pictures)
    members = [next(s["members"] for s in a["sets"] if s["coverage"] == 0.9) for a in found]
    assert [tuple(CLASSES[k] for k in row) for row in members] == list(expected.sets())


@pytest.mark.slow  # 10 s
def test_every_kind_of_file_answers_as_on_the_server(
    pictures: list[Path], npm: Path, chromium: Any, tmp_path: Path
) -> None:
    """A transformer with reduced tokens, knobs of both kinds, a float input, int8, a fixed batch, weights beside it."""
    models = {p.stem: p for p in sorted(GOLDEN.glob("*.onnx"))}
    models["fixed"] = write(tmp_path / "fixed.onnx", batch=3)
    models["beside"] = tmp_path / "beside.onnx"
    network = onnx.load(write(tmp_path / "plain.onnx"))
    onnx.save(network, models["beside"], save_as_external_data=True, location="beside.data", size_threshold=0)
    assert {"baked", "runtime", "sets", "isotonic", "int8"} < set(models)
    for name, path in models.items():
        export_web(path, tmp_path / "sites" / name, runtime=npm)
    asked, worst = pictures[::9], {}
    with Host(tmp_path / "sites").up() as address:
        page = Page(chromium, f"{address}baked/", kept=False)
        for name, path in models.items():
            got = np.float32([a["probabilities"] for a in page.answers(asked, f"../{name}")])
            worst[name] = float(np.abs(got - load(path).predict(asked).probabilities).max())
        page.context.close()
    print("largest difference of a probability:", worst)  # noqa: T201
    # Other processors round eight bits elsewhere, and another token may be dropped for it.
    assert worst.pop("int8") <= 5e-3
    assert max(worst.values()) <= 1e-5


@pytest.mark.slow  # 8 s
def test_the_page_answers_and_goes_on_without_a_server(
    model: Path, pictures: list[Path], npm: Path, chromium: Any, tmp_path: Path
) -> None:
    export_web(model, tmp_path / "site", runtime=npm)
    expected, host, before = load(model).predict(pictures, coverage=0.9), Host(tmp_path / "site"), []
    sure, unsure = int(np.argmax(expected.confidence)), int(np.argmin(expected.confidence))
    with host.up() as address:
        page = Page(chromium, address)
        assert page.page.locator("#camera").is_hidden()
        asked_by_chromium = page.context.new_cdp_session(page.page)
        errors = asked_by_chromium.send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert {error["errorId"] for error in errors} <= {"in-incognito"}  # as every page of a test is
        for n in (sure, unsure):
            page.ask(pictures[n])
            shown = page.shown(CLASSES)
            before.append(shown)
            assert shown.verdict == ("I don't know" if expected.abstained[n] else expected.names[n])
            assert shown.members.startswith(" or ".join(_joined(expected.sets()[n])) + ". At least 90\u00a0%")
            np.testing.assert_allclose(shown.probabilities, expected.probabilities[n], atol=1e-5)
            np.testing.assert_array_equal(shown.pixels, Preprocessing((40, 48), 46).pixels(open_image(pictures[n])))
            screenshots(page.page, "sure" if n == sure else "unsure", tmp_path)
    assert [s.verdict == "I don't know" for s in before] == [False, True]
    asked = len(host.asked)
    page.context.set_offline(True)
    page.page.reload()
    page.ready()
    for n, shown in zip((sure, unsure), before, strict=True):
        page.ask(pictures[n])
        again = page.shown(CLASSES)
        assert again.verdict == shown.verdict
        np.testing.assert_array_equal(again.probabilities, shown.probabilities)
    assert len(host.asked) == asked
    assert (page.errors, page.foreign) == ([], [])
    page.context.close()


# A page that is told of a newer version when that has come already.
BUSY = """
const listen = EventTarget.prototype.addEventListener;
ServiceWorkerRegistration.prototype.addEventListener = function (kind, heard) {
  listen.call(this, kind, () => setTimeout(heard, 3000));
};
"""


@pytest.mark.slow  # 8 s
@pytest.mark.parametrize("busy", [False, True])
def test_a_newer_version_is_offered_and_brings_only_what_changed(
    deployed: Path, pictures: list[Path], npm: Path, chromium: Any, tmp_path: Path, *, busy: bool
) -> None:
    site, model = tmp_path / "site", tmp_path / "m.onnx"
    export_web(deployed, site, runtime=npm)
    host = Host(site)
    with host.up() as address:
        whole = (site / "model.onnx").read_bytes()
        (site / "model.onnx").write_text("<html>Please log in</html>")  # as some networks answer everything at first
        page = Page(chromium, address, ready=False, has_touch=True, is_mobile=True)
        page.page.locator("#status", has_text="could not be loaded").wait_for()
        (site / "model.onnx").write_bytes(whole)
        page.page.reload()
        page.ready()
        page.errors.clear()
        camera = page.page.locator("#camera input")
        assert page.page.locator("#camera").is_visible()
        assert camera.get_attribute("capture") == "environment"
        camera.set_input_files(str(pictures[0]))
        page.page.locator("body:not([aria-busy])").wait_for()
        old = page.page.inner_text("#verdict")
        assert old in CLASSES
        relabel(deployed, [f"new {c}" for c in CLASSES], out=model)
        export_web(model, site, runtime=npm, overwrite=True)
        host.asked.clear()
        page.page.add_init_script(BUSY if busy else "")
        page.page.reload()
        page.page.get_by_role("button", name="Use it").click()
        page.page.locator("#news").wait_for(state="hidden")
        page.ready()
        page.ask(pictures[0])
        assert page.page.inner_text("#verdict") == f"new {old}"
        fetched = {name.strip("/") for name in host.asked}
        assert {"model.onnx", "settings.json"} <= fetched
        assert not {"onnxruntime/ort.wasm", "app.js", "style.css"} & fetched
        assert page.errors == []
        # What is no picture is said, and the next one is answered.
        tiff, cut = b"II*\0" + bytes(40), pictures[0].read_bytes()[:70]
        for name, data, said in (
            ("a.jpg", b"no", "no picture"),
            ("a.tif", tiff, "cannot read TIFF"),
            ("a.png", cut, "damaged"),
        ):
            (tmp_path / name).write_bytes(data)
            page.ask(tmp_path / name)
            assert said in page.page.inner_text("#status")
            assert page.page.locator("#result").is_hidden()
        page.ask(pictures[0])
        assert page.page.inner_text("#verdict") == f"new {old}"
        screenshots(page.page, "phone", tmp_path)
        page.context.close()


def _joined(names: tuple[str, ...]) -> list[str]:
    """ "a, b" and "c", as the page writes "a, b or c"."""
    return [", ".join(names[:-1]), names[-1]] if len(names) > 1 else [*names]
