"""Two pages for browsers: a picture to try, and the addresses to read. Nothing on them comes from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any


def predict_page(models: list[str]) -> str:
    """A form for a browser; nothing on it comes from elsewhere."""
    options = "".join(f"<option>{escape(name)}</option>" for name in models)
    return _PREDICT.replace("OPTIONS", options)


_PREDICT = """<!doctype html><meta charset="utf-8"><title>Calibrant</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td{padding:.2rem .4rem}td.bar{width:50%}
.bar div{background:#2a78b5;height:1rem}img{max-width:16rem;max-height:16rem;display:block;margin:1rem 0}</style>
<h1>Calibrant</h1>
<p>Choose a picture; the answer is the calibrated probability of each class.
<a href="docs">addresses</a>, <a href="metrics">metrics</a>, <a href="v2">server</a></p>
<p><select id="model">OPTIONS</select> <input type="file" id="file" accept="image/*"></p>
<img id="shown" alt="" hidden><p id="verdict" role="status"></p><table id="top"></table>
<script>
const at = id => document.getElementById(id);
at("file").onchange = async () => {
  const file = at("file").files[0];
  if (!file) return;
  at("shown").src = URL.createObjectURL(file); at("shown").hidden = false;
  const reply = await fetch("predict?model=" + encodeURIComponent(at("model").value), {method: "POST", body: file});
  const answer = await reply.json();
  at("top").replaceChildren();
  if (!reply.ok) { at("verdict").textContent = answer.error; return; }
  const row = answer.predictions[0];
  at("verdict").textContent = row.label + ", " + (100 * row.confidence).toFixed(1) + " %"
    + (row.abstained ? " (below the threshold: abstained)" : "")
    + ("ood_score" in row ? "; out-of-distribution score " + row.ood_score.toFixed(2) : "");
  for (const {label, probability} of row.top) {
    const line = at("top").insertRow();
    line.insertCell().textContent = label;
    line.insertCell().textContent = (100 * probability).toFixed(1) + " %";
    const bar = line.insertCell(); bar.className = "bar";
    const fill = bar.appendChild(document.createElement("div")); fill.style.width = 100 * probability + "%";
  }
};
</script>
"""


def docs_page(document: dict[str, Any]) -> str:
    """The document as one page of HTML that needs nothing from elsewhere."""
    parts = []
    for path, verbs in sorted(document["paths"].items()):
        for verb, operation in verbs.items():
            rows = "".join(
                f"<tr><td><code>{escape(p['name'])}</code><td>{p['in']}<td>{escape(str(p['schema']['type']))}"
                f"<td>{escape(p['description'])}"
                for p in operation.get("parameters", ())
            )
            kinds = ", ".join(f"<code>{escape(k)}</code>" for k in operation.get("requestBody", {}).get("content", ()))
            parts.append(
                f"<section><h2><b>{verb.upper()}</b> <code>{escape(path)}</code></h2><p>{escape(operation['summary'])}"
                + (f" Body: {kinds}." if kinds else "")
                + (f"<table>{rows}</table>" if rows else "")
                + "</section>"
            )
    return _DOCS.replace("OPERATIONS", "\n".join(parts))


_DOCS = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Calibrant: addresses</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{font-size:1.05rem;font-weight:400;margin:1.5rem 0 0}p{margin:.2rem 0}td{padding:.1rem .8rem .1rem 0;
vertical-align:top}code{overflow-wrap:anywhere}</style>
<h1>Addresses of this server</h1>
<p>For tools: <a href="openapi.json">openapi.json</a>. Errors are <code>{"error": "..."}</code> everywhere.</p>
OPERATIONS
</html>
"""
