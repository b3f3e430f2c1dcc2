from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import ConfigError, DataError, FormatError, ModelError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train import TrainConfig, fit, load_run, predict_run
from calibrant.train.config import train_config
from calibrant.train.data.split import Splits
from calibrant.train.loop.epochs import Epoch
from calibrant.train.losses import LOSSES, DoubleCorrectionWarning, create_loss
from calibrant.train.model.network import build_network
from calibrant.train.run.checkpoint import load_checkpoint, save_checkpoint
from calibrant.train.run.folder import CHECKPOINT_FILE, MODEL_FILE
from calibrant.train.run.resume import resumed_config

Small = Callable[..., TrainConfig]


def test_a_folder_becomes_a_run_that_learns_and_predicts(small: Small) -> None:
    epochs: list[Epoch] = []
    config = small("schedule.epochs=8", "engine.tensorboard=true", "engine.features=true", "loss.name=vace")
    run = fit(config, on_epoch=epochs.append)
    assert [e.epoch for e in epochs] == list(range(1, 9))
    model = load_run(run)
    assert max(e.val["accuracy"] for e in epochs) > 0.6  # three noisy colours; chance is 1/3
    predictions = read_predictions(run / "predictions" / "val.parquet", features=True)
    best = next(e for e in reversed(epochs) if e.best)
    np.testing.assert_allclose((predictions.logits.argmax(1) == predictions.labels).mean(), best.val["accuracy"])
    assert predictions.split is not None
    assert set(predictions.split) == {"val"}
    assert predictions.source.class_names == ("blue", "green", "red")
    np.testing.assert_allclose(predictions.source.train_prior or (), np.array([14, 10, 7]) / 31)
    assert predictions.source.model["sha256"] == model.sha256
    assert predictions.features is not None
    taus = model.class_temperatures
    assert taus is not None
    assert predictions.source.class_temperatures == tuple(map(float, taus))
    head = model.network.classifier_layers()[0]
    z = head(torch.tensor(predictions.features)).detach().numpy() / taus
    np.testing.assert_allclose(predictions.logits, z, rtol=1e-4, atol=1e-5)
    assert list((run / "tb").glob("events.*"))
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 8


def test_predicting_a_folder_again_gives_the_run_s_own_predictions(
    small: Small, image_folder: Path, tmp_path: Path
) -> None:
    run = fit(small())
    out = predict_run(run, image_folder, tmp_path / "again.parquet", split="test", batch_size=4)
    own, again = read_predictions(run / "predictions" / "test.parquet"), read_predictions(out)
    np.testing.assert_allclose(again.logits, own.logits, atol=1e-5)
    assert again.labels.tolist() == own.labels.tolist()


def _final(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / CHECKPOINT_FILE)


class _StopError(Exception):
    pass


