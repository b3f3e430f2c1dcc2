"""Mixed batches and transplants reach the network with their own targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train import TrainConfig, fit
from calibrant.train.losses import MixedTarget

Small = Callable[..., TrainConfig]


def test_a_transplanted_row_carries_the_label_of_its_donor(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    import calibrant.train.loop.mixing as mixing

    seen: list[tuple[list[int], list[int], list[float]]] = []
    original = mixing.mix_donors

    def noted(*arguments: Any) -> tuple[torch.Tensor, MixedTarget]:
        x, target = original(*arguments)
        lam = torch.as_tensor(target.lam)
        seen.append((target.y1[lam < 1].tolist(), target.y2[lam < 1].tolist(), lam[lam < 1].tolist()))
        assert torch.equal(target.y1[lam == 1], target.y2[lam == 1])
        return x, target

    monkeypatch.setattr(mixing, "mix_donors", noted)
    fit(small("augment.transplant=1.0", "schedule.epochs=6", "augment.transplant_area=[0.2, 0.4]"))
    own, lent = ([k for batch in seen for k in batch[i]] for i in (0, 1))
    assert set(own) == {0}  # 14 of 31; 10 and 7 are below the average
    assert set(lent) == {1, 2}
    assert lent.count(2) > 4 * lent.count(1)  # they lack 10/3 and 1/3
    assert all(0.55 < share < 0.85 for batch in seen for share in batch[2])
