"""Tables for notebooks hold what they were given, as text."""

from __future__ import annotations

from calibrant.html import few, table


def test_texts_cannot_be_markup() -> None:
    page = table(("a<b", "n"), [("<script>", 1)], title="t & u", below="<i>")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a&lt;b" in page
    assert "t &amp; u" in page
    assert "<i>" not in page


def test_many_names_are_cut() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few(list("abcdefgh"), 3) == "a, b, c, ..."
