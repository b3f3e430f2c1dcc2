"""Losses on logits against the authors' code. Tolerances: the golden gradients are stored as float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.train.losses import CosineHead, Loss, create_loss, effective_number_weights
from calibrant.train.losses.cpc import binary_discrimination, binary_exclusion
from calibrant.train.losses.shared.target import Labels

LOGIT_LOSSES = ["ls", "mbls", "acls", "focal", "flsd53"]


def check(value: torch.Tensor, grad: torch.Tensor, golden: Any, i: int, *, key: str = "") -> None:
    double = value.dtype == torch.float64
    np.testing.assert_allclose(value.item(), golden[f"{i}.{key}loss"], rtol=1e-6 if double else 1e-4, atol=1e-30)
    np.testing.assert_allclose(grad.numpy(), golden[f"{i}.{key}grad"], rtol=0, atol=1e-6 if double else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LOGIT_LOSSES)
def test_equals_the_authors_code(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden(name)
    reduction = "sum" if "sum" in g.meta["params"].get("reduction", "") else "mean"
    seen = 0
    for i, case in enumerate(g.meta["cases"]):
        if "QUIRK" in case["kind"]:
            continue
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        value = create_loss(name, num_classes=z.shape[1], reduction=reduction)(z, g.labels(f"{i}.targets"))
        value.backward()
        check(value.detach(), z.grad, g, i)
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize("name", ["mbls", "acls"])
def test_ignored_rows_leave_the_penalty_too(name: str, golden: Callable[[str], Any]) -> None:
    """The authors keep them there: the golden case differs from ours, and ours is the loss without those rows."""
    g = golden(name)
    z, y = g.tensor("5.logits"), g.labels("5.targets")
    keep = y != -100
    assert 0 < keep.sum() < len(y)
    loss = create_loss(name, num_classes=z.shape[1])
    assert loss(z, y).item() == pytest.approx(loss(z[keep], y[keep]).item(), rel=1e-14)
    assert abs(loss(z, y).item() - g["5.loss"]) > 1e-4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_term_equals_the_authors_code(weighted: bool, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("mmce_weighted" if weighted else "mmce")
    for i, _ in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        loss = create_loss("mmce", num_classes=z.shape[1], weighted=weighted)
        rows, y = z.movedim(1, -1).reshape(-1, z.shape[1]), g.labels(f"{i}.targets").flatten()
        value = loss.term(rows.log_softmax(1), Labels(hard=y))
        value.backward()
        check(value.detach(), z.grad, g, i)
        ce = create_loss("ce", num_classes=z.shape[1])
        whole = loss(z.detach(), g.labels(f"{i}.targets")) - ce(z.detach(), g.labels(f"{i}.targets"))
        assert whole.item() == pytest.approx((2 if weighted else 1) * value.item(), abs=1e-5)


DERIVED: dict[str, Callable[[int, Any, int], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "dfl": lambda c, g, i: create_loss("dual-focal", num_classes=c),
    "ecp": lambda c, g, i: create_loss("ecp", num_classes=c),
    "mdca": lambda c, g, i: (
        lambda z, y: create_loss("mdca", num_classes=c)(z, y) - create_loss("ce", num_classes=c)(z, y)
    ),
    "cpc_bdc": lambda c, g, i: lambda z, y: binary_discrimination(z, y).mean(),
    "cpc_bec": lambda c, g, i: lambda z, y: binary_exclusion(z, y).mean(),
    "logit_adjust": lambda c, g, i: create_loss("logit-adjusted", num_classes=c, class_counts=g[f"{i}.counts"]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", DERIVED)
def test_equals_the_formula_worked_out_elsewhere(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        value = DERIVED[name](case["C"], g, i)(z, g.labels(f"{i}.targets"))
        value.backward()
        check(value.detach(), z.grad, g, i, key=f"{name}.")


def test_cpc_is_cross_entropy_and_both_terms(golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    z, y = g.tensor("1.logits"), g.labels("1.targets")
    value = create_loss("cpc", num_classes=10, l1=2.0, l2=0.5)(z, y).item()
    ce = create_loss("ce", num_classes=10)(z, y).item()
    assert value == pytest.approx(ce + 2 * g["1.cpc_bdc.loss"] + 0.5 * g["1.cpc_bec.loss"], rel=1e-12)


def test_adafocal_value_and_next_gamma(golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        loss = create_loss("adafocal", num_classes=case["C"])
        loss.gamma.copy_(g.tensor(f"{i}.ada.gamma"))
        z = g.tensor(f"{i}.logits").requires_grad_()
        value = loss(z, g.labels(f"{i}.targets"))
        value.backward()
        check(value.detach(), z.grad, g, i, key="adafocal.")
        loss.move(g.tensor(f"{i}.ada.gap"))
        np.testing.assert_allclose(loss.gamma, g[f"{i}.ada.gamma_next"], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ldam_equals_the_authors_code(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("ldam")
    for i, case in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        weighted = case["beta"] is not None
        loss = create_loss("ldam", num_classes=case["C"], class_counts=g[f"{i}.counts"], drw=weighted, drw_start=0.0)
        value = loss(z, g.labels(f"{i}.targets"))
        value.backward()
        check(value.detach(), z.grad, g, i)
        np.testing.assert_allclose(loss.margins, g[f"{i}.margins"], rtol=1e-12)
        if weighted:
            np.testing.assert_allclose(loss.weights, g[f"{i}.weights"], rtol=1e-9)


def test_effective_number_weights(golden: Callable[[str], Any]) -> None:
    g = golden("cb_weights")
    for i in range(2):
        weights = effective_number_weights(g[f"{i}.counts"], beta=float(g[f"{i}.beta"]))
        np.testing.assert_allclose(weights, g[f"{i}.weights"], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_arcface_equals_pytorch_metric_learning(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("arcface")
    double = dtype == torch.float64
    for i, case in enumerate(g.meta["cases"]):
        f = g.tensor(f"{i}.features", dtype).requires_grad_()
        head = CosineHead(case["D"], case["C"]).to(dtype)
        head.weight.data = g.tensor(f"{i}.W", dtype).T.contiguous()
        margin = math.radians(case["margin_degrees"])
        loss = create_loss("arcface", num_classes=case["C"], margin=margin, scale=case["scale"])
        value = loss(head(f), g.labels(f"{i}.targets"))
        value.backward()
        np.testing.assert_allclose(value.item(), g[f"{i}.loss"], rtol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(f.grad, g[f"{i}.grad_features"], atol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(head.weight.grad.T, g[f"{i}.grad_W"], atol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(loss.adjust_logits(head(f)).detach(), g[f"{i}.infer_logits"], atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_supcon_equals_pytorch_metric_learning(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("supcon")
    for i, case in enumerate(g.meta["cases"]):
        f = g.tensor(f"{i}.features", dtype).requires_grad_()
        loss = create_loss("supcon", num_classes=case["C"], temperature=case["temperature"])
        value = loss(torch.zeros(len(f), case["C"], dtype=dtype), g.labels(f"{i}.targets"), f)
        value.backward()
        check(value.detach(), f.grad, g, i)


def test_balanced_contrastive_and_center(golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        f, y = g.tensor(f"{i}.bcl.features").requires_grad_(), g.labels(f"{i}.targets")
        z = torch.zeros(len(f), case["C"], dtype=torch.float64)
        bcl: Loss = create_loss("balanced-contrastive", num_classes=case["C"], feature_dim=12).double()
        bcl.prototypes.data = g.tensor(f"{i}.bcl.prototypes")
        value = bcl(z, y, f)
        value.backward()
        check(value.detach(), f.grad, g, i, key="bcl.")
        center = create_loss("center", num_classes=case["C"], feature_dim=12).double().eval()
        center.centers.copy_(g.tensor(f"{i}.bcl.prototypes"))
        np.testing.assert_allclose(center(z, y, f).item(), g[f"{i}.center.loss"], rtol=1e-9)
