"""One-cycle beside torch's own, and plateau by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train import TrainConfig
from calibrant.train.loop.optim import build_schedule
from calibrant.train.loop.schedules import Plateau

Small = Callable[..., TrainConfig]


def optimizer(kind: type[torch.optim.Optimizer] = torch.optim.AdamW, **options: float) -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.01)]
    return kind(groups, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("peak", [0.3, 0.5])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_one_cycle_is_torch_s(small: Small, kind: type[torch.optim.Optimizer], peak: float) -> None:
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    ours, theirs = optimizer(kind, **options), optimizer(kind, **options)
    config = small("schedule.name=onecycle", "schedule.epochs=4", f"schedule.peak={peak}", "optimizer.lr=0.1")
    schedule = build_schedule(config, ours, updates_per_epoch=5)
    reference = torch.optim.lr_scheduler.OneCycleLR(theirs, [0.1, 0.01], total_steps=20, pct_start=peak)

    def state(o: torch.optim.Optimizer) -> list[float]:
        return [v for g in o.param_groups for v in (g["lr"], g["betas"][0] if "betas" in g else g["momentum"])]

    for update in range(20):
        schedule.step_update(update)
        assert state(ours) == pytest.approx(state(theirs), rel=1e-9), update
        theirs.step()
        if update < 19:
            reference.step()


def test_one_cycle_knows_layer_decay(small: Small) -> None:
    ours = optimizer()
    ours.param_groups[0]["lr_scale"] = 0.5
    config = small("schedule.name=onecycle", "schedule.epochs=4", "schedule.peak=0.5", "optimizer.lr=0.1")
    schedule = build_schedule(config, ours, updates_per_epoch=5)
    schedule.step_update(9)  # the top
    assert [g["lr"] for g in ours.param_groups] == pytest.approx([0.05, 0.01])


def test_one_cycle_has_its_own_warm_up(small: Small) -> None:
    with pytest.raises(ConfigError, match="warms up by itself"):
        small("schedule.name=onecycle", "schedule.warmup_epochs=1")


def test_plateau_lowers_the_rate_after_so_many_epochs_without_a_better_one(small: Small) -> None:
    ours = optimizer()
    config = small("schedule.name=plateau", "schedule.epochs=20", "schedule.warmup_epochs=1", "schedule.warmup_lr=0",
                   "schedule.plateau_patience=2", "schedule.decay_rate=0.1", "schedule.min_lr=0.0005",
                   "optimizer.lr=0.1", "engine.select=nll")  # fmt: skip
    schedule = build_schedule(config, ours, updates_per_epoch=4)
    assert isinstance(schedule, Plateau)

    def rate(update: int) -> float:
        schedule.step_update(update)
        return float(ours.param_groups[0]["lr"])

    assert [rate(u) for u in (0, 2, 4)] == pytest.approx([0.0, 0.05, 0.1])
    seen = []
    for epoch, nll in enumerate([1.0, 0.9, 0.95, 0.92, 0.8, 0.8, 0.85, 0.9, 0.9, 0.9, 0.9], start=1):
        schedule.after_epoch(nll, 4 * epoch)
        seen.append(rate(4 * epoch))
    assert seen == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001, 0.0005, 0.0005, 0.0005])
    again = Plateau(ours, factor=0.1, patience=2, warmup_updates=4, warmup_lr=0, min_lr=0.0005, by="nll")
    again.load_state_dict(schedule.state_dict())
    again.step_update(44)
    assert [g["lr"] for g in ours.param_groups] == pytest.approx([0.0005, 0.0005])


def test_plateau_waits_for_higher_accuracy(small: Small) -> None:
    config = small("schedule.name=plateau", "schedule.epochs=9", "schedule.plateau_patience=1",
                   "schedule.decay_rate=0.5", "schedule.warmup_epochs=0", "optimizer.lr=0.1",
                   "engine.select=accuracy")  # fmt: skip
    ours = optimizer()
    schedule = build_schedule(config, ours, updates_per_epoch=4)
    for epoch, accuracy in enumerate([0.5, 0.6, 0.7], start=1):
        schedule.after_epoch(accuracy, 4 * epoch)
    assert ours.param_groups[0]["lr"] == pytest.approx(0.1)
    schedule.after_epoch(0.7, 16)
    assert ours.param_groups[0]["lr"] == pytest.approx(0.05)
