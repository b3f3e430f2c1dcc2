"""The files of the best epochs."""

from __future__ import annotations

from pathlib import Path

from calibrant.train.run.epoch_files import FOLDER, Kept, keep_top


def names(run: Path) -> list[str]:
    return sorted(p.name for p in (run / FOLDER).iterdir())


def test_the_two_best_stay_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    kept: Kept = []
    saved = []

    def save(path: Path) -> None:
        saved.append(path.name)
        path.write_text("weights")

    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "epoch-0009.safetensors").write_text("of a process that was killed before it wrote it down")
    for entry in ([1.0, 0.9, 0.9], [2.0, 0.7, 0.7], [3.0, 0.8, 0.8], [4.0, 0.95, 0.95]):
        kept = keep_top(tmp_path, kept, entry, k=2, by="nll", save=save)
    assert [e[0] for e in kept] == [2.0, 3.0]
    assert names(tmp_path) == ["epoch-0002.safetensors", "epoch-0003.safetensors"]
    assert saved == ["epoch-0001.safetensors", "epoch-0002.safetensors", "epoch-0003.safetensors"]


def test_higher_accuracy_is_better_and_nll_tells_equals_apart(tmp_path: Path) -> None:
    kept: Kept = []
    for entry in ([1.0, 0.5, 0.9], [2.0, 0.7, 0.8], [3.0, 0.7, 0.6]):
        kept = keep_top(tmp_path, kept, entry, k=1, by="accuracy", save=None)
    assert kept == [[3.0, 0.7, 0.6]]
    assert not (tmp_path / FOLDER).exists()  # only the first process writes
