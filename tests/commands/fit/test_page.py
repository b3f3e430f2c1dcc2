"""What the report says of trials, with names that are no markup."""

from __future__ import annotations

from calibrant.commands.fit.page import _next, _tried


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
