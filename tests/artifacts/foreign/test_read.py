"""The same predictions in nine formats are the same predictions, and give the same report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.artifacts.foreign.read import Asked, read_foreign
from calibrant.artifacts.foreign.roles import Named
from calibrant.artifacts.predictions import PredictionsFile, is_own, read_predictions
from calibrant.errors import DataError

N, C = 150, 12
RNG = np.random.default_rng(3)
Z = (RNG.normal(size=(N, C)) * 2).astype(np.float32)
Y = np.where(RNG.random(N) < 0.7, Z.argmax(axis=1), RNG.integers(0, C, N))


def write_npz(folder: Path) -> Path:
    np.savez(folder / "p.npz", logits=Z, labels=Y)
    return folder / "p.npz"


def write_npy(folder: Path) -> Path:
    np.save(folder / "p_logits.npy", Z)
    np.save(folder / "p_labels.npy", Y)
    return folder / "p_logits.npy"


def write_csv(folder: Path) -> Path:
    lines = [",".join([*map(str, range(C)), "label"])]
    lines += [",".join([*(repr(float(v)) for v in row), str(y)]) for row, y in zip(Z, Y, strict=True)]
    (folder / "p.csv").write_text("\n".join(lines) + "\n")
    return folder / "p.csv"


def write_json_lines(folder: Path) -> Path:
    records = [{"logits": [float(v) for v in row], "label": int(y)} for row, y in zip(Z, Y, strict=True)]
    (folder / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder / "p.jsonl"


def write_torch(folder: Path) -> Path:
    torch = pytest.importorskip("torch")
    torch.save({"logits": torch.from_numpy(Z), "labels": torch.from_numpy(Y)}, folder / "p.pt")
    return folder / "p.pt"


def write_pandas_list(folder: Path) -> Path:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"logits": list(Z), "label": Y}).to_parquet(folder / "p.parquet")
    return folder / "p.parquet"


def write_pandas_columns(folder: Path) -> Path:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(Z)
    frame.columns = [str(k) for k in range(C)]
    frame[sorted(frame.columns)].assign(label=Y).to_parquet(folder / "p.parquet")  # "10" before "2"
    return folder / "p.parquet"


def write_polars(folder: Path) -> Path:
    """large_list<double> is what polars makes of Python lists; the library itself is not needed."""
    rows = pa.array([[float(v) for v in row] for row in Z], pa.large_list(pa.float64()))
    pq.write_table(pa.table({"logits": rows, "label": pa.array(Y)}), folder / "p.parquet")
    return folder / "p.parquet"


def write_datasets(folder: Path) -> Path:
    """list<float> and a ClassLabel, whose names stand in the schema's metadata."""
    label = {"names": [str(k) for k in range(C)], "_type": "ClassLabel"}
    meta = {"huggingface": json.dumps({"info": {"features": {"label": label}}})}
    table = pa.table({"logits": pa.array(Z.tolist(), pa.list_(pa.float32())), "label": pa.array(Y)})
    pq.write_table(table.replace_schema_metadata(meta), folder / "p.parquet")
    return folder / "p.parquet"


NINE = (
    write_npz, write_npy, write_csv, write_json_lines, write_torch, write_pandas_list, write_pandas_columns,
    write_polars, write_datasets,
)  # fmt: skip


@pytest.mark.parametrize("write", NINE, ids=lambda w: w.__name__.removeprefix("write_"))
def test_nine_formats_hold_the_same_bits(write: Any, tmp_path: Path) -> None:
    found = read_predictions(write(tmp_path))
    assert found.logits.tobytes() == Z.tobytes()
    np.testing.assert_array_equal(found.labels, Y)
    assert found.class_names == tuple(map(str, range(C)))
    assert found.ids == tuple(map(str, range(N)))


def test_nine_formats_give_the_same_report(tmp_path: Path) -> None:
    """Byte for byte, but for the name of the file, which the report says."""
    from calibrant.calibration.evaluate_files import evaluate_files
    from calibrant.calibration.report.html import html_report

    reports = set()
    for i, write in enumerate(NINE):
        folder = tmp_path / str(i)
        folder.mkdir()
        (model,) = evaluate_files([write(folder)])
        reports.add(html_report([replace(model, name="p")], title="p", bins=15, made="now"))
        assert not list(folder.glob("*.stats.npz"))
    assert len(reports) == 1


