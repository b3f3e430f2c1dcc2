"""What the report of a fit says beside the verdict: the data, what was tried, what was assumed, what comes next."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

from calibrant.commands.fit.data import Rows
from calibrant.errors import DataError
from calibrant.images.audit.check import Pair
from calibrant.images.listing import joined

_SHOWN = 12
_SIDE = 120


def sections(
    rows: Rows,
    said: list[str],
    heads: dict[str, Any],
    tuning: dict[str, Any] | None,
    how: dict[str, str],
    next: list[str],
) -> list[str]:
    """Fragments of HTML, in order."""
    return [_data(rows, said), _tried(heads, tuning), _how(how), _next(next)]


def _data(rows: Rows, said: list[str]) -> str:
    check = rows.check
    found = "".join(f"<li>{escape(line)}</li>" for line in said) or "<li>Nothing odd was found.</li>"
    splits = list(dict.fromkeys(check.splits))
    head = "".join(f"<th>{escape(s)}</th>" for s in splits)
    counts = {s: check.counts(s) for s in splits}
    lines = "".join(
        f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{counts[s][k]:,}</td>" for s in splits) + "</tr>"
        for k, name in enumerate(check.class_names)
    )
    (w, h), (v, u) = check.sizes()
    pairs = sorted(check.pairs, key=lambda p: (not p.two_labels, not p.leak, p.bits))[:_SHOWN]
    pictures = "".join(_pair(rows, p) for p in pairs)
    return (
        f"<h2>Data</h2><p>{escape(rows.says())}. Pictures from {w} x {h} to {v} x {u} pixels.</p><ul>{found}</ul>"
        + (f"<h3>Pictures that look the same</h3>{pictures}" if pictures else "")
        + f'<details><summary>Images of each class</summary><div class="scroll"><table><tr><th>class</th>{head}</tr>'
        f"{lines}</table></div></details>"
    )


def _pair(rows: Rows, pair: Pair) -> str:
    check = rows.check
    what = "two labels" if pair.two_labels else "test and training" if pair.leak else "same label"
    cells = "".join(
        f"<td>{_thumbnail(rows, i)}<small>{escape(check.class_names[check.labels[i]])}<br>"
        f"{escape(check.ids[i])}</small></td>"
        for i in (pair.first, pair.second)
    )
    return f'<table class="pair"><tr>{cells}<td>{what}<small>{pair.bits} of 128 bits differ</small></td></tr></table>'


def _thumbnail(rows: Rows, i: int) -> str:
    whole = joined(list(rows.listing.sets.values()))
    try:
        image = whole.image(i)
    except DataError:
        return ""
    image.thumbnail((_SIDE, _SIDE))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=80)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}">'


def _tried(heads: dict[str, Any], tuning: dict[str, Any] | None) -> str:
    lines = "".join(
        f"<tr><td>{escape(c['name'])}{' (kept)' if c['name'] == heads['chosen'] else ''}</td>"
        f"<td>{c['nll']:.4f}</td><td>{100 * c['accuracy']:.1f} %</td></tr>"
        for c in sorted(heads["candidates"], key=lambda c: float(c["nll"]))
    )
    text = (
        "<h2>What was tried</h2><p>Heads on the frozen backbone, each row judged by one that had not seen it, through "
        f"a temperature that had not either; {heads['rows']:,} rows.</p>"
        f'<div class="scroll"><table><tr><th>head</th><th>NLL</th><th>accuracy</th></tr>{lines}</table></div>'
    )
    if tuning is not None:
        word = "replaces the head" if tuning["wins"] else "does not replace the head"
        text += (
            f"<p>Fine-tuning on {tuning['rows']:,} rows that it had not seen: NLL {tuning['nll']:.4f} against the "
            f"head's {tuning['head_nll']:.4f}, a gain of {tuning['gain']:.4f} with a standard error of "
            f"{tuning['standard_error']:.4f}: it {word}.</p>"
        )
    return text


def _how(how: dict[str, str]) -> str:
    return (
        "<h2>How it was made</h2><dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in how.items())
        + "</dl>"
    )


def _next(lines: list[str]) -> str:
    return "<h2>Next</h2>" + "".join(f"<p><code>{escape(line)}</code></p>" for line in lines)
