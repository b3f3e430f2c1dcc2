"""The page's modules in Node: Pillow's pixels to the last bit, and PNGs as the server reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from calibrant.export.web.site import PAGE
from calibrant.images.decode import open_image
from calibrant.images.preprocessing import Preprocessing

from .conftest import png

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
FILTERS = ("bilinear", "bicubic", "lanczos", "hamming", "box", "nearest")


class Node:
    """A folder with the page's modules, in which pieces of JavaScript run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in PAGE.glob("*.js"):
            shutil.copy(path, folder)
        (folder / "package.json").write_text('{"type": "module"}')

    def run(self, script: str) -> Any:
        """What the script prints, as JSON."""
        (self.folder / "script.mjs").write_text(script)
        done = subprocess.run(["node", "script.mjs"], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def bytes(self, name: str) -> NDArray[np.uint8]:
        return np.frombuffer((self.folder / name).read_bytes(), np.uint8)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def cases() -> list[tuple[int, int, Preprocessing]]:
    rng = np.random.default_rng(0)
    # Tall and flat ones, in which Pillow changes the order of its passes, and sizes that need no resize at all.
    sides = [(300, 400), (231, 777), (37, 900), (900, 37), (1, 60), (60, 1), (1, 1), (64, 64), (301, 299)]
    sides += [(int(w), int(h)) for w, h in rng.integers(20, 500, (3, 2))]
    shapes = [((112, 112), 128, "center"), ((48, 80), 64, "center"), ((50, 60), 64, "squash"), ((48, 80), 52, "cover"),
              ((64, 64), 300, "center"), ((64, 64), 64, "center")]  # fmt: skip
    return [(w, h, Preprocessing(*shape, interpolation=f)) for w, h in sides for shape in shapes for f in FILTERS]  # type: ignore[arg-type]


def test_pixels_are_pillows_to_the_bit(node: Node) -> None:
    """Of pure noise, by every filter, crop and order of passes."""
    rng = np.random.default_rng(1)
    jobs, expected, noise = [], [], {}
    for n, (width, height, preprocessing) in enumerate(cases()):
        if (width, height) not in noise:
            pixels = noise[width, height] = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            (node.folder / f"{width}x{height}.rgb").write_bytes(pixels.tobytes())
            rgba = np.dstack([pixels, rng.integers(0, 256, (height, width), dtype=np.uint8)])
            (node.folder / f"{width}x{height}.rgba").write_bytes(rgba.tobytes())
        step = 3 + n % 2  # four bytes a pixel are what a canvas gives
        jobs.append({"width": width, "height": height, "step": step, "preprocessing": preprocessing.to_dict()})
        expected.append(preprocessing.pixels(Image.fromarray(noise[width, height])))
    (node.folder / "jobs.json").write_text(json.dumps(jobs))
    node.run(
        """
        import { readFileSync, writeFileSync } from "node:fs";
        import { pixels } from "./transform.js";
        const jobs = JSON.parse(readFileSync("jobs.json"));
        jobs.forEach(({ width, height, step, preprocessing }, n) => {
          const data = new Uint8Array(readFileSync(`${width}x${height}.${step === 3 ? "rgb" : "rgba"}`));
          writeFileSync(`${n}.out`, pixels({ width, height, step, data }, preprocessing, ORDERED).data);
        });
        console.log(jobs.length);
    """.replace("ORDERED", "true" if int(Image.__version__.split(".")[0]) >= 13 else "false")
    )
    wrong = [n for n, want in enumerate(expected) if not np.array_equal(node.bytes(f"{n}.out"), want.reshape(-1))]
    assert [cases()[n] for n in wrong] == []


def test_a_float_input_is_normalised_as_in_numpy(node: Node) -> None:
    rng = np.random.default_rng(2)
    preprocessing = Preprocessing((8, 9), 9, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    pixels = rng.integers(0, 256, (8, 9, 3), dtype=np.uint8)
    (node.folder / "in.rgb").write_bytes(pixels.tobytes())
    got = node.run(f"""
        import {{ readFileSync }} from "node:fs";
        import {{ modelInput }} from "./transform.js";
        const rgb = new Uint8Array(readFileSync("in.rgb"));
        const spec = {json.dumps(preprocessing.to_dict())};
        const kinds = [["float32", "NCHW"], ["uint8", "NCHW"], ["uint8", "NHWC"]];
        console.log(JSON.stringify(kinds.map(([dtype, layout]) => [...modelInput(rgb, {{ dtype, layout }}, spec)])));
    """)
    np.testing.assert_array_equal(np.float32(got[0]), preprocessing.normalise(pixels).reshape(-1))
    np.testing.assert_array_equal(got[1], pixels.transpose(2, 0, 1).reshape(-1))
    np.testing.assert_array_equal(got[2], pixels.reshape(-1))


KINDS = (
    [(0, d) for d in (1, 2, 4, 8, 16)] + [(3, d) for d in (1, 2, 4, 8)] + [(k, d) for k in (2, 4, 6) for d in (8, 16)]
)


def test_a_png_is_read_as_the_server_reads_it(node: Node, pictures: list[Path]) -> None:
    """All fifteen kinds of samples, whole and interlaced, and what Pillow writes."""
    files = [p for p in pictures if p.suffix == ".png"]
    for kind, depth in KINDS:
        for interlaced in (False, True):
            path = node.folder / f"{kind}-{depth}-{interlaced}.png"
            path.write_bytes(png(kind, depth, 37, 21, interlaced=interlaced, seed=kind + depth))
            files.append(path)
    tiny = node.folder / "tiny.png"
    tiny.write_bytes(png(2, 8, 1, 3, interlaced=True))  # six of its seven passes are empty or narrow
    files.append(tiny)
    sizes = node.run(f"""
        import {{ readFileSync, writeFileSync }} from "node:fs";
        import {{ decodePng }} from "./png.js";
        const sizes = [];
        for (const [n, path] of {json.dumps([str(f) for f in files])}.entries()) {{
          const {{ width, height, data }} = await decodePng(new Uint8Array(readFileSync(path)), 1e8);
          writeFileSync(`${{n}}.out`, data);
          sizes.push([width, height]);
        }}
        console.log(JSON.stringify(sizes));
    """)
    for n, path in enumerate(files):
        want = open_image(path)
        assert tuple(sizes[n]) == want.size, path.name
        np.testing.assert_array_equal(node.bytes(f"{n}.out"), np.asarray(want).reshape(-1), err_msg=path.name)


def test_a_damaged_png_is_refused_and_not_guessed(node: Node) -> None:
    whole = png(2, 8, 40, 30)
    (node.folder / "cut.png").write_bytes(whole[: len(whole) * 2 // 3])
    (node.folder / "bad.png").write_bytes(whole[:60] + bytes(30) + whole[90:])
    (node.folder / "large.png").write_bytes(whole)
    said = node.run("""
        import { readFileSync } from "node:fs";
        import { decodePng } from "./png.js";
        const said = [];
        for (const [name, most] of [["cut", 1e8], ["bad", 1e8], ["large", 1199]]) {
          const bytes = new Uint8Array(readFileSync(`${name}.png`));
          said.push(await decodePng(bytes, most).then(() => "read", (error) => error.name));
        }
        console.log(JSON.stringify(said));
    """)
    assert said[2] == "RangeError"
    assert "read" not in said


def test_sets_and_doubt_are_the_servers(node: Node) -> None:
    """Every kind of set, with limits for each class, without any, sharpened; a threshold that float32 rounds."""
    from calibrant.artifacts.model_card import ModelCard
    from calibrant.serve.engine.deployed_formula import DeployedFormula
    from calibrant.serve.engine.knobs import Knobs
    from calibrant.serve.engine.result import answer

    rng = np.random.default_rng(3)
    logits = (2.5 * rng.normal(size=(40, 6))).astype(np.float32)
    blocks: dict[str, dict[str, Any]] = {
        "0.05": {"kind": "lac", "threshold": 0.93},
        "0.1": {"kind": "aps", "threshold": 0.9, "randomised": True},
        "0.15": {"kind": "raps", "threshold": 0.95, "penalty": 0.02, "rank": 2, "temperature": 1.7},
        "0.2": {"kind": "lac", "threshold": 0.9, "class_thresholds": [0.5, None, 0.7, 0.2, 0.9, 0.99]},
        "0.25": {"kind": "lac", "threshold": None},
    }
    card = ModelCard(tuple("abcdef"), Preprocessing((8, 8), 8), conformal=blocks, abstain_below=0.55)
    from calibrant.export.web.settings import prediction_sets

    settings = {"independent": False, "abstain_below": 0.55, "ood_threshold": None, "sets": prediction_sets(card)}
    got = node.run(f"""
        import {{ answer }} from "./answer.js";
        const rows = {json.dumps(logits.tolist())};
        const found = rows.map((logits) => answer({{ logits: Float32Array.from(logits) }}, {json.dumps(settings)}));
        console.log(JSON.stringify(found.map((f) => ({{ ...f, probabilities: [...f.probabilities] }}))));
    """)
    formula = DeployedFormula.of(card)
    plain = answer(card, formula, {"logits": logits}, Knobs())
    np.testing.assert_allclose([f["probabilities"] for f in got], plain.probabilities, atol=1e-7)
    assert [f["label"] for f in got] == plain.labels.tolist()
    assert [f["abstained"] for f in got] == plain.abstained.tolist()
    assert 0 < plain.abstained.sum() < 40
    assert [s["coverage"] for s in got[0]["sets"]] == [0.95, 0.9, 0.85, 0.8, 0.75]
    for i, coverage in enumerate((0.95, 0.9, 0.85, 0.8, 0.75)):
        want = answer(card, formula, {"logits": logits}, Knobs(coverage=coverage)).sets()
        assert [tuple(card.classes[k] for k in f["sets"][i]["members"]) for f in got] == list(want), coverage


def test_the_golden_rows_are_asked_for_as_everywhere(node: Node) -> None:
    from calibrant.artifacts.golden_rows import questions
    from calibrant.artifacts.model_card import InputSpec, ModelCard

    preprocessing = Preprocessing((29, 37), 40)
    for spec in (InputSpec(), InputSpec("images", "float32", "NCHW")):
        card = ModelCard(("a", "b"), preprocessing, input=spec)
        settings = {
            "preprocessing": preprocessing.to_dict(),
            "input": {"dtype": spec.dtype, "layout": spec.layout},
            "golden": {"classes": [[1, 0]] * 4, "probabilities": [[0.75, 0.25]] * 4, "tolerance": 0.002},
        }
        agrees, near, far, none, asked = node.run(f"""
            import {{ agreesWithGolden }} from "./golden.js";
            const asked = [];
            const giving = (...probabilities) => async (values) => (asked.push([...values]), {{ probabilities }});
            const settings = {json.dumps(settings)};
            const said = [];
            for (const p of [[0.25, 0.75], [0.2515, 0.7485], [0.26, 0.74], [NaN, 0.75]]) {{
              said.push(await agreesWithGolden(giving(...p), settings));
            }}
            console.log(JSON.stringify([...said, asked.slice(0, 4)]));
        """)
        np.testing.assert_array_equal(np.float32(asked), questions(card).reshape(4, -1))
        assert (agrees, near, far, none) == (True, True, False, False)


def test_what_the_page_says(node: Node) -> None:
    base: dict[str, Any] = {"classes": ["ash", "elm"], "abstain_below": 0.6, "calibrator": "temperature"}
    found: dict[str, Any] = {"label": 1, "confidence": 0.874, "abstained": False, "present": None}
    several = {**found, "present": [1, 0]}
    script = f"""
        import {{ members, sentence, share, verdict, warnings }} from "./words.js";
        const say = (found, settings) => [verdict(found, settings), sentence(found, settings), warnings(found)];
        const [base, found, several] = [{json.dumps(base)}, {json.dumps(found)}, {json.dumps(several)}];
        console.log(JSON.stringify([
          say(found, base), say({{ ...found, abstained: true, unusual: true }}, base),
          say({{ ...found, transparent: true }}, {{ ...base, calibrator: null }}), say(several, base),
          say({{ ...several, present: [] }}, base), [1, 0, 0.12345].map(share),
          [members({{ coverage: 0.9, members: [1, 0] }}, base), members({{ coverage: 0.975, members: [1] }}, base)],
        ]));
    """
    # Between a number and its unit a line does not break.
    said = json.loads(json.dumps(node.run(script)).replace("\\u00a0%", " %"))
    sure, unsure, raw, both, none, shares, sets = said
    assert sure == ["elm", "87.4 % sure: of answers like this, about 87 of 100 are right, on photos like those that it "
                    "was tested on.", ""]  # fmt: skip
    assert unsure[0] == "I don't know"
    assert unsure[1].startswith("Most likely it is elm, with 87.4 %. Under 60.0 %")
    assert "unlike" in unsure[2]
    assert raw[1] == "87.4 % sure. This model's probabilities were not calibrated."
    assert "PNG" in raw[2]
    assert (both[0], none[0]) == ("elm, ash", "None of the labels")
    assert shares == ["over 99.9 %", "under 0.1 %", "12.3 %"]
    assert sets == ["elm or ash. At least 90 % of such lists hold the right class.",
                    "elm. At least 97.5 % of such lists hold the right class."]  # fmt: skip
