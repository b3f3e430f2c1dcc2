"""What the report says of trials, with names that are no markup."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from PIL import Image

from calibrant.calibration.report.html import _CSS
from calibrant.commands.fit.page import _next, _pair, _tried
from calibrant.images.audit.check import Pair

from ...chromium import launched


def test_the_kept_head_is_marked_and_the_order_is_by_nll() -> None:
    heads = {
        "chosen": "b <i>", "rows": 1200,
        "candidates": [{"name": "a", "nll": 1.5, "accuracy": 0.5}, {"name": "b <i>", "nll": 1.25, "accuracy": 0.625}],
    }  # fmt: skip
    text = _tried(heads, None)
    assert text.index("b &lt;i&gt; (kept)") < text.index("<td>a</td>")
    assert "1,200 rows" in text
    assert "62.5 %" in text
    assert "Fine-tuning" not in text


def test_fine_tuning_that_lost_is_told_with_its_error() -> None:
    lost = {"rows": 90, "nll": 1.0, "head_nll": 1.01, "gain": 0.01, "standard_error": 0.02, "wins": False}
    text = _tried({"chosen": "a", "rows": 1, "candidates": [{"name": "a", "nll": 1.0, "accuracy": 1.0}]}, lost)
    assert "does not replace the head" in text
    assert "0.0200" in text


def test_commands_are_escaped() -> None:
    assert "&lt;x&gt;" in _next(["calibrant serve '<x>'"])


def test_pictures_that_look_the_same_fit_a_phone_whatever_their_names() -> None:
    ids = ("Unpacked archive/Training/Blueberry_leaf_(healthy)/IMG_20260412_101112_0001.JPG", "a" * 90 + ".JPG")
    check = SimpleNamespace(class_names=("leaf",), labels=[0, 0], ids=ids)
    images = SimpleNamespace(image=lambda i: Image.new("RGB", (300, 200)))
    rows: Any = SimpleNamespace(check=check, listing=SimpleNamespace(sets={"train": images}))
    text = _pair(rows, Pair(0, 1, 3, False, False, ("train", "train")))
    with launched() as browser:
        for width in (1400, 390):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.set_content(f"<style>{_CSS}</style>{text}")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.locator("td").first.bounding_box()["width"] > 110
