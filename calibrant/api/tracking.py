"""Reports in somebody else's books: the ECE with its interval after each epoch, the run at the end.

LightningCallback for Lightning, TrainerCallback for Hugging Face's Trainer, log_report for MLflow and Weights & Biases.
None of these libraries is imported before it is used.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.api.report import Report
from calibrant.calibration.evaluation import calibration_errors, scores
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.errors import ConfigError, MissingExtra

_TOLD = ("accuracy", "nll")


def epoch_metrics(logits: Any, labels: Any, *, bins: int = 15) -> dict[str, float]:
    """ece, ece_low, ece_high, ece_null (what chance would show), accuracy, nll."""
    found = statistics_of(np.asarray(logits, np.float64), np.asarray(labels))
    ece = calibration_errors(found, bins)["ece"]
    out = {"ece": ece.value, "ece_low": ece.low, "ece_high": ece.high, "ece_null": ece.null}
    out |= {key: m.value for key, m in scores(found).items() if key in _TOLD}
    return {key: float(value) for key, value in out.items() if value is not None}


def log_report(report: Report, to: Any, *, step: int | None = None, prefix: str = "", figure: bool = True) -> None:
    """Writes a report into MLflow ("mlflow") or Weights & Biases ("wandb", or a run of it).

    Every metric with its interval (`ece`, `ece_low`, `ece_high`), the verdict, the report as JSON and its diagram.
    """
    values = {}
    for key, m in report.metrics.items():
        for name, value in ((key, m.value), (f"{key}_low", m.low), (f"{key}_high", m.high)):
            if value is not None and np.isfinite(value):
                values[f"{prefix}{name}"] = float(value)
    verdict = "" if report.verdict is None else report.verdict.sentence
    with tempfile.TemporaryDirectory(prefix="calibrant-") as folder:
        files = [Path(folder) / "report.json"]
        files[0].write_text(json.dumps(report.to_dict(), indent=2))
        if figure:
            from calibrant.calibration.report.figures import reliability_figure, save

            files.append(Path(folder) / "reliability.png")
            save(reliability_figure([report.model]), files[1])
        if to == "mlflow":
            _to_mlflow(values, verdict, files, step, prefix)
        elif to == "wandb" or hasattr(to, "summary"):
            _to_wandb(to, values, verdict, files, step, prefix)
        else:
            raise ConfigError(
                f"does not know {to!r}", where="log_report", fix='use "mlflow", "wandb" or a run of wandb'
            )


def _to_mlflow(values: Mapping[str, float], verdict: str, files: list[Path], step: int | None, prefix: str) -> None:
    try:
        import mlflow
    except ModuleNotFoundError:
        raise MissingExtra("log_report", "tracking", "mlflow") from None
    mlflow.log_metrics(dict(values), step=step)
    mlflow.set_tag(f"{prefix}verdict", verdict)
    for file in files:
        mlflow.log_artifact(str(file), artifact_path=f"calibrant/{prefix}".rstrip("/"))


def _to_wandb(
    run: Any, values: Mapping[str, float], verdict: str, files: list[Path], step: int | None, prefix: str
) -> None:
    try:
        import wandb
    except ModuleNotFoundError:
        raise MissingExtra("log_report", "tracking", "wandb") from None
    if run == "wandb":
        run = wandb.run
    if run is None:
        raise ConfigError("no run of wandb is open", where="log_report", fix="call wandb.init() first")
    pictures = {f"{prefix}reliability": wandb.Image(str(f)) for f in files if f.suffix == ".png"}
    run.log({**values, **pictures}, step=step)
    run.summary[f"{prefix}verdict"] = verdict


class _Collected:
    """Logits and labels of the last pass over the validation set, and what a run is written with."""

    def __init__(self, out: str | Path | None, class_names: Any, preprocessing: Any) -> None:
        if out is not None and (class_names is None or preprocessing is None):
            raise ConfigError(
                "a run needs class_names and preprocessing", where="out", fix="give both, or leave it out"
            )
        if preprocessing is not None:  # what cannot be written is told before hours of training and not behind them
            from calibrant.api.saving import read_preprocessing

            preprocessing = read_preprocessing(preprocessing)
        self.out, self.class_names, self.preprocessing = out, class_names, preprocessing
        self.rows: list[tuple[Any, Any]] = []
        self.last: tuple[Any, Any] | None = None
        self.run: Any = None

    def joined(self) -> tuple[Any, Any]:
        from calibrant.api.saving import logits_and_labels

        self.last, self.rows = logits_and_labels(self.rows), []
        return self.last

    def write(self, model: Any) -> Any:
        from calibrant.api.saving import save_run

        if self.out is not None and self.last is not None:
            self.run = save_run(self.out, model, self.class_names, self.preprocessing, self.last, overwrite=True)
        return self.run


def lightning_callback() -> type:
    """The class LightningCallback: made when it is first asked for, since its base is Lightning's."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ModuleNotFoundError:
        try:
            from pytorch_lightning.callbacks import Callback
        except ModuleNotFoundError:
            raise MissingExtra("LightningCallback", "lightning", "lightning") from None

    class LightningCallback(Callback):  # type: ignore[misc]
        """Logs val_ece with its interval after each validation, and writes the run when training ends.

        outputs: gives (logits, labels) of (what validation_step returned, the batch); unless given, the step returns
        {"logits": ..., "labels": ...}, or the logits while the batch's second part are the labels. network: gives the
        module to save of the LightningModule; its `model` or `network` unless given.
        """

        def __init__(
            self,
            out: str | Path | None = None,
            *,
            class_names: Any = None,
            preprocessing: Any = None,
            outputs: Callable[[Any, Any], tuple[Any, Any]] | None = None,
            network: Callable[[Any], Any] | None = None,
            prefix: str = "val_",
        ) -> None:
            self.kept = _Collected(out, class_names, preprocessing)
            self.outputs, self.network, self.prefix = outputs or _of_step, network or _network_of, prefix

        @property
        def run(self) -> Any:
            return self.kept.run

        def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self.kept.rows = []

        def on_validation_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
        ) -> None:
            self.kept.rows.append(self.outputs(outputs, batch))

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if not self.kept.rows or trainer.sanity_checking:
                return
            values = epoch_metrics(*self.kept.joined())
            pl_module.log_dict({f"{self.prefix}{k}": v for k, v in values.items()}, sync_dist=False)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                self.kept.write(self.network(pl_module))

    return LightningCallback


