"""The overview: what it says where there is nothing, and how its lines are found, sorted and grouped."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from calibrant.artifacts.predictions import read_predictions

from ..conftest import Page, frame, words


def test_an_empty_folder_offers_the_demo(page: Page, tmp_path: Path) -> None:
    drawn = page("overview", tmp_path)
    assert "There are no runs below" in words(drawn)
    assert [b.key for b in drawn.button] == ["make-demo", "again"]


def test_a_damaged_file_is_named_and_the_others_are_shown(page: Page, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedlas", tmp_path / "fedlas")
    (tmp_path / "fedlas/predictions/val.parquet").write_bytes(b"PAR1 no more")
    drawn = page("overview", tmp_path, **{"as": "table"})
    assert "val.parquet" in "\n".join([words(drawn), *(w.value for w in drawn.warning)]).replace("\\", "")
    assert frame(drawn, "Accuracy (%)")["Name"].tolist() == ["fedlas"]


def test_a_search_leaves_what_has_all_its_words(page: Page, folder: Path) -> None:
    asked = {"as": "table"}
    assert set(frame(page("overview", folder, search="resnet18 fedlas", **asked), "Formula")["Name"]) == {"fedlas"}
    none = page("overview", folder, search="no-such-thing", **asked)
    assert [i.value for i in none.info] == ["Nothing here has these words."]


def test_lines_are_sorted_as_asked(page: Page, folder: Path) -> None:
    table = frame(page("overview", folder, sort="nll", **{"as": "table"}), "NLL")
    known = table["NLL"].dropna()
    assert known.tolist() == sorted(known)


def test_cards_stand_under_the_name_of_their_group(page: Page, folder: Path) -> None:
    drawn = page("overview", folder, group="loss")
    assert {"vace", r"fedlas\-ls"} <= {s.value for s in drawn.subheader}


def test_lines_of_the_table_stand_together_by_group_with_what_makes_it_beside_the_name(
    page: Page, folder: Path, tmp_path: Path
) -> None:
    for name, source in (("a", "leaves"), ("b", "fedlas"), ("c", "leaves")):
        shutil.copytree(folder / source, tmp_path / name, ignore=shutil.ignore_patterns("*.onnx", "feedback"))
        config = tmp_path / name / "config.json"
        for split in ("val", "test"):  # other weights, or the third would be the first made again
            path = tmp_path / name / f"predictions/{split}.parquet"
            data = read_predictions(path)
            about = replace(data.source, model={**data.source.model, "sha256": f"weights of {name}"})
            replace(data, source=about).write(path)
        assert config.is_file()
    asked = {"sort": "name", "as": "table"}
    plain = frame(page("overview", tmp_path, **asked), "ECE (%)")
    grouped = frame(page("overview", tmp_path, group="loss", **asked), "ECE (%)")
    assert plain["Name"].tolist() == ["a", "b", "c"]
    assert grouped["Name"].tolist() == ["a", "c", "b"]
    assert list(grouped.columns[:2]) == ["Name", "Loss"]
    assert grouped["Loss"].tolist() == ["vace", "vace", "fedlas-ls"]


def test_what_would_do_nothing_to_a_scatter_cannot_be_chosen(page: Page, folder: Path) -> None:
    def off(how: str) -> list[bool]:
        drawn = page("overview", folder, **{"as": how})
        return [drawn.selectbox(key=key).disabled for key in ("sort", "group")]

    assert (off("scatter"), off("table"), off("cards")) == ([True, True], [False, False], [False, False])
