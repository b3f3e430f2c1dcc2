"""Laws that every loss keeps."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant.errors import ConfigError, DataError
from calibrant.train.losses import LOSSES, Loss, MixedTarget, create_loss

C, D, B = 5, 6, 12
AUXILIARY = ["supcon", "balanced-contrastive", "center", "prototype"]
BATCH_TERMS = ["mmce", "mdca", "crl"]  # not a sum of terms that see one row each
NAMES = sorted(LOSSES)
ROW_LOSSES = [n for n in NAMES if n not in ["supcon", "balanced-contrastive", *BATCH_TERMS]]


def make(name: str, **options: Any) -> Loss:
    torch.manual_seed(0)
    return create_loss(name, num_classes=C, feature_dim=D, class_counts=[50, 30, 12, 5, 2], **options)


def batch(n: int = B, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(7)
    z = torch.randn(n, C, generator=rng, dtype=torch.float64).to(dtype)
    y = torch.arange(n) % 4  # class 4 is absent
    return z, y, (torch.randn(n, D, generator=rng, dtype=torch.float64) * (1 + y[:, None])).to(dtype)


def state(loss: Loss) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in loss.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def gradients(loss: Loss, z: Tensor, target: Any, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z, f = z.clone().requires_grad_(), f.clone().requires_grad_()
    value = loss(z, target, f)
    value.sum().backward()
    zero = torch.zeros(())
    return value.detach(), zero if z.grad is None else z.grad, zero if f.grad is None else f.grad


@pytest.mark.parametrize("name", NAMES)
def test_ignored_rows_are_as_if_they_were_not_there(name: str) -> None:
    """In value, gradients and every statistic; what they contain, NaN even, does not matter."""
    z, y, f = batch()
    keep = torch.ones(B, dtype=torch.bool)
    keep[[1, 4, 11]] = False
    masked = y.masked_fill(~keep, 9)
    bad_z, bad_f = z.clone(), f.clone()
    bad_z[4], bad_f[4] = float("nan"), float("inf")
    with_rows, without = make(name, ignore_index=9), make(name)
    index = torch.arange(B)
    a = with_rows(bad_z, masked, bad_f, indices=index)
    b = without(z[keep], y[keep], f[keep], indices=index[keep])
    assert a.item() == pytest.approx(b.item(), rel=1e-13)
    assert same(state(with_rows), state(without))


@pytest.mark.parametrize("name", NAMES)
def test_no_row_left_gives_zero_with_a_backward_pass_and_touches_no_state(name: str) -> None:
    loss = make(name)
    before = state(loss)
    z, _, f = batch(3)
    z[0] = float("nan")
    z.requires_grad_()
    value = loss(z, torch.full((3,), -100), f)
    value.backward()
    assert value.item() == 0
    assert z.grad is not None
    assert torch.equal(z.grad, torch.zeros_like(z))
    assert same(state(loss), before)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_is_finite_in_training_and_after(name: str) -> None:
    z, y, f = batch()
    loss = make(name)
    for t in range(3):
        value, grad, _ = gradients(loss, z[t : t + 1], y[t : t + 1], f[t : t + 1])
        assert torch.isfinite(value)
        assert torch.isfinite(grad).all()
    assert torch.isfinite(loss.eval()(z, y, f))
    assert all(torch.isfinite(v).all() for v in loss.state_dict().values() if v.is_floating_point())


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("fedlas")])
def test_a_single_class_is_no_trouble(name: str) -> None:
    loss = create_loss(name, num_classes=1, feature_dim=D, class_counts=[7])
    value, grad, _ = gradients(loss, torch.randn(3, 1), torch.zeros(3).long(), torch.randn(3, D))
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    if name not in [*AUXILIARY, "acls", "mmce", "ldam", "arcface"]:
        assert value.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_reductions_agree(name: str) -> None:
    """sum = sum of none; mean = sum / rows (LDAM: weights; SupCon: anchors with loss). An ignored row is 0 in none."""
    z, y, f = batch()
    y[3] = -100
    none, mean, total = (make(name, reduction=r)(z, y, f) for r in ("none", "mean", "sum"))
    assert none.shape == (B,)
    assert none[3] == 0
    assert total.item() == pytest.approx(none.sum().item(), rel=1e-12)
    assert mean.item() == pytest.approx(total.item() / (B - 1), rel=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "crl"])
def test_dense_logits_are_rows(name: str) -> None:
    z, y, f = batch()
    flat, dense = make(name), make(name)
    to_image = [t.reshape(2, 2, 3, *t.shape[1:]) for t in (z, y, f)]
    z4, f4 = to_image[0].permute(0, 3, 1, 2), to_image[2].permute(0, 3, 1, 2)
    assert dense(z4, to_image[1], f4).item() == pytest.approx(flat(z, y, f).item(), rel=1e-13)
    assert same(state(dense), state(flat))
    rows = make(name, reduction="none")(z4, to_image[1], f4)
    assert rows.shape == (2, 2, 3)
    torch.testing.assert_close(rows.flatten(), make(name, reduction="none")(z, y, f))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("supcon", "balanced-contrastive")])
def test_one_hot_probabilities_are_hard_labels(name: str) -> None:
    z, y, f = batch()
    hard, soft, mixed = make(name), make(name), make(name)
    value = hard(z, y, f).item()
    assert soft(z, torch.eye(C)[y], f).item() == pytest.approx(value, rel=1e-12)
    assert mixed(z, MixedTarget(y, (y + 1) % C, 1.0), f).item() == pytest.approx(value, rel=1e-12)
    assert same(state(soft), state(hard))
    assert same(state(mixed), state(hard))


@pytest.mark.parametrize("form", ["mixed", "dense"])
@pytest.mark.parametrize("name", ROW_LOSSES)
def test_soft_targets_are_the_convex_combination(name: str, form: str) -> None:
    """lam L(y1) + (1 - lam) L(y2), row by row, with the statistics held."""
    z, y1, f = batch()
    y2 = (y1 * 3 + 1) % C
    loss = make(name, reduction="none")
    loss(z, y1, f)  # temperatures, averages and centers that differ from their start
    loss.eval()
    lam = torch.linspace(0.1, 0.9, B, dtype=torch.float64)
    expected = lam * loss(z, y1, f) + (1 - lam) * loss(z, y2, f)
    target: Any = MixedTarget(y1, y2, lam)
    if form == "dense":
        target = lam[:, None] * torch.eye(C)[y1] + (1 - lam[:, None]) * torch.eye(C)[y2]
    torch.testing.assert_close(loss(z, target, f), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_all_zero_soft_target_is_an_ignored_row(name: str) -> None:
    z, y, f = batch()
    if name in ("supcon", "balanced-contrastive"):
        with pytest.raises(ValueError, match="hard labels"):
            make(name)(z, torch.eye(C)[y], f)
        return
    q = torch.eye(C)[y]
    q[2] = 0
    keep = torch.arange(B) != 2
    assert make(name)(z, q, f).item() == pytest.approx(make(name)(z[keep], y[keep], f[keep]).item(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    """With and without autocast, loss.half() or not: the value of the same numbers in float32."""
    z, y, f = batch(dtype=dtype)
    expected = make(name)(z.float(), y, f.float())
    plain, cast = make(name), make(name).to(dtype)
    assert all(v.dtype not in (torch.float16, torch.bfloat16) for v in cast.state_dict().values())
    value, grad, _ = gradients(plain, z, y, f)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert grad.dtype in (dtype, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cast(z, y, f).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_large_logits_and_features_stay_finite(name: str) -> None:
    z, y, f = batch(dtype=torch.float32)
    value, grad, _ = gradients(make(name), 3e4 * z, y, 1e4 * f)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_finite_differences(name: str) -> None:
    z, y, f = batch(6)
    loss = make(name).double()
    loss(z, y, f)
    loss.eval()
    z = z.mul(0.3).requires_grad_()
    f = f.requires_grad_(loss.features_carry_gradient)
    assert torch.autograd.gradcheck(lambda z, f: loss(z, y, f), (z, f), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_eval_changes_no_state(name: str) -> None:
    z, y, f = batch()
    loss = make(name)
    loss(z, y, f, indices=torch.arange(B))
    before = state(loss.eval())
    loss(2 * z, y.flip(0), 3 * f, indices=torch.arange(B))
    assert same(state(loss), before)


@pytest.mark.parametrize("name", NAMES)
def test_saved_state_continues_the_run_exactly(name: str) -> None:
    z, y, f = batch()
    index = torch.arange(B) * 3

    def steps(loss: Loss, n: int) -> list[float]:
        return [loss(z * (t + 1), y, f * (t + 1), indices=index.roll(t)).item() for t in range(n)]

    loss = make(name).double()
    steps(loss, 2)
    loss.on_epoch_start(9, 10)  # the re-weighted phase of LDAM
    loss.on_validation(z.softmax(1), y)
    loss.on_epoch_end(9, 10)
    saved = copy.deepcopy(loss.state_dict())
    resumed = make(name).double()
    resumed.load_state_dict(saved)
    assert steps(resumed, 2) == steps(loss, 2)
    assert same(state(resumed), state(loss))


@pytest.mark.parametrize("name", NAMES)
def test_features_get_a_gradient_only_where_announced(name: str) -> None:
    z, y, f = batch()
    loss = make(name)
    _, _, grad = gradients(loss, z, y, f)
    assert bool(grad.abs().sum() > 0) == loss.features_carry_gradient
    if loss.needs_features:
        with pytest.raises(ValueError, match="features"):
            loss(z, y)
    else:
        assert torch.isfinite(loss(z, y))


@pytest.mark.parametrize("name", NAMES)
def test_a_label_out_of_range_is_named(name: str) -> None:
    z, y, f = batch()
    for bad in (C, -1):
        y[5] = bad
        with pytest.raises(DataError, match=f"label {bad} does not exist, there are {C} classes"):
            make(name)(z, y, f)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in AUXILIARY])
def test_debug_names_the_rows_that_are_not_finite(name: str) -> None:
    z, y, f = batch()
    z[2, 1] = float("nan")
    with pytest.raises(DataError, match=r"logits are not finite in rows \[2\]"):
        make(name, debug=True)(z, y, f)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_not_finite_never_stay_in_the_state(name: str) -> None:
    z, y, f = batch()
    z[2, 1], f[3, 0], f[4] = float("nan"), float("inf"), float("nan")
    loss = make(name)
    loss(z, y, f)
    assert all(torch.isfinite(v).all() for v in loss.state_dict().values() if v.is_floating_point())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in AUXILIARY])
def test_adjusted_logits_are_what_prediction_uses(name: str) -> None:
    """Shape and dtype of the logits, and tau divides them where the loss has temperatures."""
    z, y, f = batch()
    loss = make(name).double()
    loss(z, y, f)
    adjusted = loss.adjust_logits(z)
    assert adjusted.shape == z.shape
    tau = loss.class_temperatures()
    if tau is not None:
        assert tau.shape == (C,)
        torch.testing.assert_close(adjusted, z / tau)
    elif loss.needs_cosines:
        torch.testing.assert_close(adjusted, loss.scale * z)
    else:
        assert torch.equal(adjusted, z)


def test_unknown_names_and_options_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match='did you mean "fedlas-ls"'):
        create_loss("fedlass", num_classes=3)
    with pytest.raises(ConfigError, match=r"loss mbls has no option 'margn'; did you mean \"margin\""):
        create_loss("mbls", num_classes=3, margn=2)
    with pytest.raises(ConfigError, match="loss ce has no option 'gamma'"):
        create_loss("ce", num_classes=3, gamma=2)
    with pytest.raises(ConfigError, match="needs feature_dim"):
        create_loss("vace", num_classes=3)
    with pytest.raises(ConfigError, match="needs class_counts"):
        create_loss("ldam", num_classes=3)
    with pytest.raises(ConfigError, match="reduction"):
        create_loss("ce", num_classes=3, reduction="avg")
    with pytest.raises(ConfigError, match="2 entries"):
        create_loss("balanced-softmax", num_classes=3, class_counts=[1, 2])


def test_shapes_that_cannot_be_meant_are_refused() -> None:
    loss = make("fedlas-ls")
    z, y, f = batch()
    for bad in ((z[:, :4], y, f), (z, y[:-1], f), (z, y, f[:-1]), (z, torch.eye(4)[y], f), (z, y, f[:, :, None, None])):
        with pytest.raises(ValueError, match="shape"):
            loss(*bad)


SURFACE: dict[str, dict[str, Any]] = {
    "ce": {}, "ls": {"alpha": 0.1}, "mbls": {"alpha": 0.2, "margin": 1}, "focal": {"gamma": 2}, "flsd53": {"gamma": 2},
    "acls": {"alpha": 0.2, "margin": 0.5, "pos_lambda": 2, "neg_lambda": 0.2, "shift_invariant": True},
    "dual-focal": {"gamma": 2}, "adafocal": {"gamma": 2, "lam": 3, "bins": 4}, "ecp": {"beta": 0.2},
    "mmce": {"lam": 3, "weighted": True, "width": 0.1}, "mdca": {"beta": 2, "gamma": 2}, "cpc": {"l1": 2, "l2": 2},
    "crl": {"weight": 2}, "ldam": {"max_margin": 0.3, "scale": 10, "drw": False, "drw_start": 1.0, "beta": 0.5},
    "balanced-softmax": {"tau": 2}, "logit-adjusted": {"tau": 0.5}, "arcface": {"margin": 0.3, "scale": 10},
    "vace": {"lam": 0.3, "a": 0.7, "b": 0.1, "rho": 0.3, "tau_min": 1.5, "tau_max": 1.4, "gauge": "max",
             "mode": "centered", "warmup_steps": 3, "freeze_sbar": True, "normalize_features": True},
    "fedlas-ls": {"alpha": 0.1, "beta": 1, "momentum": 0.5, "indicator": "msp", "gate_hidden": 9,
                  "init": "first_batch"},
    "fedlas-mbls": {"alpha": 0.2, "beta": 1, "momentum": 0.5, "margin": 2, "indicator": "max-logit", "gate_hidden": 9,
                    "class_reduction": "sum", "init": "first_batch"},
    "supcon": {"temperature": 0.2}, "balanced-contrastive": {"temperature": 0.2},
    "center": {"rate": 0.1, "rule": "ema"},
    "prototype": {"distance": "cosine", "temperature": 2.0},
}  # fmt: skip


def two_epochs(name: str, **options: Any) -> list[float]:
    z, y, f = batch()
    loss = make(name, **options)
    values = []
    for epoch, scale in enumerate([1.0, 3.0, 5.0]):
        loss.on_epoch_start(7 + epoch, 10)
        values.append(loss(scale * z, y, scale * f, indices=torch.arange(B)).item())
        loss.on_validation((scale * z).softmax(1), y)
        loss.on_epoch_end(7 + epoch, 10)
    return values


def test_the_surface_covers_every_loss() -> None:
    assert SURFACE.keys() == LOSSES.keys()


@pytest.mark.parametrize(("name", "option"), [(n, o) for n, options in SURFACE.items() for o in options])
def test_no_option_is_accepted_and_ignored(name: str, option: str) -> None:
    before, after = two_epochs(name), two_epochs(name, **{option: SURFACE[name][option]})
    assert all(torch.isfinite(torch.tensor(after)))
    assert before != after


def test_importing_a_loss_loads_neither_engine_nor_timm() -> None:
    code = (
        "import sys; from calibrant.train.losses import VACE\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('timm', 'torchvision', 'onnx', 'streamlit')"
        " or m.startswith('calibrant.train.engine')]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
