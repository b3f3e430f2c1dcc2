"""The classifier that gives cosines."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from calibrant.train.losses import CosineHead


def test_cosine_head_gives_cosines_under_autocast_too() -> None:
    torch.manual_seed(0)
    head, f = CosineHead(2048, 5), torch.full((3, 2048), 60.0)
    f[1] *= -1
    expected = F.cosine_similarity(f[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(f), expected, atol=1e-6, rtol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head(f.half()).dtype == torch.float32
        torch.testing.assert_close(head(f.half()), expected, atol=1e-3, rtol=1e-3)