@pytest.mark.parametrize("stop_after", [1, 4, 7])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    settings = (
        "schedule.epochs=3", "engine.checkpoint_updates=1", "engine.accumulate=2", "engine.ema_decay=0.9",
        "optimizer.clip_norm=1.0", "loss.name=vace", "engine.drop_last=false", "model.options.drop_rate=0.2",
    )  # fmt: skip
    config = small(*settings)
    whole = fit(replace(config, out=tmp_path / "whole"))

    import calibrant.train.loop.trainer as trainer

    written = 0

    def failing(path: Path, state: dict[str, object]) -> None:
        nonlocal written
        save_checkpoint(path, state)
        written += 1
        if written > stop_after:
            raise _StopError

    monkeypatch.setattr(trainer, "save_checkpoint", failing)
    with pytest.raises(_StopError):
        fit(replace(config, out=tmp_path / "parts"))
    monkeypatch.undo()
    run = fit(resumed_config(tmp_path / "parts", []), resume=True)
    expected, found = _final(whole), _final(run)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    a, b = load_file(whole / MODEL_FILE), load_file(run / MODEL_FILE)
    assert all(torch.equal(a[k], b[k]) for k in a)
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    reference = [json.loads(x) for x in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [x["train"] for x in lines] == [x["train"] for x in reference]


def test_an_interrupt_leaves_a_run_that_loads_and_goes_on(small: Small) -> None:
    import os
    import signal

    config = small("schedule.epochs=4")

    def interrupt(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(config, on_epoch=interrupt)
    assert load_run(config.out).class_names == ("blue", "green", "red")
    fit(resumed_config(config.out, []), resume=True)
    assert len((config.out / "metrics.jsonl").read_text().splitlines()) == 4


def test_accumulated_micro_batches_equal_one_batch(small: Small, tmp_path: Path) -> None:
    """LayerNorm network: batch statistics are the one thing that micro-batches change. 31 images: 16 + 15 rows."""
    runs = []
    for name, batch, accumulate in (("one", 16, 1), ("four", 4, 4)):
        config = small(
            "model.name=test_vit", f"engine.batch_size={batch}", f"engine.accumulate={accumulate}", "augment.crop=none",
            "augment.flip=none", "optimizer.name=momentum", "schedule.epochs=1", "engine.drop_last=false",
        )  # fmt: skip
        runs.append(fit(replace(config, out=tmp_path / name)))
    a, b = (load_file(r / MODEL_FILE) for r in runs)
    for key in a:
        torch.testing.assert_close(a[key], b[key], rtol=1e-4, atol=2e-6)


def test_a_loss_that_is_not_finite_stops_and_names_the_batch_and_what_is_good(small: Small) -> None:
    config = small("optimizer.name=sgd", "optimizer.lr=1e6", "model.name=test_vit", "schedule.epochs=9")
    with pytest.raises(ModelError, match=r"loss became (nan|inf).* epoch \d+, batch \d+.*checkpoint.safetensors"):
        fit(config)
    state = load_checkpoint(config.out / CHECKPOINT_FILE)
    assert state["position"]["update"] >= 0


def test_patience_ends_a_run_that_no_longer_improves(small: Small) -> None:
    config = small("schedule.epochs=30", "optimizer.lr=0.0", "engine.patience=3", "model.name=test_vit")
    run = fit(config)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4


def test_foreign_newer_and_unfinished_runs_are_refused_by_name(small: Small, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such run folder"):
        load_run(tmp_path / "none")
    with pytest.raises(FormatError, match="not a run folder"):
        load_run(tmp_path)
    run = fit(small("schedule.epochs=1"))
    weights = (run / MODEL_FILE).read_bytes()
    (run / MODEL_FILE).write_bytes(weights.replace(b'\\"format_version\\": 1', b'\\"format_version\\": 9'))
    with pytest.raises(FormatError, match="format 9 is newer"):
        load_run(run)
    (run / MODEL_FILE).write_bytes(weights[:-1000])
    with pytest.raises(FormatError, match="model.safetensors: damaged weights"):
        load_run(run)
    (run / MODEL_FILE).write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(FormatError, match="not a safetensors file"):
        load_run(run)
    (run / MODEL_FILE).unlink()
    with pytest.raises(FormatError, match="before its first epoch.*--resume"):
        load_run(run)


def test_settings_are_checked_by_name() -> None:
    with pytest.raises(ConfigError, match='no key "epoch"; did you mean "epochs"'):
        train_config({"schedule": {"epoch": 3}})
    with pytest.raises(ConfigError, match="batch_size is 0"):
        train_config({"engine": {"batch_size": 0}})
    config = train_config({"loss": {"name": "ls", "alpha": 0.1}}, ["schedule.epochs=7"])
    assert config.loss.options == {"alpha": 0.1}
    assert config.schedule.epochs == 7


LOGIT_LOSSES = [name for name, cls in LOSSES.items() if cls.trains_classifier]


@pytest.mark.parametrize("name", LOGIT_LOSSES)
def test_every_loss_trains_and_its_predictions_are_what_it_says(small: Small, name: str) -> None:
    """The logits in the predictions file are loss.adjust_logits of the network's, with the loss's saved state."""
    run = fit(small(f"loss.name={name}", "schedule.epochs=2", "engine.select=nll"))
    model = load_run(run)
    saved = load_checkpoint(run / CHECKPOINT_FILE)
    if saved["position"]["best_epoch"] == 2:  # then the checkpoint's loss is that of the kept model
        loss = create_loss(name, num_classes=3, feature_dim=model.network.feature_dim, class_counts=[14, 10, 7])
        loss.load_state_dict(saved["loss"])
        z = torch.randn(5, 3)
        torch.testing.assert_close(model.adjust(z), loss.eval().adjust_logits(z).float(), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        logits, _ = model.network(torch.zeros(1, 3, 32, 32))
    assert bool(torch.isfinite(logits).all())
    assert (float(logits.abs().max()) <= 1.0001) == (name in ("ldam", "arcface")) or name not in ("ldam", "arcface")
    if name.startswith("fedlas"):
        assert model.feature_norm is not None
        line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        assert 0 <= line["loss"]["flip_rate"] <= 1
    expected = {"balanced-softmax": 1.0, "logit-adjusted": 1.0}.get(name)
    if expected is not None:
        assert model.absorbed == expected


def test_a_reduced_transformer_trains_with_its_own_term_and_loads_again(small: Small) -> None:
    losses = {}
    for weight in (0.0, 100.0):
        reduction = {"method": "dynamicvit", "keep_rate": 0.7, "cla": True, "cache_tokens": 1, "locations": [1, 2],
                     "ratio_weight": weight}  # fmt: skip
        options = {"depth": 4, "embed_dim": 48, "num_heads": 3}
        model = {"image_size": 64, "token_reduction": reduction, "options": options}
        config = small("model.name=vit_tiny_patch16_224", "schedule.epochs=1", "engine.ema_decay=0.5", model=model)
        run = fit(config, overwrite=True)
        losses[weight] = json.loads((run / "metrics.jsonl").read_text())["train"]["loss"]
        assert type(load_run(run).network.network).__name__ == "ReducedViT"
        assert len(read_predictions(run / "predictions" / "val.parquet")) == 15
    assert losses[100.0] > losses[0.0] + 0.1  # the ratio of kept tokens is never met at once


def test_bfloat16_training_keeps_float32_weights_and_predictions(small: Small) -> None:
    run = fit(small("engine.amp=bf16", "loss.name=fedlas-ls", "schedule.epochs=1"))
    assert {t.dtype for t in load_file(run / MODEL_FILE).values() if t.is_floating_point()} == {torch.float32}
    with pytest.raises(ConfigError, match="fp16 needs a CUDA device"):
        fit(small("engine.amp=fp16"), overwrite=True)


def test_an_auxiliary_loss_alone_is_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match="center is an auxiliary term"):
        fit(small("loss.name=center"))


def test_mixing_policies_and_a_balanced_sampler_train_and_resume(small: Small, tmp_path: Path) -> None:
    config = small(
        "augment.mixup=0.4", "augment.cutmix=1.0", "augment.mix_prob=0.5", "augment.policy=trivial", "loss.name=vace",
        "augment.erasing=0.3", "data.sampler=balanced", "schedule.epochs=2", "engine.checkpoint_updates=1",
    )  # fmt: skip
    whole = fit(replace(config, out=tmp_path / "whole"))
    assert load_run(whole).absorbed == 1.0  # the sampler has made the classes equal

    def stop(epoch: Epoch) -> None:
        raise _StopError

    with pytest.raises(_StopError):
        fit(replace(config, out=tmp_path / "parts"), on_epoch=stop)
    run = fit(resumed_config(tmp_path / "parts", []), resume=True)
    assert (run / MODEL_FILE).read_bytes() == (whole / MODEL_FILE).read_bytes()


def test_two_prior_corrections_are_told(small: Small) -> None:
    with pytest.warns(DoubleCorrectionWarning, match=r"BalancedSoftmax \(1\) \+ the sqrt sampler \(0.5\) = .*1.5"):
        run = fit(small("loss.name=balanced-softmax", "data.sampler=sqrt", "schedule.epochs=1"))
    assert load_run(run).absorbed == 1.5


SALIENT = ("augment.superpixel_mix=3", "augment.mix_prob=0.5", "augment.transplant=0.8", "augment.superpixels=[5, 9]")


@pytest.mark.parametrize("saliency", ["class-map", "spectral"])
def test_superpixels_and_transplants_train_and_resume_with_other_workers(
    small: Small, tmp_path: Path, saliency: str
) -> None:
    config = small(
        *SALIENT, f"augment.saliency={saliency}", "augment.policy=trivial", "loss.name=vace", "data.cache=off",
        "schedule.epochs=2", "engine.checkpoint_updates=1", "engine.accumulate=2", "data.workers=0",
    )  # fmt: skip
    whole = fit(replace(config, out=tmp_path / "whole"))

    def stop(epoch: Epoch) -> None:
        raise _StopError

    with pytest.raises(_StopError):
        fit(replace(config, out=tmp_path / "parts"), on_epoch=stop)
    run = fit(resumed_config(tmp_path / "parts", ["data.workers=2"]), resume=True)
    assert (run / MODEL_FILE).read_bytes() == (whole / MODEL_FILE).read_bytes()
    assert _final(run).keys() == _final(whole).keys()
    assert all(torch.equal(t, _final(whole)[k]) for k, t in _final(run).items())
    plain = fit(small("augment.policy=trivial", "loss.name=vace", "schedule.epochs=2", "engine.accumulate=2"))
    assert (plain / MODEL_FILE).read_bytes() != (whole / MODEL_FILE).read_bytes()
    # 14, 10 and 7 images: the last two classes lack 1/3 and 10/3 of the mean, and the first lends .8 * .2 of itself
    # in the half of the batches that is not mixed.
    mass = np.array([14 - 1.12, 10 + 1.12 / 11, 7 + 1.12 * 10 / 11])
    log_n = np.log([14, 10, 7]) - np.log([14, 10, 7]).mean()
    slope = (log_n * np.log(mass / [14, 10, 7])).sum() / (log_n**2).sum()
    assert load_run(whole).absorbed == pytest.approx(-slope, abs=1e-4)


def test_transplants_and_mixing_that_could_do_nothing_are_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match="transplanted in batches that are not mixed"):
        train_config({"augment": {"cutmix": 1.0, "transplant": 0.5}})
    with pytest.raises(ConfigError, match="more of them than the 9 that are pasted"):
        train_config({"augment": {"superpixel_mix": 9, "superpixels": [9, 20]}})
    with pytest.raises(ConfigError, match="none is rare"):
        fit(small("augment.transplant=0.5", "data.sampler=balanced"))
    with pytest.raises(ConfigError, match="has no batch norm"):
        fit(small("engine.sync_bn=true", "model.name=test_vit"))
    assert not small().out.exists()  # nothing is in the way of a better try
    reduced = {"name": "vit_tiny_patch16_224", "token_reduction": {"method": "evit"}}
    with pytest.raises(ConfigError, match="no class map"):
        train_config({"augment": {"superpixel_mix": 3}, "model": reduced})


def test_an_unreadable_donor_lends_nothing_and_is_listed(small: Small, image_folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(image_folder, tmp_path / "torn")
    for i in range(7):
        (root / "train" / "red" / f"{i:03d}.png").write_bytes(b"not an image")
    (root / "train" / "red" / "good.png").write_bytes((image_folder / "train" / "red" / "000.png").read_bytes())
    settings = (f"data.path={root}", "data.cache=off", "augment.transplant=1.0", "schedule.epochs=1", "data.workers=0")
    run = fit(small(*settings, "data.on_bad_image=skip", "engine.drop_last=false"))
    assert len((run / "bad-images.txt").read_text().splitlines()) == 7
    with pytest.raises(DataError, match="train/red"):
        fit(small(*settings), overwrite=True)


def test_vace_without_an_unmixed_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="would see none"):
        train_config({"loss": "vace", "augment": {"mixup": 0.2}})


def test_images_in_memory_train_without_a_folder(small: Small) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    pixels = np.clip(rng.normal(80 + 90 * labels[:, None, None, None], 30, (40, 32, 32, 3)), 0, 255).astype(np.uint8)
    images = ImageSet(tuple(map(str, range(40))), labels, pixels=pixels)
    splits = Splits(("dark", "light"), images.rows(np.arange(28)), images.rows(np.arange(28, 40)))
    config = small("augment.crop=pad", "schedule.epochs=4")
    run = fit(replace(config, data=replace(config.data, path=None)), splits=splits)
    assert load_run(run).class_names == ("dark", "light")
    assert not (run / "predictions" / "test.parquet").exists()


def test_a_frozen_backbone_stays_as_it_was_and_the_head_learns(small: Small, tmp_path: Path) -> None:
    config = small("model.freeze=backbone", "schedule.epochs=2", "optimizer.lr=0.01", "engine.select=nll")
    never = fit(replace(config, out=tmp_path / "never", optimizer=replace(config.optimizer, lr=0.0)))
    run = fit(config)
    start, end = (load_file(r / CHECKPOINT_FILE) for r in (never, run))
    changed = {k.removeprefix("state.network.") for k in end if k.startswith("state.network.")
               and not torch.equal(start[k], end[k])}  # fmt: skip
    assert changed == {"fc.weight", "fc.bias"}
    assert {int(v) for k, v in end.items() if k.endswith("num_batches_tracked")} == {0}  # batch norm is at rest


def test_a_small_stem_keeps_the_resolution_and_travels_with_the_run(small: Small) -> None:
    run = fit(
        small("model.name=resnet18", "model.small_stem=true", "model.options.channels=[8,8,16,16]", "schedule.epochs=1")
    )
    network = load_run(run).network.network
    with torch.no_grad():
        assert network.forward_features(torch.zeros(1, 3, 32, 32)).shape[-2:] == (4, 4)  # type: ignore[operator]
    with pytest.raises(ModelError, match="has no ResNet stem"):
        fit(small("model.name=test_vit", "model.small_stem=true"), overwrite=True)


def test_evaluation_transform_follows_the_settings(small: Small) -> None:
    def made(*settings: str) -> Preprocessing:
        return build_network(small("model.name=test_vit", *settings), 3)[1]

    assert made().resize == 33  # of timm's crop_pct, .95: floor(32 / .95)
    assert made("model.image_size=128", "model.crop_pct=0.5").resize == 256
    assert made().mean == (0.5, 0.5, 0.5)  # the model's own
    assert made("model.normalise=imagenet").mean == (0.485, 0.456, 0.406)


def test_a_full_disk_is_told_in_one_line_and_nothing_is_half_written(small: Small) -> None:
    import resource

    config = small("schedule.epochs=1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a checkpoint is larger
    try:
        with pytest.raises(DataError, match="cannot be written to: File too large.*complete"):
            fit(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p.name for p in config.out.iterdir()} <= {"config.json", "metrics.jsonl"}
    fit(config, overwrite=True)


def test_a_label_beyond_the_classes_is_named(small: Small) -> None:
    images = ImageSet(("a", "b", "c"), np.array([0, 1, 2]), pixels=np.zeros((3, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match="label 2.*2 classes"):
        fit(small(), splits=Splits(("x", "y"), images, images))


@pytest.mark.parametrize("gauge", ["none", "mean", "max", "logsoftmax"])
def test_every_gauge_of_vace_survives_saving(small: Small, gauge: str) -> None:
    run = fit(small("loss.name=vace", f"loss.gauge={gauge}", "schedule.epochs=1"))
    model = load_run(run)
    loss = create_loss("vace", num_classes=3, feature_dim=model.network.feature_dim, gauge=gauge)
    loss.load_state_dict(load_checkpoint(run / CHECKPOINT_FILE)["loss"])
    z = torch.randn(6, 3) * 4
    assert model.gauge == gauge
    torch.testing.assert_close(model.adjust(z), loss.eval().adjust_logits(z), rtol=1e-5, atol=1e-5)


def test_a_loss_keeps_its_hardest_rows_from_the_settings(small: Small, tmp_path: Path) -> None:
    plain = fit(small("schedule.epochs=2"))
    later, at_once = (
        fit(replace(small("loss.keep_hardest=0.5", f"loss.keep_after={n}", "schedule.epochs=2"), out=tmp_path / str(n)))
        for n in (1, 0)
    )
    losses = [[json.loads(x)["train"]["loss"] for x in (r / "metrics.jsonl").read_text().splitlines()]
              for r in (plain, later, at_once)]  # fmt: skip
    assert losses[1][0] == losses[0][0]  # the first epoch counts all
    assert losses[1][1] > losses[0][1]
    assert losses[2][0] > losses[0][0]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the compiler's own
def test_a_compiled_network_trains_to_the_weights_of_a_plain_one(small: Small, tmp_path: Path) -> None:
    if shutil.which("gcc") is None and shutil.which("clang") is None:
        pytest.skip("no compiler")
    settings = ("loss.name=vace", "optimizer.name=momentum", "schedule.epochs=1", "optimizer.lr=0.01")
    plain, compiled = (
        load_file(fit(replace(small(*settings, f"engine.compile={word}"), out=tmp_path / word)) / MODEL_FILE)
        for word in ("false", "true")
    )
    assert plain.keys() == compiled.keys()
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_one_cycle_and_plateau_go_on_exactly(small: Small, tmp_path: Path, schedule: str) -> None:
    config = small(f"schedule.name={schedule}", "schedule.epochs=4", "schedule.plateau_patience=1", "engine.top_k=2",
                   "schedule.decay_rate=0.5", "engine.select=nll")  # fmt: skip
    whole = fit(replace(config, out=tmp_path / "whole"))

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            raise _StopError

    with pytest.raises(_StopError):
        fit(replace(config, out=tmp_path / "parts"), on_epoch=stop)
    run = fit(resumed_config(tmp_path / "parts", []), resume=True)
    for name in (CHECKPOINT_FILE, MODEL_FILE):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    kept = [sorted(p.name for p in (r / "epochs").iterdir()) for r in (whole, run)]
    assert kept[0] == kept[1]
    lines = [json.loads(x) for x in (whole / "metrics.jsonl").read_text().splitlines()]
    best = sorted(lines, key=lambda line: line["val"]["nll"])[:2]
    assert kept[0] == sorted(f"epoch-{line['epoch']:04d}.safetensors" for line in best)
    model = load_run(whole / "epochs" / kept[0][0])
    assert model.run == whole
    assert model.source().model["run"] == "whole"


def test_wide_grey_pictures_train_mix_and_are_predicted_as_they_were_validated(
    small: Small, image_folder: Path, tmp_path: Path
) -> None:
    config = small("model.image_size=[24, 40]", "model.in_chans=1", "augment.superpixel_mix=2", "schedule.epochs=3",
                   "augment.superpixels=[4, 8]", "augment.mix_prob=0.5", "augment.transplant=0.5")  # fmt: skip
    run = fit(config)
    model = load_run(run)
    assert (model.preprocessing.size, model.preprocessing.crop) == ((24, 40), "cover")
    again = predict_run(run, image_folder, tmp_path / "again.parquet", split="val")
    first = read_predictions(run / "predictions" / "val.parquet")
    np.testing.assert_allclose(read_predictions(again).logits, first.logits, rtol=1e-5, atol=1e-6)
