"""The leaf generator: repeatable, long-tailed, and as hard as its arguments say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import ConfigError
from calibrant.train.data.leaves import LeafSpec, leaf_image, write_leaves


def test_counts_fall_from_most_to_most_over_imbalance() -> None:
    counts = LeafSpec(classes=5, imbalance=16.0).counts(160)
    assert counts == [160, 80, 40, 20, 10]
    assert LeafSpec(classes=3, imbalance=1000.0).counts(10)[-1] == 2


def test_the_same_spec_gives_the_same_images_and_another_seed_others() -> None:
    spec = LeafSpec(size=32)

    def draw(seed: int) -> np.ndarray:
        return leaf_image(spec.class_points()[0], intra=1.0, size=32, rng=np.random.default_rng(seed))

    np.testing.assert_array_equal(draw(3), draw(3))
    assert np.abs(draw(3).astype(int) - draw(4)).mean() > 5


def test_no_scatter_means_one_shape_a_class() -> None:
    """With intra = 0 only the small unscaled textures differ between two images of a class."""
    point = LeafSpec().class_points()[0]

    def distance(intra: float) -> float:
        a, b = (leaf_image(point, intra=intra, size=32, rng=np.random.default_rng(s)).astype(float) for s in (1, 2))
        return float(np.abs(a - b).mean())

    assert distance(0.0) < 0.5 * distance(1.0)


def test_inter_scales_the_distance_between_classes() -> None:
    near, far = LeafSpec(inter=0.5).class_points(), LeafSpec(inter=2.0).class_points()
    np.testing.assert_allclose(far, 4 * near)


def test_at_default_the_scatter_inside_a_class_exceeds_the_distance_of_its_nearest_neighbour_per_trait() -> None:
    """Fine-grained: along a single trait two neighbouring classes overlap."""
    points = LeafSpec().class_points()
    gap = np.abs(points[:, None] - points[None]).mean(-1)
    nearest = gap[~np.eye(len(points), dtype=bool)].min()
    assert nearest < 2.0  # two standard deviations of the scatter inside a class, which is 1 per trait


def test_the_folder_has_the_three_splits_and_readable_images(tmp_path: Path) -> None:
    spec = LeafSpec(classes=3, train_images=6, val_images=3, test_images=2, imbalance=3.0, size=24)
    write_leaves(tmp_path, spec)
    names = spec.class_names()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["test", "train", "val"]
    for split, counts in (("train", [6, 3, 2]), ("val", [3, 2, 2]), ("test", [2, 2, 2])):
        assert [len(list((tmp_path / split / n).iterdir())) for n in names] == counts
    assert sorted(names) == names
    with Image.open(tmp_path / "train" / names[0] / "0000.png") as image:
        assert image.size == (24, 24)


@pytest.mark.parametrize("bad", [{"classes": 1}, {"classes": 101}, {"imbalance": 0.5}, {"intra": -1.0}, {"size": 8}])
def test_impossible_specs_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        LeafSpec(**bad)  # type: ignore[arg-type]
