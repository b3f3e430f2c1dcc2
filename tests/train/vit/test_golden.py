"""Every recorded case of the reference: logits, token counts, class tokens, training forward and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.train.vit.tokens import Tokens

Case = dict[str, Any]


def test_evaluation_equals_the_reference(reference: Any, images: Tensor, case: Case) -> None:
    model = reference.build(case)
    counts: list[Tensor] = []
    trace: list[Tensor] = []

    def watch(event: str, block: int, t: Tokens) -> None:
        if event == "out":
            n = torch.full((2,), t.x.shape[1]) if t.valid is None else t.valid.sum(1)
            counts.append(n)
            trace.append(t.x[:, 0])

    with torch.no_grad():
        marks, t = model.tokens(images, watch)
        logits = model(images)
    expected = reference.array(case, "n_block_out")
    np.testing.assert_array_equal(torch.stack(counts, 1).numpy(), np.broadcast_to(expected, (2, 12)))
    np.testing.assert_allclose(logits.numpy(), reference.array(case, "logits"), rtol=0, atol=2e-5)
    if reference.full:
        np.testing.assert_allclose(
            torch.stack(trace, 1).numpy(), reference.array(case, "cls_trace"), rtol=1e-5, atol=2e-5
        )


def test_training_forward_and_gradient_equal_the_reference(reference: Any, images: Tensor, training_case: Case) -> None:
    model = reference.build(training_case).train()
    for s, stage in enumerate(model.dynamicvit):
        noise = torch.from_numpy(reference.array(training_case, f"gumbel{s}"))
        stage.noise = lambda like, noise=noise: noise
    logits = model(images)
    ratio = model.auxiliary_loss() / 2.0
    (logits.square().mean() + 2.0 * ratio).backward()
    gradient = model.dynamicvit[0].fc_in.weight.grad.numpy()
    np.testing.assert_allclose(logits.detach().numpy(), reference.array(training_case, "logits"), rtol=0, atol=1e-5)
    assert abs(ratio.item() - float(reference.array(training_case, "ratio_loss"))) < 1e-6
    np.testing.assert_allclose(gradient, reference.array(training_case, "grad_predictor0_fc_in"), rtol=0, atol=1e-5)
