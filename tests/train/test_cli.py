from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant import plugins
from calibrant.errors import ConfigError, ModelError
from calibrant.train import engine, load_run
from calibrant.train.cli import _scaled, search, train
from calibrant.train.machines import ray_train
from calibrant.train.run.folder import CHECKPOINT_FILE
from calibrant.train.run.history import read_history

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--model", "test_resnet", "--image-size", "32", "--epochs", "1", "--device", "cpu", "--batch-size", "8"]


def _call(*arguments: str) -> str:
    result = CliRunner().invoke(train, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_flags_settings_and_file_meet_in_that_order(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'seed = 5\n[loss]\nname = "ls"\nalpha = 0.2\n[schedule]\nepochs = 9\n[engine]\ntensorboard = false\n'
    )
    out = tmp_path / "run"
    _call(str(file), "--data", str(image_folder), *TINY, "--out", str(out), "--set", "loss.alpha=0.1")
    config = json.loads((out / "config.json").read_text())["config"]
    assert (config["seed"], config["schedule"]["epochs"]) == (5, 1)
    assert config["loss"] == {"name": "ls", "options": {"alpha": 0.1}}
    assert config["optimizer"]["lr"] == 1e-3  # resolved


def test_another_loss_on_the_command_line_drops_the_file_s_options(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[loss]\nname = "ls"\nalpha = 0.2\n[engine]\ntensorboard = false\n')
    shown = _call(
        str(file), "--data", str(image_folder), *TINY, "--loss", "ce", "--out", str(tmp_path / "run"), "--json"
    )
    result = json.loads(shown)
    assert result["best_epoch"] == 1
    assert {Path(p).name for p in result["predictions"]} == {"val.parquet", "test.parquet"}


def test_mistakes_end_in_one_line(image_folder: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")]
    runner = CliRunner()
    for arguments, kind, text in (
        ([], ConfigError, "no data"),
        (["--data", str(image_folder), "--model", "resnet5O"], ModelError, 'did you mean "resnet50'),
        (["--data", str(image_folder), *TINY, "--loss", "vase"], ConfigError, 'did you mean "vace"'),
        (["--data", str(image_folder), *TINY, "--loss", "ls", "--set", "loss.alpa=1"], ConfigError, 'mean "alpha"'),
        (["--data", str(image_folder), "--set", "engine.batchsize=3"], ConfigError, 'did you mean "batch_size"'),
        (["--resume"], Exception, "not a run folder"),
        (["--recipe", "cub", "x.toml"], ConfigError, "not both"),
    ):  # fmt: skip
        result = runner.invoke(train, [*arguments, *out])
        assert isinstance(result.exception, kind), arguments
        assert text in str(result.exception), str(result.exception)
    assert not (tmp_path / "run").exists()


def test_the_same_line_with_resume_goes_on_and_another_is_refused(image_folder: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")]
    line = ["--data", str(image_folder), *TINY, *out, "--set", "engine.tensorboard=false"]
    _call(*line)
    assert "best epoch 1" in _call("--resume", *out, "--set", "data.workers=1")
    assert "best epoch 1" in _call(*line, "--resume")
    result = CliRunner().invoke(train, [*line, "--resume", "--lr", "5"])
    with pytest.raises(ConfigError, match="optimizer.lr was 0.001 and is 5"):
        raise result.exception or AssertionError


def test_a_run_that_is_at_its_end_goes_on_with_more_epochs(image_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    _call("--data", str(image_folder), *TINY, "--out", str(run), "--set", "engine.tensorboard=false")
    _call("--resume", "--out", str(run), "--epochs", "3")
    assert [line["epoch"] for line in read_history(run)] == [1, 2, 3]
    assert json.loads((run / "config.json").read_text())["config"]["schedule"]["epochs"] == 3
    _call("--resume", "--out", str(run))  # which is at its end again
    assert len(read_history(run)) == 3
    result = CliRunner().invoke(train, ["--resume", "--out", str(run), "--epochs", "2"])
    with pytest.raises(ConfigError, match="schedule.epochs was 3 and is 2"):
        raise result.exception or AssertionError


def test_a_size_is_a_side_or_height_x_width(image_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    _call("--data", str(image_folder), *TINY, "--out", str(run), "--image-size", "32x48", "--set",
          "engine.tensorboard=false")  # fmt: skip
    assert load_run(run).preprocessing.size == (32, 48)
    result = CliRunner().invoke(train, ["--data", str(image_folder), "--image-size", "32*48"])
    with pytest.raises(ConfigError, match="height x width"):
        raise result.exception or AssertionError


def test_a_recipe_read_on_other_data_says_what_to_set_and_search_takes_recipes(
    image_folder: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(train, ["--data", str(image_folder), "--recipe", "cub", "--out", str(tmp_path / "run")])
    assert "read as data.layout = cub; if they are others, pass --set data.layout=auto" in str(result.exception)
    small = {
        "data.layout": "auto", "data.train_list": "train", "model.name": "test_resnet", "model.pretrained": "false",
        "model.image_size": "32", "schedule.epochs": "1", "schedule.milestones": "[1]", "engine.device": "cpu",
        "engine.tensorboard": "false",
    }  # fmt: skip
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    out = ["--out", str(tmp_path / "search"), "--json"]
    arguments = ["--recipe", "vace/cub", "--data", str(image_folder), "--over", "loss.lam=0.25,0.5", *settings, *out]
    found = CliRunner().invoke(search, arguments, catch_exceptions=False)
    trials = json.loads(found.stdout)["trials"]
    assert sorted(t["settings"] for t in trials) == [["loss.lam=0.25"], ["loss.lam=0.5"]]
    both = CliRunner().invoke(search, ["x.toml", *arguments])
    assert "not both" in str(both.exception)


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from calibrant.train.cli import train;"
        "r = CliRunner().invoke(train, ['--help']); assert 'calibrant train --data' in r.output, r.output;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_clca_adds_the_aggregation_head_and_the_cache(image_folder: Path, tmp_path: Path) -> None:
    from calibrant.train.run.folder import load_run

    out = tmp_path / "run"
    _call(
        "--data", str(image_folder), "--model", "vit_tiny_patch16_224", "--image-size", "64", "--epochs", "1",
        "--device", "cpu", "--batch-size", "8", "--token-reduction", "evit", "--keep-rate", "0.5,0.75", "--clca",
        "--set", "model.options.depth=4", "--set", "model.options.embed_dim=48", "--set", "model.options.num_heads=3",
        "--set", "model.token_reduction.locations=[1, 2]", "--out", str(out),
    )  # fmt: skip
    network = load_run(out).network.network
    assert network.settings.rates == (0.5, 0.75)
    names = set(network.state_dict())
    assert any(n.startswith("cla.") for n in names)
    assert "clc.clr" in names
    with pytest.raises(ConfigError, match="--clca: needs a token reduction"):
        _call("--data", str(image_folder), *TINY, "--clca", "--out", str(tmp_path / "other"))
    with pytest.raises(ConfigError, match='--keep-rate: "0.5,half" is not a number, or numbers like'):
        _call("--data", str(image_folder), *TINY, "--token-reduction", "evit", "--keep-rate", "0.5,half")


def test_another_number_of_epochs_scales_the_schedule_of_a_recipe_and_says_so(
    image_folder: Path, tmp_path: Path
) -> None:
    line = ["--data", str(image_folder), "--recipe", "fedlas-ls/cifar10", *TINY, "--epochs", "7",
            "--out", str(tmp_path / "run"), "--set", "data.layout=auto", "--set", "nothing=1"]  # fmt: skip
    result = CliRunner().invoke(train, line)
    assert "schedule for 7 epochs in the place of 350: milestones [150, 250] -> [3, 5]" in result.output


def test_the_schedule_keeps_its_shares() -> None:
    table = {"schedule": {"epochs": 50, "warmup_epochs": 2, "cooldown_epochs": 5}, "seed": 1}
    assert _scaled(table, 1) == {"schedule": {"epochs": 50, "warmup_epochs": 0, "cooldown_epochs": 0}, "seed": 1}
    assert _scaled(table, 100)["schedule"] == {"epochs": 50, "warmup_epochs": 4, "cooldown_epochs": 10}
    assert _scaled(table, None) is table
    short = _scaled({"schedule": {"epochs": 350, "milestones": [150, 250]}}, 2)
    assert short["schedule"]["milestones"] == [1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "ray", "--workers", "2:4"], "calibrant train --resume --out {} --engine ray --workers 2:4"),
        (["--engine", "ray", "--workers", "3", "--ray-address", "there:6379"],
         "calibrant train --resume --out {} --engine ray --workers 3 --ray-address there:6379"),
        ([], "torchrun --nproc-per-node 2 -m calibrant train --resume --out {}"),
    ],
)  # fmt: skip
def test_ctrl_c_says_the_whole_command_that_goes_on(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Path:
        (tmp_path / CHECKPOINT_FILE).touch()
        raise KeyboardInterrupt

    if not options:
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(ray_train, "fit_on_ray", interrupted)
    monkeypatch.setattr(engine, "fit", interrupted)
    result = CliRunner().invoke(train, ["--data", str(tmp_path), "--out", str(tmp_path), *options])
    assert f"go on with: {said.format(tmp_path)}\n" in result.stderr
    assert result.exit_code == 1
