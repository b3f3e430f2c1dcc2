"""Is what a card says of the kind that its readers rely on? Its hash says only that nobody changed it since."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from calibrant.artifacts.foreign.outcome import OUTCOMES
from calibrant.artifacts.golden_rows import sound

if TYPE_CHECKING:
    from calibrant.artifacts.model_card import ModelCard

Gauge = Literal["none", "mean", "max", "logsoftmax"]  # of logits, before class temperatures divide them
GAUGES: tuple[Gauge, ...] = get_args(Gauge)
KNOB_MODES = ("baked", "runtime", "required")
_TEXTS = ("name", "gauge", "knobs", "description")
_OPTIONAL_TEXTS = ("created", "author", "licence")
_TABLES = ("metrics", "precision", "source", "versions", "hashes")
_OPTIONAL_TABLES = ("calibrator", "conformal", "ood", "verify", "golden", "adopted")


def check(card: ModelCard) -> None:
    """ValueError with the name of the first field that cannot be."""
    for name in _TEXTS + _OPTIONAL_TEXTS:
        value = getattr(card, name)
        _require(isinstance(value, str) or (value is None and name in _OPTIONAL_TEXTS), name)
    for name in _TABLES + _OPTIONAL_TABLES:
        value = getattr(card, name)
        _require(isinstance(value, Mapping) or (value is None and name in _OPTIONAL_TABLES), name)
    _require(card.gauge in GAUGES, "gauge")
    _require(card.knobs in KNOB_MODES, "knobs")
    _require(card.outcome in OUTCOMES, "outcome")
    _require(len(card.classes) >= (1 if card.independent else 2), "classes")
    _require(len(card.former_classes) in (0, len(card.classes)), "former_classes")
    _require(all(isinstance(o, str) for o in card.outputs) and "logits" in card.outputs, "outputs")
    worst = (card.verify or {}).get("max_diff")
    _require(worst is None or (isinstance(worst, Mapping) and _number(worst.get("probabilities"))), "verify")
    _require(all(isinstance(h, Mapping) for h in card.history), "history")
    _require(all(isinstance(v, str) for v in (card.input.name, card.input.dtype, card.input.layout)), "input")
    _require(card.abstain_below is None or _number(card.abstain_below), "abstain_below")
    _require(card.ood is None or isinstance(card.ood.get("kind"), str), "ood")
    _require(card.golden is None or sound(card.golden, len(card.classes)), "golden")
    _numbers(card)
    if card.head is not None:
        head = card.head
        _require(all(isinstance(v, str) and v for v in (head.kind, head.input, head.weight, head.bias)), "head")
        _require(head.raw_key is None or isinstance(head.raw_key, str), "head")
        _require(head.feature_dim is None or isinstance(head.feature_dim, int), "head")
    if card.calibrator is not None:
        kinds = {
            "fitted_on": Mapping,
            "parameters": Mapping,
            "metrics": Mapping,
            "conformal": Mapping,
            "abstain": Mapping,
        }
        for name, kind in kinds.items():
            value = card.calibrator.get(name)
            _require(value is None or isinstance(value, kind), f"calibrator {name}")
        _require(isinstance(card.calibrator.get("method"), str), "calibrator method")


def _numbers(card: ModelCard) -> None:
    classes, prior = len(card.classes), card.prior
    taus = card.class_temperatures
    _require(taus is None or (len(taus) == classes and all(_number(t) and t > 0 for t in taus)), "class_temperatures")
    for name, shares in (("train", prior.train), ("target", prior.target)):
        if shares is not None:
            _require(len(shares) == classes and all(_number(p) and p >= 0 for p in shares), f"prior {name}")
            _require(sum(shares) > 0 and (name == "target" or min(shares) > 0), f"prior {name}")
    _require(_number(prior.absorbed) and _number(prior.applied), "prior")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(holds: bool, name: str) -> None:
    if not holds:
        raise ValueError(f"{name} cannot be what it says")
