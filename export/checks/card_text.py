"""A model card as a table for people and as a Markdown document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.conformal.holding import same, set_blocks, sets_moved
from calibrant.calibration.verdict.verdict import JUDGED_SHIFT
from calibrant.export.checks.speed import kept


def prior_line(card: ModelCard) -> str:
    """Total strength of the prior correction, who made which part, and the excess over one correction."""
    prior = card.prior
    if prior.train is None:
        return "none (no training prior known)"
    if prior.total == 0 and prior.applied == 0:
        return "none"
    target = "uniform" if prior.target is None else "given prior"
    line = f"total {prior.total:g} towards {target} = {prior.absorbed:g} in training + {prior.applied:g} in the graph"
    excess = prior.total - 1.0
    return line + (f"; {excess:g} more than Bayes' rule" if excess > 1e-9 else "")


def verdict_line(card: ModelCard) -> str:
    """Can the confidence be trusted? As it was found when the calibrator was fitted, if the formula is still that."""
    told = card.metrics.get("verdict")
    if not isinstance(told, Mapping):
        return "not known: calibrant evaluate judges predictions of this file"
    if not same(np.asarray(told.get(JUDGED_SHIFT) or [0.0]), card.prior.shift()):
        return "not known for this prior correction: calibrant evaluate judges predictions of this file"
    return f"{told['sentence']} Each row was judged by a calibrator that had not seen it."


def rows(card: ModelCard) -> list[tuple[str, str]]:
    """What a reader wants to know first, line by line."""
    p = card.preprocessing
    taus = card.class_temperatures
    found = [
        ("name", card.name),
        ("verdict", verdict_line(card)),
        ("classes", f"{len(card.classes)}: {', '.join(card.classes[:6])}{', ...' if len(card.classes) > 6 else ''}"),
        ("input", f"{card.input.name} {card.input.dtype} {card.input.layout} [N, {_shape(card)}]"),
        ("preprocessing", "none" if not card.input.pictures else
                          f"{p.crop} {p.resize} -> {p.size[0]} x {p.size[1]}, {p.interpolation}, "
                          f"mean {_three(p.mean)}, std {_three(p.std)}"),
        ("outputs", ", ".join(card.outputs)),
        ("knobs", card.knobs),
        ("class temperatures", "none" if taus is None else
         f"{min(taus):.3f} .. {max(taus):.3f}" + (f", gauge {card.gauge}" if card.gauge != "none" else "")),
        ("calibrator", _calibrator(card.calibrator)),
        ("prior correction", prior_line(card)),
        ("ood score", "none" if card.ood is None else str(card.ood["kind"])),
        ("prediction sets", _sets(card)),
        ("abstains below", "never" if card.abstain_below is None else f"{card.abstain_below:g}"),
        ("precision", _precision(card.precision)),
        ("verified", _verified(card.verify)),
        ("made", f"{card.created or 'unknown'} by calibrant {card.versions.get('calibrant', '?')}"),
    ]  # fmt: skip
    if card.adopted is not None:
        found.append(("adopted", adopted_line(card.adopted)))
    found += [
        (key, value)
        for key, value in (("description", card.description), ("author", card.author), ("licence", card.licence))
        if value
    ]
    if card.source:
        found.append(("source", ", ".join(f"{k} {str(v)[:16]}" for k, v in card.source.items())))
    found += [("edited", f"{h.get('when', '?')} {h.get('what', '')}") for h in card.history]
    return found


def adopted_line(block: Mapping[str, Any]) -> str:
    """The foreign file, and what was taken from it."""
    fixed = f", {block['batch']} rows at a time" if isinstance(block.get("batch"), int) else ""
    guessed = ", preprocessing GUESSED" if block.get("preprocessing") == "a guess" else ""
    return (
        f"from {block.get('file')} ({block.get('producer')}, opset {block.get('opset')}): {block.get('kind')} output, "
        f"{block.get('behind')}; {block.get('colour')}{fixed}{guessed}"
    )


def summary(card: ModelCard, path: str | Path) -> str:
    """The lines that `export` and `inspect` print."""
    width = max(len(key) for key, _ in rows(card))
    return "\n".join([str(path), *(f"  {key.ljust(width)}  {value}" for key, value in rows(card))])


def markdown(card: ModelCard) -> str:
    """The model card as a Markdown document."""
    lines = [f"# {card.name}", ""]
    if card.description:
        lines += [card.description, ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in rows(card) if key != "description"]
    lines += [
        "", "## How a probability is made", "",
        "`p = softmax( cal( z / tau ) - a log(pi_train / pi_target) )`, computed inside the file. `z` are the "
        "network's logits, `tau` the class temperatures, `cal` the calibrator named above, `a` the strength of the "
        "prior correction.", "",
    ]  # fmt: skip
    if card.metrics:
        lines += ["## Measured", "", *_metrics(card.metrics), ""]
    if card.prior.train is not None:
        target = card.prior.target or [1 / len(card.classes)] * len(card.classes)
        taus = card.class_temperatures or [1.0] * len(card.classes)
        lines += ["## Classes", "", "| class | training share | target share | temperature |", "|---|---:|---:|---:|"]
        lines += [
            f"| {name} | {100 * a:.2f} % | {100 * b:.2f} % | {t:.3f} |"
            for name, a, b, t in zip(card.classes, card.prior.train, target, taus, strict=True)
        ]
    else:
        lines += ["## Classes", "", ", ".join(card.classes)]
    if card.hashes:
        lines += ["", "## Hashes", "", *(f"- {k}: `{v}`" for k, v in card.hashes.items())]
    return "\n".join(lines) + "\n"


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    before, after = metrics.get("before"), metrics.get("after")
    speed = kept(metrics)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = [n for n in after if n in before]
        body = [f"| {n} | {_number(before[n])} | {_number(after[n])} |" for n in names]
        told = [f"| {k} | | {_number(v)} |" for k, v in speed.items()]
        return ["| metric | before calibration | after |", "|---|---:|---:|", *body, *told]
    return ["| metric | value |", "|---|---:|", *(f"| {k} | {_number(v)} |" for k, v in metrics.items())]


def _number(value: Any) -> str:
    if isinstance(value, Mapping):
        if "value" in value and "low" in value and "high" in value:
            return f"{value['value']:.4g} [{value['low']:.4g}, {value['high']:.4g}]"
        return ", ".join(f"{k} {_number(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _calibrator(block: Mapping[str, Any] | None) -> str:
    if block is None:
        return "none"
    text = str(block.get("method", "?"))
    value = block.get("parameters", {}).get("temperature")
    text += f" {value:.4g}" if isinstance(value, float) else ""
    fitted = block.get("fitted_on", {})
    return text + (f", fitted on {fitted['rows']} rows" if "rows" in fitted else "")


def _sets(card: ModelCard) -> str:
    if sets_moved(card):
        return "none given: fitted for another class prior"
    return ", ".join(f"{100 * (1 - float(alpha)):g} %" for alpha in set_blocks(card)) or "none"


def _precision(block: Mapping[str, Any]) -> str:
    return str(block.get("dtype", "float32")) + (f" ({block['method']})" if block.get("method") else "")


def _verified(block: Mapping[str, Any] | None) -> str:
    block = block or {}
    if not block.get("max_diff"):  # --no-verify, or a quantized file; an edit of it was compared with numpy
        edited = block.get("edit", {}).get("date")
        return "NOT compared with torch" + (f"; what was edited agrees with the formula ({edited})" if edited else "")
    text = (
        f"{block.get('date', '?')}, largest difference in probabilities {_number(block['max_diff']['probabilities'])}"
    )
    return text + ("; the logits hardly vary, so this shows little" if block.get("blind") else "")


def _shape(card: ModelCard) -> str:
    h, w = card.preprocessing.size
    if not card.input.pictures:
        return str(w)
    return f"{h}, {w}, 3" if card.input.layout == "NHWC" else f"3, {h}, {w}"


def _three(values: tuple[float, float, float]) -> str:
    return "/".join(f"{v:.3g}" for v in values)
