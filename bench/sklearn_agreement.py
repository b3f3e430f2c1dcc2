"""CalibratedClassifier beside scikit-learn's CalibratedClassifierCV, and the log of check_estimator.

    python bench/sklearn_agreement.py [--json FILE]

Largest difference of any probability with method="temperature" on the same five folds, 400 rows, two and three classes.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from calibrant.calibration.estimators import CalibratedClassifier, LogitCalibrator
from calibrant.progress import table

ESTIMATORS = (
    LogisticRegression(), LinearSVC(), GaussianNB(), LinearDiscriminantAnalysis(), SVC(),
    GradientBoostingClassifier(n_estimators=20, random_state=0), RandomForestClassifier(20, random_state=0),
)  # fmt: skip


def differences() -> list[tuple[str, int, bool, float]]:
    found = []
    for classes in (2, 3):
        x, numbers = make_classification(400, 20, n_informative=6, n_classes=classes, random_state=0)
        y = np.array(["a", "b", "c"])[numbers]
        for estimator in ESTIMATORS:
            for ensemble in (False, True):
                options = {"method": "temperature", "ensemble": ensemble, "cv": 5}
                theirs = CalibratedClassifierCV(estimator, **options).fit(x, y).predict_proba(x)
                ours = CalibratedClassifier(estimator, **options).fit(x, y).predict_proba(x)
                found.append((type(estimator).__name__, classes, ensemble, float(np.abs(ours - theirs).max())))
    return found


def checks() -> dict[str, dict[str, object]]:
    log: dict[str, dict[str, object]] = {}
    for estimator in (CalibratedClassifier(), LogitCalibrator()):
        done = check_estimator(estimator, on_fail=None, on_skip=None)
        failed = Counter(check["check_name"] for check in done if check["status"] == "failed")
        log[type(estimator).__name__] = {
            "counts": dict(Counter(check["status"] for check in done)), "failed": dict(failed),
        }  # fmt: skip
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    out = parser.parse_args().json
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    found, log = differences(), checks()
    print(table(("estimator", "classes", "ensemble", "largest difference"),
                [(n, c, "yes" if e else "no", f"{d:.1e}") for n, c, e, d in found]))  # fmt: skip
    for name, one in log.items():
        print(
            f"\n{name}: {one['counts']}", *(f"  failed: {check} x {n}" for check, n in one["failed"].items()), sep="\n"
        )
    if out is not None:
        out.write_text(json.dumps({"differences": found, "check_estimator": log}, indent=2))


if __name__ == "__main__":
    main()
