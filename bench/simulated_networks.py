"""Small networks trained until they are too sure, judged on rows like those of training and on shifted ones.

Classes of three modes in 32 dimensions, squeezed; two hidden layers of 128; shifted rows have each feature scaled and
moved by its own amounts, with noise. `auto` was tuned on these (`net*` of `bench/calibrators.py`), and on nothing else.
"""

from __future__ import annotations

import functools

import numpy as np

# name: classes, seed, how much rarer the rarest class is, epochs
NETWORKS = {
    "net5": (5, 1, 1, 15), "net10a": (10, 2, 1, 15), "net10b": (10, 3, 1, 5), "net20": (20, 4, 1, 15),
    "net10tail": (10, 5, 20, 15), "net30tail": (30, 6, 30, 8), "net3": (3, 7, 1, 10), "net10c": (10, 8, 1, 30),
}  # fmt: skip
SETS = tuple(f"{name}-{rows}" for name in NETWORKS for rows in ("same", "shift"))


@functools.cache
def network(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(logits, labels) of 6,000 rows each, "same" and "shift"."""
    import torch

    classes, seed, tail, epochs = NETWORKS[name]
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    means = rng.normal(0, rng.uniform(0.55, 0.9), (classes, 3, 32))
    mix = rng.normal(size=(32, 32)) / np.sqrt(32)
    gain, off = rng.uniform(0.4, 1.1, 32), rng.normal(0, 0.15, 32)
    shares = float(tail) ** (-np.arange(classes) / max(classes - 1, 1))
    shares /= shares.sum()

    def draw(rows: int, shifted: bool) -> tuple[np.ndarray, np.ndarray]:
        y = rng.choice(classes, rows, p=shares)
        x = np.tanh((means[y, rng.integers(0, 3, rows)] + rng.normal(size=(rows, 32))) @ mix)
        x = x * gain + rng.normal(0, 0.25, x.shape) + off if shifted else x
        return x.astype(np.float32), y

    x, y = (torch.tensor(a) for a in draw(3000 + 100 * classes, False))
    layer, relu = torch.nn.Linear, torch.nn.ReLU
    net = torch.nn.Sequential(layer(32, 128), relu(), layer(128, 128), relu(), layer(128, classes))
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.01)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            optimiser.step()
    out = {}
    for rows in ("same", "shift"):
        fresh, truth = draw(6000, rows == "shift")
        with torch.no_grad():
            out[rows] = (net(torch.tensor(fresh)).numpy(), truth.astype(np.int64))
    return out
