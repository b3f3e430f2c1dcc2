"""A study in the plane: a wide and a narrow class of drawn points, and where a loss puts the boundary between them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._version import __version__
from calibrant.calibration.softmax import softmax
from calibrant.config import build, to_table
from calibrant.errors import ConfigError
from calibrant.train.jobs.job import changed
from calibrant.train.jobs.rows import pack_rows
from calibrant.train.losses import VACE, Loss, create_loss
from calibrant.train.recipe import laid_over
from calibrant.train.seeds import derive
from calibrant.train.study.plan import Cell, StudyPlan, part_of
from calibrant.train.study.score import Score, values

# Raised by hand when the same settings give other numbers than before.
RESULTS_VERSION = 1
EXTENT, GRID = 6.0, 101  # of the picture, to each side, and its points along each side


@dataclass(frozen=True)
class PointsConfig:
    """Two Gaussian classes at (-apart / 2, 0) and (apart / 2, 0), and a network of one hidden layer on their points.

    loss: name and options. tau: a fixed temperature for each class in the place of the loss.
    """

    apart: float = 3.0
    spreads: tuple[float, ...] = (1.6, 0.6)
    train: int = 300  # points a class; the seed draws them
    test: int = 5000  # the same ones for every seed
    hidden: int = 32
    steps: int = 400
    lr: float = 0.02
    loss: dict[str, Any] = field(default_factory=lambda: {"name": "ce"})
    tau: tuple[float, ...] = ()
    seed: int = 1


class FixedTemperatures(VACE):
    """VACE with given temperatures."""

    def __init__(self, tau: tuple[float, ...]) -> None:
        super().__init__(len(tau), 2)
        self.fixed = torch.tensor(tau)

    def _update(self, z: Tensor, target: object, features: Tensor | None) -> None:
        """No statistics."""

    def class_temperatures(self) -> Tensor:
        return self.fixed


@dataclass(frozen=True)
class PointsJob:
    config: PointsConfig
    key: str

    def run(self, out: Path) -> dict[str, Any]:
        c = self.config
        x, y = draw(c, c.test, derive("test points"))
        net, loss = trained(c)
        plane = torch.from_numpy(grid())
        with torch.no_grad():
            raw, z = net(x), loss.adjust_logits(net(x))
            raw_plane, z_plane = net(plane), loss.adjust_logits(net(plane))
            tau = loss.class_temperatures()
        wide, narrow = (1.0, 1.0) if tau is None else tau.tolist()
        probs, labels, counts = softmax(z.numpy()), y.numpy(), np.full(2, c.train)
        return {
            "config": to_table(c),
            "logits": base64.b64encode(z.numpy().astype("<f4").tobytes()).decode(),
            "test_rows": pack_rows(probs, labels, counts, None),
            "plane": {"tau": _gap(z_plane), "raw": _gap(raw_plane)},
            "measured": {
                "tau_wide": wide,
                "tau_narrow": narrow,
                "plane_of_wide": float((z_plane[:, 0] > z_plane[:, 1]).float().mean()),
                "plane_of_wide_raw": float((raw_plane[:, 0] > raw_plane[:, 1]).float().mean()),
                "accuracy_raw": float((raw.argmax(1) == y).float().mean()),
            },
        }


class Points:
    """The jobs of a study in the plane; it draws its points, so it needs no data."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan = plan

    def job(self, cell: Cell) -> PointsJob:
        plan, table = self.plan, dict[str, Any]()
        for over in (
            plan.study.base,
            part_of(plan.data, cell.data).set,
            part_of(plan.methods, cell.method).set,
            plan.scale.set,
        ):
            table = laid_over(table, over)
        config = build(PointsConfig, {**table, "seed": cell.seed}, where=f"{plan.study.title}: {cell.method}")
        return PointsJob(_checked(config, cell.method), points_key(config))

    def score(self, job: PointsJob, result: Mapping[str, Any], view: str) -> Score:
        """With the temperatures, which belong to the model; what it does without them is among what was measured."""
        z = np.frombuffer(base64.b64decode(result["logits"]), "<f4").reshape(-1, 2)
        labels = draw(job.config, job.config.test, derive("test points"))[1].numpy()
        counts = np.full(2, job.config.train)
        return Score(values(softmax(z), labels, counts, self.plan.study.metrics), result["test_rows"])


def _checked(config: PointsConfig, method: str) -> PointsConfig:
    if len(config.spreads) != 2 or min(config.spreads) <= 0:
        raise ConfigError("spreads are two numbers above 0", where=method)
    if config.tau and (len(config.tau) != 2 or min(config.tau) <= 0):
        raise ConfigError("tau is a number above 0 for each of the two classes", where=method)
    if config.tau and config.loss != {"name": "ce"}:
        raise ConfigError("has a loss and fixed temperatures", where=method, fix="leave tau or loss out")
    if min(config.train, config.test, config.hidden, config.steps) < 1:
        raise ConfigError("train, test, hidden and steps are at least 1", where=method)
    return config


def points_key(config: PointsConfig) -> str:
    parts = [changed(to_table(config), to_table(PointsConfig())), "points", __version__, RESULTS_VERSION]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def draw(config: PointsConfig, each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points (2 each, 2) and their classes: 0 is the wide one on the left."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(2).repeat(each)
    centre = torch.tensor([[-config.apart / 2, 0.0], [config.apart / 2, 0.0]])
    return centre[y] + torch.tensor(config.spreads)[y][:, None] * torch.randn(2 * each, 2, generator=rng), y


def trained(config: PointsConfig) -> tuple[nn.Module, Loss]:
    """All points in every step. The points are the features too, so that a scatter can be seen in the picture."""
    options = {key: value for key, value in config.loss.items() if key != "name"}
    loss: Loss = (
        FixedTemperatures(config.tau)
        if config.tau
        else create_loss(config.loss["name"], num_classes=2, feature_dim=2, **options)
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(config.seed, "weights"))
        net = nn.Sequential(nn.Linear(2, config.hidden), nn.Tanh(), nn.Linear(config.hidden, 2))
    x, y = draw(config, config.train, derive(config.seed, "points"))
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=config.lr)
    for _ in range(config.steps):
        optimizer.zero_grad()
        loss(net(x), y, x).backward()
        optimizer.step()
    loss.eval()
    return net, loss


def grid() -> NDArray[np.float32]:
    """(GRID^2, 2) points of the picture, row by row from below."""
    axis = np.linspace(-EXTENT, EXTENT, GRID, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    return np.stack([x.ravel(), y.ravel()], 1)


def _gap(z: Tensor) -> str:
    return base64.b64encode((z[:, 0] - z[:, 1]).numpy().astype("<f4").tobytes()).decode()


def plane_of(result: Mapping[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(GRID, GRID) how much more the wide class is held for than the narrow one: with temperatures, and without."""
    with_tau, raw = (
        np.frombuffer(base64.b64decode(result["plane"][name]), "<f4").reshape(GRID, GRID) for name in ("tau", "raw")
    )
    return with_tau, raw