def test_an_imported_file_is_ours_and_says_the_same(tmp_path: Path) -> None:
    foreign = tmp_path / "f.npz"
    np.savez(foreign, logits=Z, labels=Y, weight=np.arange(N) + 1.0, group=np.array(["a", "b"])[np.arange(N) % 2])
    data = read_foreign(foreign).predictions
    data.write(tmp_path / "p.parquet")
    assert is_own(tmp_path / "p.parquet")
    found = read_predictions(tmp_path / "p.parquet")
    assert found.logits.tobytes() == Z.tobytes()
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, np.arange(N) + 1)
    assert found.groups == {"group": tuple("ab"[i % 2] for i in range(N))}
    assert found.rows(np.array([1])).groups == {"group": ("b",)}


def test_columns_and_labels_are_joined_by_name(tmp_path: Path) -> None:
    """scikit-learn sorts its classes, torchvision its folders: the order of the columns is that of the file."""
    names = ["owl", "ant", "cat"]
    lines = ["p_owl,p_ant,p_cat,label"] + [f"{v[0]},{v[1]},{v[2]},{names[i % 3]}" for i, v in enumerate(Z[:30, :3])]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    found = read_predictions(tmp_path / "p.csv")
    assert found.class_names == ("owl", "ant", "cat")
    assert found.labels.tolist() == [i % 3 for i in range(30)]
    given = read_foreign(tmp_path / "p.csv", asked=Asked(class_names=("ant", "cat", "owl"))).predictions
    assert given.class_names == ("ant", "cat", "owl")
    np.testing.assert_array_equal(given.logits[:, 2], found.logits[:, 0])
    assert given.labels.tolist() == [(i - 1) % 3 for i in range(30)]
    with pytest.raises(DataError, match='called after class "fox"'):
        read_foreign(tmp_path / "p.csv", asked=Asked(class_names=("ant", "fox", "owl")))


def test_several_labels_a_row_make_the_outcome_independent(tmp_path: Path) -> None:
    present = (RNG.random((N, C)) < 0.2).astype(np.int64)
    np.savez(tmp_path / "m.npz", logits=Z, labels=present)
    with pytest.raises(DataError, match="independent labels"):
        read_predictions(tmp_path / "m.npz")
    found = PredictionsFile.open(tmp_path / "m.npz", independent=True).read()
    assert found.source.independent
    assert found.present is not None
    np.testing.assert_array_equal(found.present, present)
    found.write(tmp_path / "m.parquet")
    again = PredictionsFile.open(tmp_path / "m.parquet", independent=True).read()
    assert again.present is not None
    np.testing.assert_array_equal(again.present, present)
    with pytest.raises(DataError, match="independent labels"):
        PredictionsFile.open(tmp_path / "m.parquet")


def test_files_of_one_column_each_are_put_together(tmp_path: Path) -> None:
    for name, values in (("z", Z), ("truth", Y), ("uid", np.arange(N) + 100)):
        np.save(tmp_path / f"{name}.npy", values)
    asked = Asked(named=Named(scores=("z",), label="truth"))
    found = read_foreign(tmp_path / "z.npy", tmp_path / "truth.npy", tmp_path / "uid.npy", asked=asked).predictions
    np.testing.assert_array_equal(found.labels, Y)
    assert found.ids[0] == "100"


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"logits": Z, "labels": Y[:-1]}, "149 labels for 150 rows"),
        ({"logits": Z, "labels": Y, "weights": -np.ones(N)}, "not negative"),
        ({"logits": Z, "labels": Y, "classes": np.array(["a", "b"])}, "2 class names for 12 classes"),
        ({"logits": Z, "labels": Y, "train_prior": np.ones(3)}, "3 shares for 12 classes"),
        ({"labels": Y}, "no column of scores"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, arrays: Any, says: str) -> None:
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(DataError, match=says):
        read_predictions(tmp_path / "p.npz")
