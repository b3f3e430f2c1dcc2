from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.crops import Augmentation
from calibrant.train.augment.donors import Donors
from calibrant.train.config import AugmentConfig, DataConfig
from calibrant.train.data.loader import IGNORE, BatchPlan, TrainDataset, make_loader, to_network
from calibrant.train.data.pixels import ArrayStore, FileStore, RaggedStore, decode_all, shrunk, whole
from calibrant.train.data.sources import read_data
from calibrant.train.seeds import uniform_rows

SMALL = Preprocessing((16, 16), 16)


def _places(plan: BatchPlan) -> list[list[int]]:
    return [[i for i, _, p in batch if p >= 0] for batch in plan]


def test_an_epoch_visits_every_image_once_and_epochs_differ() -> None:
    plan = BatchPlan(23, 5, seed=1)
    first = _places(plan)
    assert sorted(i for batch in first for i in batch) == list(range(23))
    assert [len(b) for b in first] == [5, 5, 5, 5, 3]
    plan.epoch = 1
    assert _places(plan) != first


def test_a_plan_starts_at_any_step_with_the_same_batches() -> None:
    plan = BatchPlan(23, 5, seed=1)
    first = _places(plan)
    plan.start = 3
    assert _places(plan) == first[3:]


def test_ranks_share_each_batch_in_order_with_equal_rows() -> None:
    whole_batches = list(BatchPlan(23, 6, seed=3))
    parts = [list(BatchPlan(23, 6, seed=3, rank=r, world=2)) for r in (0, 1)]
    for batch, a, b in zip(whole_batches, *parts, strict=True):
        assert len(a) == len(b)
        assert [p for p in a + b if p[2] >= 0] == batch  # the last one has 5 rows and is padded to 6
    for count in (23, 19):  # a last batch of five rows, and of one: then the second process has padding alone
        for rank in (0, 1):
            plan = BatchPlan(count, 6, seed=3, rank=rank, world=2)
            assert [plan.own_rows(step) for step in range(4)] == [sum(p >= 0 for _, _, p in batch) for batch in plan]


def test_drop_last_leaves_the_short_batch_out_unless_it_is_all_there_is() -> None:
    assert BatchPlan(23, 5, seed=0, drop_last=True).steps == 4
    assert BatchPlan(3, 5, seed=0, drop_last=True).steps == 1


@pytest.mark.parametrize("flip", ["none", "horizontal", "both"])
@pytest.mark.parametrize("crop", ["pad", "none"])
def test_a_batch_augmented_at_once_equals_its_images_one_by_one(crop: str, flip: str) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (12, 16, 16, 3)).astype(np.uint8)
    augmentation = Augmentation(AugmentConfig(crop=crop, flip=flip), SMALL)  # type: ignore[arg-type]
    positions = np.arange(40, 52)
    together = augmentation.batch(ArrayStore(array), np.arange(12), 5, 2, positions)
    u = uniform_rows(5, "augment", 2, positions=positions)
    for i in range(12):
        np.testing.assert_array_equal(together[i], augmentation.sample(array[i], u[i]))


def test_random_numbers_of_a_position_do_not_depend_on_its_neighbours() -> None:
    table = uniform_rows(7, "augment", 0, positions=np.arange(20))
    np.testing.assert_array_equal(uniform_rows(7, "augment", 0, positions=np.array([13, 4, 19])), table[[13, 4, 19]])
    assert not np.array_equal(uniform_rows(7, "augment", 1, positions=np.arange(20)), table)
    assert 0.4 < uniform_rows(7, "augment", 0, positions=np.arange(2000)).mean() < 0.6


def test_a_random_resized_crop_shows_a_part_at_the_full_size() -> None:
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[None, :, None] * 4, 64, 0).repeat(3, 2)  # brightness = column
    augmentation = Augmentation(AugmentConfig(scale=(0.25, 0.25), ratio=(1.0, 1.0), flip="none"), SMALL)
    for u0 in (0.0, 0.5, 1.0):
        u = np.full(8, u0)
        out = augmentation.sample(ramp, u).astype(int)
        left = u0 * 32  # a quarter of the area is half the side
        assert out.shape == (16, 16, 3)
        assert abs(out[:, 0].mean() - 4 * (left + 0.5)) < 6
        assert abs(out[:, -1].mean() - 4 * (left + 30.5)) < 6


def test_the_number_of_workers_changes_nothing(image_folder: Path) -> None:
    images = read_data(DataConfig(path=image_folder)).train
    batches = []
    for workers in (0, 2):
        dataset = TrainDataset(images, FileStore(images, whole), Augmentation(AugmentConfig(), SMALL), seed=4)
        loader = make_loader(dataset, BatchPlan(len(images), 8, seed=4), workers=workers, pin=False)
        batches.append(list(loader))
    assert len(batches[0]) == len(batches[1]) == 4
    for a, b in zip(*batches, strict=True):
        assert torch.equal(a.pixels, b.pixels)
        assert torch.equal(a.labels, b.labels)


def test_an_unreadable_file_becomes_an_ignored_row_and_is_named(image_folder: Path, tmp_path: Path) -> None:
    images = read_data(DataConfig(path=image_folder)).train
    files = list(images.files or ())
    files[3] = tmp_path / "torn.png"
    files[3].write_bytes(b"\x89PNG\r\n\x1a\nno more")
    torn = ImageSet(images.ids, images.labels, files=tuple(files))
    dataset = TrainDataset(torn, FileStore(torn, whole), Augmentation(AugmentConfig(), SMALL), seed=0)
    batch = dataset.__getitems__([(2, 0, 0), (3, 0, 1), (4, 0, 2)])
    assert batch.labels.tolist() == [0, IGNORE, 0]
    assert [b.id for b in batch.bad] == [images.ids[3]]


