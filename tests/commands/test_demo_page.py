"""The demo's report: one page that needs nothing else and takes no markup from outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from calibrant.calibration import Measured
from calibrant.commands.demo_page import Row, page, served_lines
from calibrant.commands.demo_traffic import Traffic

EVIL = "<script>alert(1)</script>"


class Numbers:
    metrics = {
        "accuracy": Measured(0.8125), "balanced_accuracy": Measured(0.75), "nll": Measured(0.61234),
        "ece": Measured(0.0456, 0.01, 0.0789, null=0.02),
    }  # fmt: skip


def drawn(tmp_path: Path, rows: list[Row], label: str = "oak") -> str:
    image = tmp_path / "sent.png"
    image.write_bytes(b"\x89PNG sent")
    example = {"image": image, "label": label, "answer": {"label": label}}
    return page(rows, figure=b"\x89PNG figure", sheet=b"\x89PNG sheet", example=example, facts={"seed": label})


def test_a_row_writes_shares_in_percent_and_the_likelihood_as_it_is() -> None:
    assert Row.of("deployed", Numbers()).cells() == (
        "deployed", "81.2", "75.0", "0.612", "4.56", "[1.00, 7.89]", "2.00"
    )  # fmt: skip


def test_the_last_row_is_the_deployed_one(tmp_path: Path) -> None:
    text = drawn(tmp_path, [Row.of("before", Numbers()), Row.of("after", Numbers())])
    assert re.findall(r"<tr( class=deployed)?><td>(\w+)</td>", text) == [("", "before"), (" class=deployed", "after")]


def test_pictures_are_inside_and_what_comes_from_outside_is_text(tmp_path: Path) -> None:
    text = drawn(tmp_path, [Row.of(EVIL, Numbers())], label=EVIL)
    assert EVIL not in text
    assert text.count("&lt;script&gt;") >= 4  # the row, the answer, the class and a fact
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 3
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_the_alarm_is_told_beside_the_answer_from_which_pictures_were_blurred() -> None:
    def said(**alarm: Any) -> str:
        report = {"alarms": {"calibration": alarm}, "verdict": {"sentence": "Not to be trusted: it is off."}}
        return served_lines(Traffic(report, 1100, 300))

    assert said(on=True, raised_at=450, fired_at=1100) == (
        "Served, as the lens lost focus (its alarm came with label 450 of 1,100, blurred from 301 on): Not to be "
        "trusted: it is off."
    )
    assert "(no alarm in 1,100 answers, blurred from 301 on)" in said(on=False, raised_at=None, fired_at=None)