def _of_step(outputs: Any, batch: Any) -> tuple[Any, Any]:
    if isinstance(outputs, Mapping) and "logits" in outputs:
        labels = next((outputs[k] for k in ("labels", "label", "targets", "target", "y") if k in outputs), None)
        return outputs["logits"], batch[1] if labels is None else labels
    if getattr(outputs, "ndim", 0) == 2:
        return outputs, batch[1]
    raise ConfigError(
        "validation_step returned no logits",
        where="LightningCallback",
        fix='return {"logits": logits, "labels": labels} from it, or pass outputs=',
    )


def _network_of(module: Any) -> Any:
    return next((getattr(module, n) for n in ("model", "network", "net", "backbone") if hasattr(module, n)), module)


def trainer_callback() -> type:
    """The class TrainerCallback: made when it is first asked for, since its base is transformers'."""
    try:
        from transformers import TrainerCallback as Base
    except ModuleNotFoundError:
        raise MissingExtra("TrainerCallback", "huggingface", "transformers") from None

    class TrainerCallback(Base):  # type: ignore[misc]
        """Logs eval_ece with its interval at each evaluation, and writes the run when training ends.

        Trainer(..., compute_metrics=callback.compute_metrics, callbacks=[callback])
        """

        def __init__(
            self, out: str | Path | None = None, *, class_names: Any = None, preprocessing: Any = None
        ) -> None:
            self.kept = _Collected(out, class_names, preprocessing)

        @property
        def run(self) -> Any:
            return self.kept.run

        def compute_metrics(self, found: Any) -> dict[str, float]:
            logits = found.predictions[0] if isinstance(found.predictions, tuple) else found.predictions
            self.kept.rows = [(logits, found.label_ids)]
            return epoch_metrics(*self.kept.joined())

        def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
            if state.is_world_process_zero:
                self.kept.write(model)

    return TrainerCallback
