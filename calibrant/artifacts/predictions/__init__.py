"""The predictions file: what a model said about each sample, on its way from training or serving to calibration.

Parquet with the columns `id` (string), `label` (int64, null where unknown), `logits` (fixed-size list of float32),
and where wanted `features` (likewise) and `split` (string). Where images have labels that are no classes of the model,
`label` is null for them and `label_name` (string) says what every image was labelled with. Class names, the training
prior and the model's identity stand as JSON in the schema metadata under "calibrant". A folder of such files is one
table in shards.

`logits` are the model's own, with its class temperatures (VACE) applied and nothing else: softmax(logits) is what the
uncalibrated model claims.

Where the outcome is independent (see `foreign.outcome`), a column `labels` (fixed-size list of int8: 0, 1, null where
unknown) takes the place of `label`, and sigmoid that of softmax. `weight` (double) and `group`, `group_NAME` (string)
are kept where somebody else's file has them; rows of the split "oof" were each judged by a model that was trained
without their `group_fold`.

Files of other kinds (npz, npy, CSV, other Parquet, JSON lines, .pt) are read by `foreign.read`, whole.
"""

from __future__ import annotations

from calibrant.artifacts.predictions.file import PredictionsFile, read_predictions
from calibrant.artifacts.predictions.rows import FOLD, OUT_OF_FOLD, Predictions
from calibrant.artifacts.predictions.shard import is_own
from calibrant.artifacts.predictions.source import FORMAT_VERSION, Source
from calibrant.artifacts.predictions.writer import PredictionsWriter

__all__ = [
    "FOLD",
    "FORMAT_VERSION",
    "OUT_OF_FOLD",
    "Predictions",
    "PredictionsFile",
    "PredictionsWriter",
    "Source",
    "is_own",
    "read_predictions",
]
