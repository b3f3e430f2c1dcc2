"""A notebook trains as the command does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.images.image_set import ImageSet

pytest.importorskip("torch")


@pytest.mark.slow
def test_pictures_in_memory_become_a_run_and_a_file(tmp_path: Path) -> None:
    """6 s, half of them the export."""
    from calibrant.train.data.split import Splits

    rng = np.random.default_rng(0)
    labels = np.arange(48) % 2
    pixels = (rng.integers(0, 120, (48, 32, 32, 3)) + 120 * labels[:, None, None, None]).astype(np.uint8)
    images = ImageSet(tuple(f"i{n}" for n in range(48)), labels, pixels=pixels)
    splits = Splits(("dark", "light"), images.rows(np.arange(32)), images.rows(np.arange(32, 48)))
    run = calibrant.train(
        splits, out=tmp_path / "run", model="test_resnet", image_size=32, epochs=2, pretrained=False, batch_size=8,
        settings={"augment.crop": "none", "engine.tensorboard": False, "model.crop_pct": 1.0},
    )  # fmt: skip
    assert run.splits == ("val",)
    assert run.class_names == ("dark", "light")
    assert [line["epoch"] for line in run.history()] == [1, 2]
    assert repr(run).startswith(f"<Run {run.path}: epoch ")
    assert run._repr_html_().count("<tr>") == 3
    best = max(line["val"]["accuracy"] for line in run.history())
    assert run.evaluate().accuracy.value == pytest.approx(best)
    with pytest.raises(calibrant.errors.DataError, match="it has val"):
        run.predictions("test")
    calibrator = calibrant.fit(run.predictions(), kind="logits")
    model = run.export(tmp_path / "model.onnx", calibrator=calibrator)
    expected = calibrator.probabilities(run.predictions().logits)
    np.testing.assert_allclose(model.predict(pixels[32:]).probabilities, expected, atol=1e-4)
