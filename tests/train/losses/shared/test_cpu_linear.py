from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses.shared import cpu_linear


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, 300), torch.randn(250, 300, requires_grad=True), torch.randn(250, requires_grad=True)


@pytest.mark.parametrize("usable", [True, False])
def test_large_products_and_their_gradients_are_those_of_a_linear_layer(
    usable: bool, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = rows
    assert x.numel() * len(weight) >= cpu_linear._WORTH_IT
    if not usable:
        monkeypatch.setattr(cpu_linear, "_usable", lambda: False)
    elif not cpu_linear._usable():
        pytest.skip("this torch has no such operator")
    out = cpu_linear.linear(x, weight, bias)
    assert ("OneDnn" in type(out.grad_fn).__name__) == usable
    expected = F.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
    upstream = torch.randn(64, 250)
    for got, want in zip(
        torch.autograd.grad(out, (weight, bias), upstream),
        torch.autograd.grad(expected, (weight, bias), upstream.double()),
        strict=True,
    ):
        torch.testing.assert_close(got, want.float(), rtol=1e-4, atol=1e-4)


def test_inputs_with_a_gradient_small_ones_and_float64_take_the_plain_way(
    rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    x, weight, bias = rows
    for z in (x.clone().requires_grad_(), x[:2], x.double()):
        out = cpu_linear.linear(z, weight, bias)
        assert out.dtype == z.dtype
        assert "OneDnn" not in type(out.grad_fn).__name__


def test_an_operator_that_changed_its_meaning_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_linear, "_product", lambda x, weight, bias: x @ weight.T)
    assert not cpu_linear._usable.__wrapped__()
