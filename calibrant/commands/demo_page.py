"""The demo's report: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from calibrant.artifacts.predictions import Predictions
    from calibrant.calibration import Calibrator
    from calibrant.commands.demo import Demo
    from calibrant.commands.demo_traffic import Traffic

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6672; --line: #d9dee4; --page: #fff; --box: #f5f7f9;
        --accent: #1f6fb5 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a2abb5; --line: #38424d; --page: #12171c;
        --box: #1b2229; --accent: #4c9be8 } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
       max-width: 62rem; padding: 2rem 1.2rem 4rem }
h1 { font-size: 1.9rem; margin: 0 0 .3rem } h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem }
p.lead { color: var(--soft); margin-top: 0 } img { max-width: 100%; height: auto; border-radius: 6px }
figure { margin: 0; background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: .6rem }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .45rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } thead th { color: var(--soft); font-weight: 600 }
td small { color: var(--soft) } tr.deployed td { font-weight: 600 }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto;
      font-size: .86rem } dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem }
dt { color: var(--soft) } dd { margin: 0 } .answer { display: flex; gap: 1.2rem; align-items: start; flex-wrap: wrap }
.answer img { width: 128px; image-rendering: pixelated } .answer pre { flex: 1; margin: 0; min-width: 16rem }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr } dd { margin-bottom: .5rem } }
"""


@dataclass(frozen=True)
class Row:
    """One line of the table: a stage of the pipeline and what was measured after it."""

    name: str
    accuracy: str
    balanced: str
    nll: str
    ece: str
    interval: str
    null: str

    HEADERS: ClassVar[tuple[str, ...]] = (
        "stage",
        "accuracy %",
        "balanced %",
        "NLL",
        "ECE %",
        "95 % interval",
        "null %",
    )

    @classmethod
    def of(cls, name: str, evaluation: Any) -> Row:
        m = evaluation.metrics
        ece = m["ece"]
        return cls(
            name,
            f"{100 * m['accuracy'].value:.1f}",
            f"{100 * m['balanced_accuracy'].value:.1f}",
            f"{m['nll'].value:.3f}",
            f"{100 * ece.value:.2f}",
            f"[{100 * ece.low:.2f}, {100 * ece.high:.2f}]",
            f"{100 * ece.null:.2f}",
        )

    def cells(self) -> tuple[str, ...]:
        return self.name, self.accuracy, self.balanced, self.nll, self.ece, self.interval, self.null


def page(
    rows: Sequence[Row], *, figure: bytes, sheet: bytes, example: Mapping[str, Any], facts: Mapping[str, str]
) -> str:
    """The report; every string from outside is escaped, pictures are inside the file."""
    head = "".join(f"<th>{escape(h)}</th>" for h in Row.HEADERS)
    last = len(rows) - 1
    body = "".join(
        f"<tr{' class=deployed' if i == last else ''}>"
        + "".join(f"<td>{escape(c)}</td>" for c in row.cells())
        + "</tr>"
        for i, row in enumerate(rows)
    )
    answer = escape(json.dumps(example["answer"], indent=2, ensure_ascii=False))
    sent = _uri(example["image"].read_bytes())
    known = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Calibrant demo</title><style>{_STYLE}</style></head><body>
<h1>Calibrant demo</h1>
<p class="lead">From images to a served prediction whose confidence can be trusted.</p>
<h2>Does the model mean what it says?</h2>
<p>A model is calibrated when it is right as often as it claims: of all answers given with 80&nbsp;% confidence,
80&nbsp;% should be correct. ECE is the average distance between claim and truth. <em>Null</em> is the ECE that a
perfectly calibrated model would show on as many images by chance; a value near it cannot be told from perfect.
The interval is that of the true ECE, with the part that chance adds taken off.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
<p>The first line is the network as trained. The training images are long-tailed and the test images balanced, so the
last lines also correct the prior. Everything in the last line is inside <code>model.onnx</code> and was measured on the
answers of a running server.</p>
<figure><img alt="Reliability diagrams before and after" src="{_uri(figure)}"></figure>
<h2>One served prediction</h2>
<div class="answer"><img alt="the image that was sent" src="{sent}"><pre>{answer}</pre></div>
<p>The true class is <strong>{escape(example["label"])}</strong>.</p>
<h2>The images</h2>
<p>One row per class, commonest first.</p>
<figure><img alt="Training images, one row per class" src="{_uri(sheet)}"></figure>
<h2>How it was made</h2>
<dl>{known}</dl>
<h2>Where to go on</h2>
<pre>calibrant inspect model.onnx          # what the file says about itself
calibrant serve model.onnx            # serve it yourself
calibrant dashboard .                 # look closer
calibrant train --data YOUR_IMAGES --out runs/first</pre>
</body></html>
"""


def sheet(images: Path) -> bytes:
    """A contact sheet: a row per class, commonest first, as PNG."""
    import io

    from PIL import Image

    folders = sorted(p for p in (images / "train").iterdir() if p.is_dir())[:12]
    rows = [sorted(folder.iterdir())[:10] for folder in folders]
    side = 64
    drawn = Image.new("RGB", (10 * side, len(rows) * side), "white")
    for y, files in enumerate(rows):
        for x, file in enumerate(files):
            with Image.open(file) as image:
                drawn.paste(image.resize((side, side)), (x * side, y * side))
    stream = io.BytesIO()
    drawn.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def facts(asked: Demo, test: Predictions, calibrator: Calibrator, card: Any, gap: float) -> dict[str, str]:
    assert test.source.train_prior is not None
    commonest, rarest = max(test.source.train_prior), min(test.source.train_prior)
    found = {
        "Classes": str(len(test.class_names)),
        "Training images": f"long-tailed, {commonest / rarest:.1f} : 1 from commonest to rarest class",
        "Test images": f"{len(test)}, balanced",
        "Network and loss": f"{asked.model}, {asked.loss}, {asked.epochs} epochs from scratch",
        "Temperature": f"{calibrator.parameters['temperature']:.4f}, fitted on the validation images",
        "Prior adjustment": f"total strength {asked.adjust:g}",
        "Server against formula": f"largest difference of a probability {gap:.1e}",
    }
    if test.source.class_temperatures is not None:
        low, high = min(test.source.class_temperatures), max(test.source.class_temperatures)
        found["Class temperatures"] = f"{low:.2f} to {high:.2f}, learned in training"
    if card.verify is not None:
        difference = card.verify["max_diff"]["probabilities"]
        found["onnxruntime against torch"] = f"largest difference of a probability {difference:.1e}"
    return found


def served_lines(traffic: Traffic) -> str:
    """What the server says of its traffic in the end, and when it noticed."""
    alarm = traffic.report["alarms"]["calibration"]
    noticed = (
        f"its alarm came with label {alarm['raised_at']:,} of {traffic.answers:,}, blurred from "
        f"{traffic.blurred_from + 1:,} on"
        if alarm["on"]
        else f"no alarm in {traffic.answers:,} answers, blurred from {traffic.blurred_from + 1:,} on"
    )
    return f"Served, as the lens lost focus ({noticed}): {traffic.report['verdict']['sentence']}"


def _uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
