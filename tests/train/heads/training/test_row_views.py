"""Rows of several views: twins of an image, labels of two, and what knows neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.heads.config import head_config
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.features.cache import FeatureCache, write_shard
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.training.head_loss import smoothed_target
from calibrant.train.heads.training.row_views import RowViews, Twins, disagreement
from calibrant.train.heads.training.trainer import train_head

from ..conftest import CLASSES, write_cache


def test_a_twin_is_another_unmixed_row_of_the_same_image() -> None:
    image = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    share = torch.tensor([1, 1, 1, 1, 0.5, 1, 1, 1.0])
    twins, rng = Twins(RowViews(image, image, share)), torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(200):
        rows, other = twins.draw(torch.arange(8), rng)
        assert rows.tolist() == [0, 1, 2, 3, 5, 6, 7]  # row 4 is mixed
        assert bool((image[rows] == image[other]).all())
        assert bool((rows != other).all())
        seen |= set(zip(rows.tolist(), other.tolist(), strict=True))
    assert seen == {(0, 3), (0, 6), (3, 0), (3, 6), (6, 0), (6, 3), (1, 7), (7, 1), (2, 5), (5, 2)}
    with pytest.raises(ConfigError, match="no image has two unmixed views"):
        Twins(RowViews(torch.arange(4)))


def test_disagreement_by_hand() -> None:
    z, w = torch.tensor([[0.0, 0.0]]).log_softmax(1), torch.tensor([[0.8, 0.2]]).log()
    forth = 0.5 * np.log(0.5 / 0.8) + 0.5 * np.log(0.5 / 0.2)
    back = 0.8 * np.log(0.8 / 0.5) + 0.2 * np.log(0.2 / 0.5)
    assert float(disagreement(z, w)) == pytest.approx((forth + back) / 2, rel=1e-6)
    assert float(disagreement(w, w)) == 0.0


def test_both_labels_of_a_mixture_get_their_share() -> None:
    y, other, lam = torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.75, 1.0])
    assert smoothed_target(y, other, lam, 3, 0.0).tolist() == [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]
    views = RowViews(torch.arange(2), other, lam)
    assert views.mass(y, 3).tolist() == [0.75, 1.0, 0.25]
    assert RowViews(torch.arange(2)).mass(y, 3).tolist() == [1.0, 1.0, 0.0]


def test_views_of_an_image_agree_more_where_that_is_asked_for(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "f", views=("eval", "crop1", "crop2"), block=1000)
    for n, view in enumerate(("crop1", "crop2")):
        rows = cache.read("train", view)
        noise = np.random.default_rng(n).normal(size=rows.features.shape).astype(np.float32)
        write_shard(cache.shard("train", view, 0), rows.ids, rows.labels, rows.features + noise, "float32")
    base = ["data.val_per_class=4", 'data.train_views=["eval","crop1","crop2"]', "optimizer.epochs=20"]

    def apart(weight: float) -> float:
        result = run_experiment(Matrices(cache), head_config({}, [*base, f"augment.consistency={weight}"]))
        parts = [torch.from_numpy(cache.read("train", v).features) for v in ("eval", "crop1")]
        return float(disagreement(*(result.trained.logits(x) for x in parts)))

    assert apart(20.0) < 0.7 * apart(0.0)
    with pytest.raises(ConfigError, match="two unmixed views"):
        run_experiment(Matrices(cache), head_config({}, ["data.val_per_class=4", "augment.consistency=1"]))


def mixed_cache(path: Path) -> FeatureCache:
    """The view cutmix1 is eval's features mixed with those of the row 7 places on, three quarters its own."""
    cache = write_cache(path, views=("eval", "cutmix1"), block=1000)
    rows = cache.read("train")
    n = len(rows.ids)
    at = (np.arange(n) + 7) % n
    x = (0.75 * rows.features + 0.25 * rows.features[at]).astype(np.float32)
    shares = np.full(n, 0.75, np.float32)
    of = [rows.ids[i] for i in at]
    write_shard(cache.shard("train", "cutmix1", 0), rows.ids, rows.labels, x, "float32", (of, shares))
    return cache


def test_no_row_shows_a_part_of_an_image_that_was_held_out(tmp_path: Path) -> None:
    matrices = Matrices(mixed_cache(tmp_path / "f"))
    rows = np.arange(0, 100)
    x, y, views = matrices.stacked("train", ("eval", "cutmix1"), rows)
    assert len(x) == 100 + 93  # rows 93 to 99 hold a part of rows 100 to 106
    assert views.image.tolist() == [*range(100), *range(93)]
    assert views.other is not None
    assert views.share is not None
    assert views.share.tolist() == [1.0] * 100 + [0.75] * 93
    labels = matrices.part("train", "eval").labels
    assert y.tolist() == [*labels[:100], *labels[:93]]
    assert views.other.tolist() == [*labels[:100], *labels[7:100]]


def test_mixed_views_are_trained_on_with_both_labels(tmp_path: Path) -> None:
    """The first step's gradient of the last bias is the mean of p - q, q the shared labels."""
    cache = mixed_cache(tmp_path / "f")
    x, y, views = Matrices(cache).stacked("train", ("cutmix1",), np.arange(120))
    config = head_config({}, [
        "optimizer.epochs=1", "optimizer.batch_size=120", "optimizer.name=sgd", "optimizer.lr=1e-3",
        "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.schedule=constant",
    ])  # fmt: skip
    mixed = train_head(config, x, y, CLASSES, views=views)
    plain = train_head(config, x, y, CLASSES)
    assert views.other is not None
    moved = (plain.head.classifier.bias - mixed.head.classifier.bias) / 1e-3  # type: ignore[operator]
    whole = torch.nn.functional.one_hot(y, CLASSES).float().mean(0)
    shared = 0.75 * whole + 0.25 * torch.nn.functional.one_hot(views.other, CLASSES).float().mean(0)
    torch.testing.assert_close(moved, whole - shared, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["head.kind=lda"], "lda head takes no mixed views"),
        (["augment.mixup=1"], "mixup takes rows of one class"),
        (["loss.name=vace"], "vace takes rows of one class"),
        (['data.test_views=["cutmix1"]'], "cutmix1 shows two images in one"),
    ],
)
def test_what_knows_no_row_of_two_classes_refuses(settings: list[str], match: str, tmp_path: Path) -> None:
    cache = mixed_cache(tmp_path / "f")
    base = ["data.val_per_class=4", 'data.train_views=["eval","cutmix1"]', *settings]
    with pytest.raises(ConfigError, match=match):
        run_experiment(Matrices(cache), head_config({}, base))


def test_the_prior_is_that_of_the_labels_that_were_shown(tmp_path: Path) -> None:
    cache = mixed_cache(tmp_path / "f")
    config = head_config({}, ["data.val_per_class=4", 'data.train_views=["eval","cutmix1"]', "optimizer.epochs=1"])
    result = run_experiment(Matrices(cache), config)
    _, y, views = Matrices(cache).stacked("train", ("eval", "cutmix1"), result.fold.train)
    mass = views.mass(y, CLASSES).numpy()
    np.testing.assert_allclose(result.prior, mass * result.counts.sum() / mass.sum(), atol=0.51)
    assert result.counts.tolist() == [16] * CLASSES
