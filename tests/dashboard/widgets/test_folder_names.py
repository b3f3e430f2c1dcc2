"""No page says where on this machine its folders lie."""

from __future__ import annotations

from pathlib import Path

from calibrant.dashboard.widgets.folder_names import without_folders


def test_paths_below_a_folder_are_read_from_it(tmp_path: Path) -> None:
    root = tmp_path / "my runs"
    text = f"{root}/a/test.parquet: has no column; delete {root}/a"
    assert without_folders(text, [root]) == "a/test.parquet: has no column; delete a"
    assert without_folders(f"{root}: is empty", [root]) == "my runs: is empty"


def test_the_longest_folder_wins() -> None:
    folders = [Path("/tmp/x"), Path("/tmp/x/images")]
    assert without_folders("/tmp/x/images/1.png is cut", folders) == "1.png is cut"


def test_other_paths_of_this_machine_lose_their_folders() -> None:
    assert without_folders("cannot read '/tmp/secret/place/model.onnx'.") == "cannot read 'model.onnx'."
    assert without_folders("no such folder: /tmp/secret/") == "no such folder: secret"


def test_addresses_fractions_and_names_stay() -> None:
    for text in ("POST /v2/models/demo/infer", "http://127.0.0.1:1/tmp/x", "3/4 of them", "runs/a/b", "and/or"):
        assert without_folders(text) == text
