"""The Laboratory's controls are the switches of `calibrant head`: same keys, same defaults, accepted values."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from calibrant.dashboard.switches import ALL, Switch, describe, settings

heads = pytest.importorskip("calibrant.train.heads.config", reason="needs the train extra")


def default_of(key: str) -> Any:
    value: Any = heads.HeadConfig()
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("switch", ALL.values(), ids=ALL.keys())
def test_default_is_the_command_s(switch: Switch) -> None:
    if switch.key == "auxiliary.temperature":  # an option of the loss itself
        import inspect

        from calibrant.train.losses import LOSSES

        assert inspect.signature(LOSSES["supcon"]).parameters["temperature"].default == switch.default
        return
    assert default_of(switch.key) == switch.default


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.options], ids=lambda s: s.key)
def test_every_choice_is_one_that_the_command_knows(switch: Switch) -> None:
    section, name = switch.key.split(".")
    if switch.key == "loss.name":
        from calibrant.train.losses import LOSSES

        assert set(switch.options) <= set(LOSSES)
        return
    table = type(getattr(heads.HeadConfig(), section))
    assert set(switch.options) == set(get_args(get_type_hints(table)[name]))


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.limits], ids=lambda s: s.key)
def test_both_ends_of_a_slider_are_accepted_and_the_default_lies_on_a_step(switch: Switch) -> None:
    assert switch.limits is not None
    low, high, step = switch.limits
    assert low <= switch.default <= high
    assert (float(switch.default) - low) / step == pytest.approx(round((float(switch.default) - low) / step), abs=1e-6)
    for value in (low, high):
        whole = int(value) if isinstance(switch.default, int) else value
        heads.head_config({}, settings({switch.key: whole}) if whole != switch.default else [])


def test_only_what_was_changed_is_set() -> None:
    values = {key: switch.default for key, switch in ALL.items()}
    assert settings(values) == []
    assert describe(values) == "all switches off"
    values |= {"head.kind": "cosine", "posthoc.adjust": 1.5}
    assert settings(values) == ['head.kind="cosine"', "posthoc.adjust=1.5"]
    assert describe(values) == "Kind cosine, Logit adjustment 1.5"


def test_no_field_of_the_command_is_forgotten_by_accident() -> None:
    """New switches fail here until somebody decides whether the page offers them."""
    left_out = {
        "head.hidden", "head.heads", "head.temperature", "head.l2", "head.metric", "data.val_per_class",
        "data.val_fraction", "data.order_seed", "data.split_seed", "data.train_views", "data.test_views",
        "data.background", "optimizer.name", "optimizer.momentum", "optimizer.batch_size", "optimizer.schedule",
        "loss.options", "loss.weights_beta", "loss.weights_from", "loss.hard_from", "augment.smote_neighbours",
        "augment.head_tail_lam", "auxiliary.projection", "auxiliary.options", "crt.lr",
    }  # fmt: skip
    config = heads.HeadConfig()
    known = {"seed"} | {
        f"{section}.{field}"
        for section in config.__dataclass_fields__ if section != "seed"
        for field in getattr(config, section).__dataclass_fields__
    }  # fmt: skip
    assert known - set(ALL) == left_out
    assert set(ALL) - known == {"auxiliary.temperature"}