def test_donors_come_with_their_labels_and_an_unreadable_one_is_named_and_lends_nothing(
    image_folder: Path, tmp_path: Path
) -> None:
    images = read_data(DataConfig(path=image_folder)).train  # 14, 10 and 7 of blue, green and red
    files = list(images.files or ())
    torn = [i for i in range(14, 31) if i % 2]
    for i in torn:
        files[i] = tmp_path / f"{i}.png"
        files[i].write_bytes(b"no image")  # type: ignore[union-attr]
    images = ImageSet(images.ids, images.labels, files=tuple(files))
    store, augmentation = FileStore(images, whole), Augmentation(AugmentConfig(crop="random-resized"), SMALL)
    donors = Donors(images.labels, images.counts(3).astype(float), rate=0.6, seed=4)
    dataset = TrainDataset(images, store, augmentation, seed=4, donors=donors)
    batch = dataset.__getitems__([(i, 0, i) for i in range(14)])  # blue alone: any row may receive
    rows, indices = donors.draw(images.labels[:14], 0, np.arange(14))
    good = [r for r, i in zip(rows, indices, strict=True) if i not in torn]
    assert batch.donated is not None
    assert 0 < len(good) < 14
    assert batch.donated.rows.tolist() == good
    assert batch.donated.labels.tolist() == [images.labels[i] for i in indices if i not in torn]
    assert {b.id for b in batch.bad} == {images.ids[i] for i in indices if i in torn}
    colours = batch.donated.pixels.double().mean((1, 2)).argmax(1)  # of red, green, blue
    assert [(2, 1, 0)[c] for c in colours] == batch.donated.labels.tolist()
    again = dataset.__getitems__([(i, 0, i) for i in range(5, 14)]).donated  # other batches, the same pixels
    assert again is not None
    assert torch.equal(again.pixels, batch.donated.pixels[-len(again.rows) :])


def test_kept_pixels_are_those_of_the_files(image_folder: Path) -> None:
    images = read_data(DataConfig(path=image_folder)).train
    parts, rows, bad = decode_all(images, shrunk(Preprocessing((32, 32), 32)), what="x", skip_bad=False)
    assert len(rows) == len(images)
    assert not bad
    store = RaggedStore.of_parts(parts)
    np.testing.assert_array_equal(store[5], np.asarray(images.image(5)))  # 24 px are never enlarged


def test_the_network_sees_what_the_evaluation_transform_gives() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype(np.uint8)
    x = to_network(torch.from_numpy(pixels), SMALL, torch.device("cpu"), channels_last=True)
    assert x.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(x.numpy(), SMALL.normalise(pixels))


@pytest.mark.parametrize("policy", ["trivial", "rand", "auto", "augmix"])
def test_policies_are_a_function_of_the_position(policy: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3)).astype(np.uint8)
    config = AugmentConfig(crop="none", flip="none", policy=policy, jitter=0.3)  # type: ignore[arg-type]
    augmentation = Augmentation(config, SMALL)
    together = augmentation.batch(ArrayStore(array), np.arange(6), 1, 0, np.arange(6))
    alone = [augmentation.batch(ArrayStore(array), np.array([i]), 1, 0, np.array([i]))[0] for i in (4, 1)]
    np.testing.assert_array_equal(together[[4, 1]], alone)
    assert (together != array).any(axis=(1, 2, 3)).sum() >= 4
    other_epoch = augmentation.batch(ArrayStore(array), np.arange(6), 1, 1, np.arange(6))
    assert (together != other_epoch).any()
    one_image = augmentation.batch(ArrayStore(array[:1].repeat(6, 0)), np.arange(6), 1, 0, np.arange(6))
    assert len(np.unique(one_image.reshape(6, -1), axis=0)) >= 4  # positions differ though the image does not


def test_erasing_puts_one_box_of_the_mean_colour() -> None:
    array = np.zeros((200, 16, 16, 3), np.uint8)
    augmentation = Augmentation(AugmentConfig(crop="none", flip="none", erasing=0.5), SMALL)
    out = augmentation.batch(ArrayStore(array), np.arange(200), 1, 0, np.arange(200))
    erased = (out[..., 0] == round(255 * 0.485)).mean(axis=(1, 2))
    assert 70 < (erased > 0).sum() < 130
    assert erased.max() <= 0.45  # a third of the area, rounded to whole pixels


def test_views_of_an_image_stand_together_and_look_different() -> None:
    plan = BatchPlan(10, 6, seed=1, views=3)
    batches = list(plan)
    assert [len(b) for b in batches] == [6, 6, 6, 6, 6]
    assert all(len({i for i, _, _ in b[:3]}) == 1 for b in batches)
    assert sorted(i for b in batches for i, _, _ in b) == sorted(list(range(10)) * 3)
    assert [p for b in batches for _, _, p in b] == list(range(30))
    array = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3)).astype(np.uint8)
    images = ImageSet(tuple(map(str, range(10))), np.zeros(10, np.int64), pixels=array)
    dataset = TrainDataset(images, ArrayStore(array), Augmentation(AugmentConfig(crop="pad"), SMALL), seed=0)
    pixels = dataset.__getitems__(batches[0]).pixels
    assert not torch.equal(pixels[0], pixels[1])
