"""The Laboratory's controls are the switches of `calibrant head`: same keys, same defaults, accepted values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
from click.testing import CliRunner

from calibrant.dashboard.widgets import switches
from calibrant.dashboard.widgets.switches import ALL, BY_HAND, Switch, describe, from_link, settings, to_link
from calibrant.errors import CalibrantError, ConfigError
from calibrant.settings.option import options_of

heads = pytest.importorskip("calibrant.train.heads.config", reason="needs the train extra")
KINDS = ALL["head.kind"].options
# A switch that only acts beside another one is tried beside it.
BESIDE: dict[str, dict[str, Any]] = {
    "augment.mixup_layer": {"augment.mixup": 1.0}, "auxiliary.temperature": {"auxiliary.name": "supcon"},
    "auxiliary.options": {"auxiliary.name": "center"}, "loss.options": {"loss.name": "focal"},
}  # fmt: skip
LOGISTIC: dict[str, tuple[Any, dict[str, Any]]] = {
    "loss.name": ("balanced-softmax", {"head.kind": "logistic"}),
    "loss.options": ("tau=2", {"head.kind": "logistic", "loss.name": "balanced-softmax"}),
}
TEXTS = {"head.hidden": "64, 32", "loss.options": "gamma=2", "auxiliary.options": "rate=0.25",
         "data.train_views": "eval, flip", "data.test_views": "flip", "data.background": "none of them",
         "posthoc.target_prior": "uniform"}  # fmt: skip


def default_of(key: str) -> Any:
    value: Any = heads.HeadConfig()
    for part in key.split("."):
        value = getattr(value, part)
    return value


def other(switch: Switch) -> Any:
    """A value that is not the default."""
    if switch.options:
        return next(o for o in switch.options[::-1] if o != switch.default)
    if switch.limits is None:
        return TEXTS[switch.key]
    low, high, step = switch.limits
    up = switch.default + step
    value = up if up <= high else switch.default - step
    return type(switch.default)(value)


def plain_switches() -> list[Switch]:
    return [s for s in ALL.values() if ":" not in s.key]


@pytest.mark.parametrize("switch", plain_switches(), ids=lambda s: s.key)
def test_default_is_the_command_s(switch: Switch) -> None:
    default = default_of(switch.key)
    if isinstance(default, tuple):
        assert switch.default == ", ".join(map(str, default))
    elif default is None or default == {}:  # the low end of a slider, or no text, means: not given
        assert switch.default == (switch.limits[0] if switch.limits else "")
    else:
        assert switch.default == default
        assert type(switch.default) is type(default)


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.options], ids=lambda s: s.key)
def test_every_choice_is_one_that_the_command_knows(switch: Switch) -> None:
    section, name = switch.key.partition(":")[0].split(".")
    if switch.key == "loss.name":
        from calibrant.train.losses import LOSSES

        # The others are auxiliary losses, or are heads of their own.
        assert set(LOSSES) - set(switch.options) == {"arcface", "supcon", "balanced-contrastive", "center", "prototype"}
        assert set(switch.options) <= set(LOSSES)
        return
    table = type(getattr(heads.HeadConfig(), section))
    words = {w for kind in _flat(get_type_hints(table)[name]) for w in ([kind] if isinstance(kind, str) else [])}
    assert set(switch.options) - {BY_HAND} == words


def _flat(kind: Any) -> list[Any]:
    parts = get_args(kind)
    return [kind] if not parts else [x for p in parts for x in _flat(p)]


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.limits], ids=lambda s: s.key)
def test_both_ends_of_a_slider_are_accepted_and_the_default_lies_on_a_step(switch: Switch) -> None:
    assert switch.limits is not None
    low, high, step = switch.limits
    assert low <= switch.default <= high
    assert (float(switch.default) - low) / step == pytest.approx(round((float(switch.default) - low) / step), abs=1e-6)
    kind = (switch.read_by or KINDS)[0]
    for value in (low, high):
        whole = type(switch.default)(value)
        heads.head_config({}, settings({"head.kind": kind, **BESIDE.get(switch.key, {}), switch.key: whole}))


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.key != "head.kind"], ids=lambda s: s.key)
def test_a_switch_changes_what_the_command_reads_for_each_kind_that_it_is_offered_for(switch: Switch) -> None:
    name = switch.key.partition(":")[0]
    for kind in KINDS:
        before = {"head.kind": kind, **BESIDE.get(switch.key, {})}
        value = other(switch)
        if kind == "logistic" and switch.key in LOGISTIC:
            value, before = LOGISTIC[switch.key]
        if not switch.applies_to(kind):
            assert settings({**before, switch.key: value}) == settings(before)
            continue
        plain = heads.head_config({}, settings(before))
        changed = heads.head_config({}, settings({**before, switch.key: value}))
        assert plain != changed, (kind, name)


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.read_by], ids=lambda s: s.key)
def test_the_command_refuses_what_is_not_offered_for_a_kind(switch: Switch) -> None:
    """So no control is greyed out that would have done something."""
    if switch.key in ("augment.mixup_layer", "loss.weights_from"):
        return  # refused, or idle, only beside another switch
    alone = replace(switch, read_by=())
    for kind in set(KINDS) - set(switch.read_by):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ALL, switch.key, alone)
            patch.setitem(ALL, "auxiliary.name", replace(ALL["auxiliary.name"], read_by=()))
            values = {"head.kind": kind, **BESIDE.get(switch.key, {}), switch.key: other(switch)}
            if switch.key.startswith("auxiliary.") and switch.key != "auxiliary.name":
                values["auxiliary.name"] = "supcon"
            with pytest.raises(CalibrantError):
                heads.head_config({}, settings(values))


def test_only_what_was_changed_is_set() -> None:
    values = {key: switch.default for key, switch in ALL.items()}
    assert settings(values) == []
    assert describe(values) == "all switches off"
    values |= {"head.kind": "cosine", "posthoc.adjust": 1.5, "head.margin": 0.3}  # cosine has no margin
    assert settings(values) == ['head.kind="cosine"', "posthoc.adjust=1.5"]
    assert describe(values) == "Kind cosine, Logit adjustment 1.5"


def test_a_word_takes_the_place_of_its_number() -> None:
    assert settings({"posthoc.adjust": 1.5, "posthoc.adjust:how": "auto"}) == ['posthoc.adjust="auto"']
    assert settings({"posthoc.adjust": 1.5, "posthoc.adjust:how": BY_HAND}) == ["posthoc.adjust=1.5"]


def test_lines_of_text_become_lists_words_and_settings() -> None:
    mlp = {"head.kind": "mlp"}
    assert settings(mlp | {"head.hidden": "64,32"})[1:] == ["head.hidden=[64, 32]"]
    assert settings({"data.train_views": "eval, flip"}) == ['data.train_views=["eval", "flip"]']
    assert settings({"data.background": 'a "b"'}) == ['data.background="a \\"b\\""']
    assert settings({"loss.options": "gamma = 2, indicator=gate, weighted=true"}) == [
        "loss.gamma=2", 'loss.indicator="gate"', "loss.weighted=true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values", [{"head.kind": "mlp", "head.hidden": "wide"}, {"loss.options": "gamma"}, {"loss.options": "a.b=1"}]
)
def test_text_that_cannot_be_read_is_refused_before_anything_starts(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(values)


def test_a_link_brings_back_what_was_changed_and_nothing_else() -> None:
    values = {key: switch.default for key, switch in ALL.items()}
    values |= {"head.kind": "mlp", "head.hidden": "64", "augment.noise": 0.25, "seed": 3}
    assert from_link(to_link(values)) == {
        "head.kind": "mlp", "head.hidden": "64", "augment.noise": 0.25, "seed": 3,
    }  # fmt: skip
    for bad in ("{", "[]", '{"x":1}', '{"seed":99}', '{"seed":0.5}', '{"head.kind":"<b>"}', '{"seed":true}'):
        assert from_link(bad) is None


def test_no_field_of_the_command_is_left_out() -> None:
    config = heads.HeadConfig()
    known = {"seed"} | {
        f"{section}.{field}"
        for section in config.__dataclass_fields__ if section != "seed"
        for field in getattr(config, section).__dataclass_fields__
    }  # fmt: skip
    assert {key.partition(":")[0] for key in ALL} == known


@pytest.mark.parametrize("switch", [s for s in ALL.values() if s.limits], ids=lambda s: s.key)
def test_a_slider_lies_inside_what_the_command_takes(switch: Switch) -> None:
    section, _, name = switch.key.rpartition(".")
    config = heads.HeadConfig()
    described = options_of(getattr(config, section) if section else config)[name]
    assert switch.limits == described.slider
    if described.allowed is not None:
        low = switch.limits[0] + (switch.limits[2] if described.none is not None else 0)  # type: ignore[index]
        assert described.allowed[0] <= low
        assert switch.limits[1] <= described.allowed[1]  # type: ignore[index]


def test_help_of_the_command_lists_every_setting_with_its_default() -> None:
    from calibrant.train.heads.cli import head

    shown = CliRunner().invoke(head, ["--help"]).output
    for key in {key.partition(":")[0] for key in ALL}:
        assert f"\n  {key} " in shown, key
    assert "from 1e-06 to 1e+06" in shown


def test_every_tooltip_says_what_it_does_its_default_and_how_it_is_set() -> None:
    for switch in switches.ALL.values():
        assert f"Set as `{switch.key.partition(':')[0]}`" in switch.tooltip()
        assert "Default: " in switch.tooltip()
