"""Predictions are the same from whatever holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrant
from calibrant.errors import DataError

Z = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32) * 3
Y = np.arange(30) % 3


def test_tensors_tables_and_lists_are_arrays_too() -> None:
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    frame = pandas.DataFrame({f"logit_{name}": Z[:, k] for k, name in enumerate("abc")})
    frame["label"], frame["path"] = ["abc"[k] for k in Y], [f"{n}.png" for n in range(30)]
    found = calibrant.load_predictions(frame)
    assert found.class_names == ("a", "b", "c")
    assert found.ids[7] == "7.png"
    for source in (
        found, calibrant.load_predictions(torch.from_numpy(Z), torch.from_numpy(Y)),
        calibrant.load_predictions(Z.tolist(), Y.tolist()),
        calibrant.load_predictions(Z, ["abc"[k] for k in Y], class_names="abc"),
        calibrant.load_predictions({"logits": Z, "label": Y}),
    ):  # fmt: skip
        np.testing.assert_array_equal(source.labels, Y)
        np.testing.assert_allclose(source.logits, Z, rtol=1e-6)


def test_what_hugging_faces_trainer_predicts_is_read() -> None:
    from collections import namedtuple

    given = namedtuple("PredictionOutput", "predictions label_ids metrics")(Z, Y, {})
    found = calibrant.load_predictions(given)
    np.testing.assert_array_equal(found.labels, Y)
    np.testing.assert_allclose(found.logits, Z, rtol=1e-6)


def test_a_data_set_of_hugging_face_brings_the_names_of_its_classes() -> None:
    """As `datasets.Dataset` shows itself; the library itself is not needed."""

    class Label:
        names = ("ash", "elm", "oak")

    class Dataset:
        column_names = ("logits", "label")
        features = {"label": Label}  # noqa: RUF012

        def to_dict(self) -> dict[str, list[Any]]:
            return {"logits": Z.tolist(), "label": Y.tolist()}

    found = calibrant.load_predictions(Dataset())
    assert found.class_names == Label.names
    np.testing.assert_array_equal(found.labels, Y)


def test_probabilities_are_told_from_logits() -> None:
    p = np.exp(Z.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    found = calibrant.load_predictions(p, Y).logits.astype(np.float64)
    np.testing.assert_allclose(np.exp(found) / np.exp(found).sum(axis=1, keepdims=True), p, atol=1e-6)


def test_a_file_and_labels_contradict_each_other(tmp_path: Path) -> None:
    calibrant.load_predictions(Z, Y).write(tmp_path / "p.parquet")
    assert len(calibrant.load_predictions(tmp_path / "p.parquet")) == 30
    with pytest.raises(DataError, match="brings its own labels"):
        calibrant.load_predictions(tmp_path / "p.parquet", Y)


def test_rows_of_pandas_in_another_order_are_refused() -> None:
    """By position every label would belong to another row, and nothing else would show it."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.normal(size=(40, 3)))
    labels = pd.Series(rng.integers(0, 3, 40))
    assert calibrant.load_predictions(scores, labels).labels.tolist() == labels.tolist()
    mixed = labels.sample(frac=1, random_state=0)
    with pytest.raises(DataError, match=r"index of the scores in another order; labels\.loc\[scores\.index\]"):
        calibrant.load_predictions(scores, mixed)
    assert calibrant.load_predictions(scores, mixed.loc[scores.index]).labels.tolist() == labels.tolist()
    assert calibrant.load_predictions(scores, mixed.to_numpy()).labels.tolist() == mixed.tolist()
    elsewhere = mixed.set_axis(np.arange(40) + 100)  # rows of a test set, whose scores were counted anew
    assert calibrant.load_predictions(scores, elsewhere).labels.tolist() == mixed.tolist()


def test_what_is_no_array_of_scores_is_called_by_its_type() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    labels = np.arange(40) % 3
    with pytest.raises(DataError, match=r"scores are a csr_matrix; give source\.toarray"):
        calibrant.load_predictions(sparse.csr_matrix(np.eye(40, 3)), labels)
    with pytest.raises(DataError, match="complex numbers"):
        calibrant.load_predictions(np.ones((40, 3), complex), labels)
