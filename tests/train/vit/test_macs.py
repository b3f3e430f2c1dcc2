"""Multiply-accumulates against the paper's tables and figures, and against what really runs."""

from __future__ import annotations

import pytest
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from calibrant.train.vit import METHODS, reduce_tokens
from calibrant.train.vit.macs import count_macs

# vit_small at 224, 200 classes: ratio to the unreduced 4.599 G, base and CLCA (spec/clca.md 6).
RATIOS = {
    ("none", 1.0): (1.0, 1.047),
    ("topk", 0.25): (0.372, 0.393),
    ("topk", 0.9): (0.867, 0.909),
    ("evit", 0.1): (0.326, 0.344),
    ("evit", 0.7): (0.659, 0.691),
    ("dynamicvit", 0.25): (0.352, 0.371),
    ("dynamicvit", 0.7): (0.648, 0.676),
    ("ats", 0.25): (0.361, 0.378),
    ("ats", 0.9): (0.858, 0.878),
    ("dpcknn", 0.1): (0.295, 0.336),
    ("dpcknn", 0.7): (0.631, 0.675),
    ("tome", 0.1): (0.592, 0.635),
    ("tome", 0.7): (0.648, 0.692),
    ("sit", 0.25): (0.344, 0.360),
    ("sit", 0.9): (0.870, 0.889),
    ("patchmerger", 0.25): (0.340, 0.356),
    ("patchmerger", 0.7): (0.634, 0.651),
}


def fresh(name: str, size: int) -> torch.nn.Module:
    """Weights on no device at all: the counter reads shapes only."""
    with torch.device("meta"):
        return timm.create_model(name, num_classes=200, img_size=size, weight_init="skip")


@pytest.mark.parametrize(("method", "rate"), RATIOS, ids=lambda v: str(v))
def test_ratio_is_within_one_percent_of_the_table(method: str, rate: float) -> None:
    for clca, expected in enumerate(RATIOS[method, rate]):
        vit = fresh("vit_small_patch16_224", 224)
        plain = count_macs(vit).total
        assert plain == pytest.approx(4.599e9, rel=1e-3)
        model = reduce_tokens(vit, method, keep_rate=rate, cla=bool(clca), cache_tokens=clca)
        assert count_macs(model).total / plain == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("rate", "giga"), [(0.1, 25.2), (0.7, 50.9), (1.0, 79.5)])
def test_published_costs_of_evit_with_clca_at_448(rate: float, giga: float) -> None:
    method = "none" if rate == 1.0 else "evit"
    model = reduce_tokens(fresh("vit_base_patch16_224", 448), method, keep_rate=rate, cla=True, cache_tokens=1)
    assert count_macs(model).giga == pytest.approx(giga, rel=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_formula_agrees_with_what_runs(method: str) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=160)
    rate = 1.0 if method == "none" else 0.5
    model = reduce_tokens(vit, method, keep_rate=rate, cla=True, cache_tokens=1)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 3, 160, 160))
    assert counter.get_total_flops() / 2 == pytest.approx(count_macs(model).total, rel=0.02)


def test_token_counts_of_the_paper() -> None:
    model = reduce_tokens(fresh("vit_small_patch16_224", 224), "evit", keep_rate=0.25, cla=True, cache_tokens=1)
    tokens = count_macs(model).tokens
    assert (tokens[3], tokens[6], tokens[9], tokens[11]) == (52, 17, 8, 16)
