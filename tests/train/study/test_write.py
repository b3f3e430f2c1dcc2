"""The files of a joined study."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from calibrant.train.study.joined import Entry, Joined, join
from calibrant.train.study.write import latex, markdown, write_joined
from tests.train.study.test_joined import METRICS, scores


def joined(finished: int = 8) -> Joined:
    entries = [
        Entry("ce", scores(0.0)), Entry("50 % better", scores(2.0)), Entry("twin_of_ce", scores(0.0)),
        Entry("odd | one", scores(1.0), control="ce: a bar in a name"),
    ]  # fmt: skip
    block = join(entries, METRICS, reference="ce", data="squares", network="default", view="temperature")
    assert block is not None
    return Joined("A study", "tiny", "ce", METRICS, (block,), finished, 8, ("one failed",))


def test_markdown_has_a_row_per_method_by_name_and_says_which_noise() -> None:
    text = markdown(joined())
    rows = [line for line in text.splitlines() if line.startswith("| 50 % better |")]
    assert len(rows) == 3  # values, differences, ranks
    assert "**" in rows[0]
    assert "| +0.00 [+0.00, +0.00] |" in next(r for r in text.splitlines() if r.startswith("| twin_of_ce | +"))
    assert "odd \\| one (control)" in text
    assert "seeds and test images" in text
    assert "Adaptive ECE (%) know the seeds alone" in text
    assert "one failed" in text
    assert "Not finished" not in text
    assert "**Not finished: 5 of 8 runs.**" in markdown(joined(5))


def test_latex_escapes_what_it_must_and_has_all_cells() -> None:
    lines = [line for line in latex(joined()).splitlines() if line.startswith("50")]
    assert lines[0].startswith(r"50 \% better & \textbf{")
    assert lines[0].count(" & ") == len(METRICS)
    assert r"twin\_of\_ce" in latex(joined())


def test_the_files_hold_the_same_numbers(tmp_path: Path) -> None:
    study = joined()
    tidy: list[dict[str, object]] = [{"method": "ce", "seed": 1, "metric": "ece", "value": 0.25}]
    write_joined(tmp_path, study, tidy)
    assert json.loads((tmp_path / "study.json").read_text())["blocks"][0]["lines"][0]["method"] == "ce"
    assert pq.read_table(tmp_path / "results.parquet").to_pylist() == tidy
    assert (tmp_path / "results.csv").read_text() == "method,seed,metric,value\nce,1,ece,0.25\n"


def test_what_runs_cost_stands_beside_the_table_and_not_in_it(tmp_path: Path) -> None:
    study = joined()
    block = study.blocks[0]
    told = ({"cpu_seconds": 12.345, "mean_alpha": 0.04}, {"cpu_seconds": 11.0}, {}, {})
    lines = tuple(replace(line, measured=told[i]) for i, line in enumerate(block.lines))
    study = replace(study, blocks=(replace(block, lines=lines, view=""),))
    write_joined(tmp_path, study, [])
    rows = (tmp_path / "measured.md").read_text().splitlines()
    assert "| method | cpu seconds | mean alpha |" in rows
    assert "| ce | 12.35 | 0.04 |" in rows
    assert "| 50 % better | 11 |  |" in rows
    assert "12.3" not in (tmp_path / "table.md").read_text()
