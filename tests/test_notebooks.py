"""The notebooks of the documentation run from top to bottom, and are as short as they are said to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
# notebook: most lines of code, what it needs, and what must be true at its end
CASES = {
    "transformers-to-served.ipynb": (
        25, ("transformers", "onnx"),
        "assert len(served) == 3 and abs(served[0] - deployed.predict(pictures[:1]).probabilities[0, 0]) < 1e-5",
    ),
    "scikit-learn.ipynb": (
        15, ("sklearn", "matplotlib"),
        "assert report.accuracy.value > 0.9 and len(errors) == 3 and report.verdict is not None",
    ),
}  # fmt: skip


def code_of(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_every_notebook_is_run() -> None:
    assert {p.name for p in NOTEBOOKS.glob("*.ipynb")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_notebook_is_short_and_kept_without_outputs(name: str) -> None:
    lines = [line for cell in code_of(NOTEBOOKS / name) for line in cell.splitlines() if line.strip()]
    assert len(lines) <= CASES[name][0]
    cells = json.loads((NOTEBOOKS / name).read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_notebook_runs_and_shows_its_objects(name: str, tmp_path: Path) -> None:
    """20 s and 6 s. As a kernel does it: one namespace, and the last expression of each cell as HTML."""
    _, needed, wanted = CASES[name]
    for module in needed:
        pytest.importorskip(module)
    runner = (
        "import ast, sys, json\n"
        "space = {}\n"
        "for cell in json.load(open(sys.argv[1])):\n"
        "    tree = ast.parse(cell)\n"
        "    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None\n"
        "    exec(compile(tree, 'cell', 'exec'), space)\n"
        "    shown = None if last is None else eval(compile(ast.Expression(last.value), 'cell', 'eval'), space)\n"
        "    if hasattr(shown, '_repr_html_'):\n"
        "        assert '<table>' in shown._repr_html_()\n"
        f"exec({wanted!r}, space)\n"
    )
    (tmp_path / "cells.json").write_text(json.dumps(code_of(NOTEBOOKS / name)))
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", runner, "cells.json"], cwd=tmp_path, env=environment,
                            capture_output=True, text=True)  # fmt: skip
    assert result.returncode == 0, result.stderr
