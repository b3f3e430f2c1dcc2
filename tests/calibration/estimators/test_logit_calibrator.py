"""A calibrator of logits obeys scikit-learn but where it would have to lie."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from calibrant.calibration.calibrators import fit
from calibrant.calibration.estimators import LogitCalibrator
from calibrant.calibration.softmax import softmax
from calibrant.errors import FormatError

WHY = "logits need one column for each class, and this check fits three classes on two columns"
REFUSED = (
    "check_estimators_overwrite_params", "check_estimators_fit_returns_self", "check_readonly_memmap_input",
    "check_classifiers_classes", "check_classifiers_train",
)  # fmt: skip


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3)) * 4
    return z, np.array(["ant", "bee", "cat"])[(softmax(z / 3).cumsum(1) < rng.random((200, 1))).sum(1)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the checks hand over what warns
def test_check_estimator_fails_where_expected_and_nowhere_else() -> None:
    """2 s."""
    found = check_estimator(
        LogitCalibrator(), on_fail=None, on_skip=None, expected_failed_checks=dict.fromkeys(REFUSED, WHY)
    )
    assert [check["check_name"] for check in found if check["status"] == "failed"] == []
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == set(REFUSED)


def test_the_temperature_is_that_of_the_method() -> None:
    z, y = rows()
    labels = np.searchsorted(["ant", "bee", "cat"], y)
    model = LogitCalibrator().fit(z, y)
    assert model.temperature_ == fit("temperature", z, labels).parameters["temperature"]
    np.testing.assert_allclose(model.predict_proba(z), softmax(z / model.temperature_), atol=1e-12)
    np.testing.assert_allclose(model.transform(z), z / model.temperature_, atol=1e-9)
    assert list(model.predict(z)) == list(np.array(["ant", "bee", "cat"])[z.argmax(1)])


def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    z, y = rows()
    numbers = torch.from_numpy(np.searchsorted(["ant", "bee", "cat"], y))
    model = LogitCalibrator().fit(torch.from_numpy(z).requires_grad_(), numbers)
    single = torch.from_numpy(z).float()
    found = model.predict_proba(single)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), softmax(z / model.temperature_), atol=1e-6)
    assert model.transform(single.bfloat16()).dtype == torch.bfloat16


def test_frames_come_back_as_frames() -> None:
    pandas = pytest.importorskip("pandas")
    z, y = rows()
    frame = pandas.DataFrame(z, columns=["a", "b", "c"], index=[f"row{n}" for n in range(200)])
    model = LogitCalibrator().fit(frame, pandas.Series(y))
    found = model.predict_proba(frame)
    assert list(found.columns) == ["ant", "bee", "cat"]
    assert found.index[7] == "row7"
    np.testing.assert_allclose(found.to_numpy(), softmax(z / model.temperature_), atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict_proba(frame.rename(columns={"a": "other"}))
    assert list(model.set_output(transform="pandas").transform(frame).columns) == ["ant", "bee", "cat"]


def test_numbers_say_their_columns_where_a_class_has_no_row() -> None:
    z, _ = rows()
    y = np.where(z[:, 2] > z[:, 0], 2, 0)
    model = LogitCalibrator().fit(z, y)
    assert list(model.classes_) == [0, 1, 2]
    with pytest.raises(ValueError, match="do not say whose"):
        LogitCalibrator().fit(z, np.array(["a", "b", "c"])[y])


def test_weights_that_leave_nothing_to_tell_are_refused() -> None:
    z, y = rows()
    with pytest.raises(ValueError, match="zero"):
        LogitCalibrator().fit(z, y, np.zeros(200))
    with pytest.raises(ValueError, match="one class"):
        LogitCalibrator().fit(z, y, (y == "ant").astype(float))


def test_it_comes_back_from_json_pickle_and_clone() -> None:
    z, y = rows()
    model = LogitCalibrator("vector").fit(z, y)
    for again in (LogitCalibrator.from_json(model.to_json()), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(z), model.predict_proba(z))
        assert list(again.predict(z)) == list(model.predict(z))
    assert clone(model).get_params() == {"method": "vector", "options": None}
    with pytest.raises(FormatError, match="no calibrator of logits"):
        LogitCalibrator.from_json("{}")
