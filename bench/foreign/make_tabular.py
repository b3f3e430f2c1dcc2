"""Foreign files of classifiers of numbers: scikit-learn, LightGBM and XGBoost through their ONNX converters.

    python bench/foreign/make_tabular.py DIR/digits.npz DIR

Needs skl2onnx, onnxmltools, lightgbm and xgboost.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import onnxmltools
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def main() -> None:
    archive, folder = np.load(sys.argv[1]), Path(sys.argv[2])
    x, y = archive["f_train"], archive["y_train"]
    kind = [("x", FloatTensorType([None, x.shape[1]]))]
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=2000)).fit(x, y)
    onnx.save(to_onnx(linear, x[:1]), str(folder / "skl2onnx-logistic.onnx"))
    named = np.asarray([f"digit {k}" for k in range(10)])
    forest = RandomForestClassifier(8, max_depth=5, random_state=0).fit(x, named[y])
    onnx.save(to_onnx(forest, x[:1]), str(folder / "skl2onnx-forest.onnx"))
    odd = LogisticRegression(C=100.0, max_iter=2000).fit(x, y % 2)
    onnx.save(to_onnx(odd, x[:1]), str(folder / "skl2onnx-binary.onnx"))
    light = lightgbm.LGBMClassifier(n_estimators=6, num_leaves=4, learning_rate=0.4, verbose=-1, n_jobs=1).fit(x, y)
    onnx.save(onnxmltools.convert_lightgbm(light, initial_types=kind), str(folder / "lightgbm.onnx"))
    extreme = xgboost.XGBClassifier(n_estimators=6, max_depth=2, learning_rate=0.6, n_jobs=1).fit(x, y)
    onnx.save(onnxmltools.convert_xgboost(extreme, initial_types=kind), str(folder / "xgboost.onnx"))


if __name__ == "__main__":
    main()
