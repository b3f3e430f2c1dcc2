"""A run folder as an object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant import html
from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.errors import ConfigError, DataError

if TYPE_CHECKING:
    from calibrant.api.report import Report
    from calibrant.calibration.calibrators import Calibrator
    from calibrant.serve.engine.classifier import Classifier


@dataclass(frozen=True)
class Run:
    """What training left behind in `path`: weights, history, predictions of the validation and test sets."""

    path: Path

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted(f.stem for f in (self.path / "predictions").glob("*.parquet")))

    def predictions(self, split: str = "val") -> Predictions:
        """Of the set that training held out (val), or of the test set where there is one."""
        file = self.path / "predictions" / f"{split}.parquet"
        if not file.is_file():
            raise DataError(f"has no predictions of {split}", where=self.path, fix=f"it has {', '.join(self.splits)}")
        return PredictionsFile.open(file).read()

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.predictions(self.splits[0]).class_names

    def history(self) -> list[dict[str, Any]]:
        """A line for each epoch."""
        from calibrant.train.run.history import read_history

        return read_history(self.path)

    def fit(self, method: str = "temperature", **options: Any) -> Calibrator:
        """A calibrator of the validation predictions, as `calibrant.fit` does it."""
        from calibrant.api.calibrating import fit

        return fit(self.path, method=method, **options)

    def evaluate(self, split: str | None = None, **options: Any) -> Report:
        """Of the test set, or of the validation set where there is no other; as `calibrant.evaluate` does it."""
        from calibrant.api.calibrating import evaluate
        from calibrant.api.report import Report

        chosen = split or ("test" if "test" in self.splits else "val")
        found = evaluate(self.path / "predictions" / f"{chosen}.parquet", **options)
        assert isinstance(found, Report)  # what a run learned has one class a picture
        return found

    def predict(self, data: str | Path, *, split: str = "test", features: bool = False) -> Predictions:
        """Predictions for pictures in any layout."""
        from calibrant.api.prediction import predict

        return predict(self.path, data, split=split, features=features)

    def export(
        self, out: str | Path, *, calibrator: Calibrator | str | Path | None = None, **options: Any
    ) -> Classifier:
        """Writes one ONNX file with the calibration inside and opens it; `options` are fields of ExportConfig."""
        import tempfile

        from calibrant.calibration.calibrators import Calibrator as Fitted
        from calibrant.export.config import ExportConfig
        from calibrant.export.run import export_run
        from calibrant.serve.engine.classifier import load

        saved = self.path / "model.onnx"
        if saved.is_file() and not (self.path / "model.safetensors").is_file():  # see save_run
            from calibrant.export.edit import recalibrate

            if options:
                raise ConfigError("is a model.onnx already", where=self.path, fix="leave the options of export out")
            chosen = Fitted.load(calibrator) if isinstance(calibrator, str | Path) else calibrator
            recalibrate(saved, chosen, out=out)
            return load(out)
        with tempfile.TemporaryDirectory(prefix="calibrant-") as folder:
            if isinstance(calibrator, Fitted):
                stored = Path(folder) / "calibrator.json"
                calibrator.save(stored)
                calibrator = stored
            export_run(
                self.path, out, ExportConfig(calibrator=None if calibrator is None else Path(calibrator), **options)
            )
        return load(out)

    def _line(self) -> str:
        lines = self.history() if (self.path / "metrics.jsonl").is_file() else []
        best = next((line for line in reversed(lines) if line.get("best")), None)
        if best is None or "val" not in best:
            return f"predictions of {', '.join(self.splits) or 'nothing'}"
        val = best["val"]
        return f"epoch {best['epoch']}: accuracy {val['accuracy']:.2%}, ECE {val['ece']:.2%} on the validation set"

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self._line()}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                line["epoch"],
                *(f"{line['val'][k]:.4f}" for k in ("accuracy", "nll", "ece")),
                "best" if line["best"] else "",
            )
            for line in self.history()
            if "val" in line
        ]
        if not rows:
            return html.table(("", ""), [("run", self.path), ("predictions", ", ".join(self.splits))])
        return html.table(("epoch", "accuracy", "NLL", "ECE", ""), rows, title=str(self.path))
