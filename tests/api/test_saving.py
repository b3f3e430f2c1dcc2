"""A network from one's own loop is a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.errors import ConfigError, DataError, FormatError
from calibrant.images.preprocessing import Preprocessing

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")

Z = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32) * 3
Y = np.random.default_rng(1).integers(0, 3, 60)


def test_a_model_of_timm_loads_again(tmp_path: Path) -> None:
    from calibrant.train.run.folder import load_run

    model = timm.create_model("test_resnet", num_classes=3)
    config = timm.data.resolve_data_config({"input_size": (3, 32, 32)}, model=model)
    run = calibrant.save_run(tmp_path / "run", model, "abc", config, {"val": (Z, Y), "test": (Z[:30], Y[:30])})
    assert run.splits == ("test", "val")
    np.testing.assert_array_equal(run.predictions().logits, Z)
    assert run.predictions().class_names == ("a", "b", "c")
    trained = load_run(run.path)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(trained.network(x)[0], model.eval()(x))
    assert run.predictions().source.model["sha256"] == trained.sha256
    with pytest.raises(ConfigError, match="holds a run already"):
        calibrant.save_run(tmp_path / "run", model, "abc", config, (Z, Y))


@pytest.mark.slow
@pytest.mark.parametrize("head", [None, "3"])
def test_any_other_network_is_kept_as_a_graph(tmp_path: Path, head: str | None) -> None:
    """5 s: an export each."""
    from calibrant.train.run.folder import load_run

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 3)
    )
    prepared = Preprocessing((16, 16), 16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    run = calibrant.save_run(tmp_path / "run", network, ["a", "b", "c"], prepared, (Z, Y), head=head)
    calibrator = run.fit()
    model = run.export(tmp_path / "m.onnx", calibrator=calibrator)
    pixels = np.random.default_rng(2).integers(0, 256, (4, 16, 16, 3)).astype(np.uint8)
    with torch.no_grad():
        z = network(torch.from_numpy(prepared.normalise(pixels))).numpy()
    np.testing.assert_allclose(model.predict(pixels).probabilities, calibrator.probabilities(z), atol=1e-5)
    with pytest.raises(FormatError, match="was saved from a program as model.onnx"):
        load_run(run.path)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    model = timm.create_model("test_resnet", num_classes=3)
    with pytest.raises(DataError, match="class names"):
        calibrant.save_run(tmp_path / "run", model, "ab", Preprocessing((32, 32), 32), (Z, Y))
    with pytest.raises(ConfigError, match="does not say how pictures are prepared"):
        calibrant.save_run(tmp_path / "run", model, "abc", 3, (Z, Y))
    assert not (tmp_path / "run").exists()
