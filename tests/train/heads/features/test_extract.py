"""Images to features with a small timm network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from calibrant.commands.root import cli
from calibrant.errors import ConfigError, DataError, FormatError, ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.heads.features.backbone import cached_backbone, load_backbone
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.features.extract import FeatureConfig, extract
from calibrant.train.heads.features.views import check_view, make_view

SIZE = 32


def config(images: Path, weights: Path, out: Path, **changes: object) -> FeatureConfig:
    options: dict[str, object] = {"image_size": SIZE, "block": 4, "batch_size": 3, "views": ("eval",)}
    return FeatureConfig("test_vit", images, out, weights=weights, **{**options, **changes})  # type: ignore[arg-type]


def test_features_are_those_of_the_network_on_the_evaluation_transform(
    images: Path, weights: Path, tmp_path: Path
) -> None:
    done = extract(config(images, weights, tmp_path / "f"))
    assert (done.made, done.kept, done.images) == (5, 0, 16)
    cache = FeatureCache.open(tmp_path / "f")
    rows = cache.read("test")
    assert rows.ids[0] == "test/class0/0.png"
    p = Preprocessing.from_dict(cache.manifest.preprocessing, where="test")
    backbone = load_backbone("test_vit", weights=weights, input_size=(SIZE, SIZE))
    for i in (0, 4):
        with Image.open(images / rows.ids[i]) as image:
            x = torch.from_numpy(p.normalise(p.pixels(image.convert("RGB")))[None])
        with torch.no_grad():
            np.testing.assert_allclose(rows.features[i], backbone(x)[0].numpy(), atol=1e-5)


def test_extraction_goes_on_where_it_stopped_and_adds_views(images: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    extract(config(images, weights, out))
    cache = FeatureCache.open(out)
    before = cache.read("train").features.copy()
    cache.shard("train", "eval", 1).unlink()
    again = extract(config(images, weights, out))
    assert (again.made, again.kept) == (1, 4)
    assert np.array_equal(FeatureCache.open(out).read("train").features, before)
    more = extract(config(images, weights, out, views=("eval", "flip", "crop1")))
    assert (more.made, more.kept) == (10, 5)
    assert FeatureCache.open(out).manifest.views == ("eval", "flip", "crop1")


def test_one_split_can_have_a_view_that_the_others_lack(images: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    extract(config(images, weights, out))
    more = extract(config(images, weights, out, views=("crop1",), splits=("train",)))
    assert (more.made, more.kept) == (3, 0)
    cache = FeatureCache.open(out)
    assert len(cache.read("train", "crop1").ids) == 10
    with pytest.raises(DataError, match="test \\(crop1\\) lacks 2 of 2"):
        cache.read("test", "crop1")
    with pytest.raises(DataError, match='no split "tran".*train'):
        extract(config(images, weights, out, splits=("tran",)))


def test_threads_and_batches_do_not_change_a_random_view(images: Path, weights: Path, tmp_path: Path) -> None:
    a = extract(config(images, weights, tmp_path / "a", views=("crop1",), workers=0, batch_size=4))
    b = extract(config(images, weights, tmp_path / "b", views=("eval", "crop1"), workers=3, batch_size=2))
    c = extract(config(images, weights, tmp_path / "c", views=("crop1",), seed=1))
    left, right = (d.cache.read("train", "crop1").features for d in (a, b))
    np.testing.assert_allclose(left, right, atol=1e-5)
    assert np.abs(left - c.cache.read("train", "crop1").features).max() > 1e-3


def test_another_model_pixels_or_images_are_refused(images: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    extract(config(images, weights, out))
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(1)
    save_file(timm.create_model("test_vit", img_size=SIZE).state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="from another model"):
        extract(config(images, tmp_path / "other.safetensors", out))
    with pytest.raises(FormatError, match="resize = .*, not "):
        extract(config(images, weights, out, crop_pct=0.5))
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "note.txt").write_text("mine")
    with pytest.raises(FormatError, match="is not empty"):
        extract(config(images, weights, tmp_path / "loose"))


def test_poolings_are_parts_of_one_forward_pass(images: Path, weights: Path, tmp_path: Path) -> None:
    rows = {
        p: extract(config(images, weights, tmp_path / p, pooling=p)).cache.read("test").features
        for p in ("class", "mean", "tokens")
    }
    assert rows["tokens"].ndim == 3
    np.testing.assert_allclose(rows["tokens"].mean(1), rows["mean"], atol=1e-5)
    assert rows["class"].shape == rows["mean"].shape
    assert np.abs(rows["class"] - rows["mean"]).max() > 1e-3


def test_mixed_precision_stays_near(images: Path, weights: Path, tmp_path: Path) -> None:
    full = extract(config(images, weights, tmp_path / "a")).cache.read("test").features
    half = extract(config(images, weights, tmp_path / "b", amp="bf16", storage="float16")).cache.read("test").features
    error = np.abs(full - half).max() / np.abs(full).max()
    assert 0 < error < 0.1


def test_the_backbone_beside_the_features_is_the_one_that_made_them(
    images: Path, weights: Path, tmp_path: Path
) -> None:
    cache = extract(config(images, weights, tmp_path / "f")).cache
    again = cached_backbone(cache)
    assert again.sha256() == cache.manifest.model["sha256"]
    file = cache.path / "backbone.safetensors"
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    next(iter(tensors.values())).add_(1.0)
    save_file(tensors, file)
    with pytest.raises(FormatError, match="not the backbone"):
        cached_backbone(cache)


def test_extraction_without_weights_goes_on_where_it_stopped(images: Path, tmp_path: Path) -> None:
    """Its random weights were others in the second sitting, and refused; nor are the caller's numbers stirred."""
    wanted = FeatureConfig("test_vit", images, tmp_path / "f", pretrained=False, image_size=SIZE, block=4)
    cache = extract(wanted).cache
    before = cache.read("train").features.copy()
    (cache.path / "backbone.safetensors").unlink()
    cache.shard("train", "eval", 1).unlink()
    torch.manual_seed(5)
    extract(wanted)
    drawn = torch.rand(1)
    assert np.array_equal(FeatureCache.open(cache.path).read("train").features, before)
    assert drawn == torch.rand(1, generator=torch.Generator().manual_seed(5))
    other = extract(replace(wanted, out=tmp_path / "g", seed=1)).cache
    assert other.manifest.model["sha256"] != cache.manifest.model["sha256"]


def test_the_mirrored_view_is_the_mirror() -> None:
    p = Preprocessing((8, 8), 9)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 15, 3), dtype=np.uint8))
    plain, mirrored = (make_view(image, v, p, seed=0, id="x") for v in ("eval", "flip"))
    assert np.array_equal(plain[:, ::-1], mirrored)
    whole = make_view(image, "full", p, seed=0, id="x")
    assert whole.shape == (8, 8, 3)
    assert not np.array_equal(whole, plain)


def test_unknown_views_are_refused_with_the_list() -> None:
    assert check_view("crop12") == "crop12"
    for name in ("crop0", "mirror"):
        with pytest.raises(ConfigError, match="views are eval, flip, full, full-flip"):
            check_view(name)


@pytest.mark.parametrize("model", ["test_resnet", "test_vit3"])
def test_weights_of_another_model_are_named_as_such(model: str, images: Path, weights: Path, tmp_path: Path) -> None:
    """One shares no name with the file, of which timm then loads nothing; the other has names but other shapes."""
    with pytest.raises(ModelError, match=f"does not hold the weights of {model}.*belong to"):
        extract(FeatureConfig(model, images, tmp_path / "f", weights=weights, image_size=64))


def test_a_share_of_undivided_images_is_kept_for_the_test(tmp_path: Path) -> None:
    from calibrant.train.heads.features.extract import read_splits

    for name in ("ash", "elm"):
        (tmp_path / name).mkdir()
        for i in range(10):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / name / f"{i}.png")
    _, whole = read_splits(tmp_path)
    assert list(whole) == ["train"]
    _, parts = read_splits(tmp_path, test_fraction=0.2)
    assert np.bincount(parts["test"].labels).tolist() == [2, 2]
    assert not set(parts["test"].ids) & set(parts["train"].ids)


def test_undivided_images_get_a_test_figure_without_a_word(weights: Path, tmp_path: Path) -> None:
    """Four folders of pictures, as people have them; a cache that was made of all of them stays as it is."""
    rng = np.random.default_rng(0)
    for name in ("ash", "elm", "fir", "oak"):
        (tmp_path / "pics" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / "pics" / name / f"{i}.png")
    words = ["features", "--model", "test_vit", "--weights", str(weights), "--image-size", str(SIZE)]
    words += ["--data", str(tmp_path / "pics"), "--out"]
    for out, more, rows in (("f", [], 32), ("all", ["--test-fraction", "0"], 40), ("all", ["--view", "flip"], 40)):
        CliRunner().invoke(cli, [*words, str(tmp_path / out), *more], catch_exceptions=False)
        assert FeatureCache.open(tmp_path / out).manifest.splits["train"] == rows
    said = CliRunner().invoke(
        cli, ["head", str(tmp_path / "f"), "--kind", "logistic", "--json"], catch_exceptions=False
    )
    low, high = json.loads(said.output)["test_intervals"]["accuracy"]
    assert low < json.loads(said.output)["test"]["accuracy"] < high


def test_class_token_mean_and_layers_lie_side_by_side(weights: Path) -> None:
    x = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    both = load_backbone("test_vit", weights=weights, input_size=(SIZE, SIZE), pooling="class+mean")
    network = both.model.network
    with torch.no_grad():
        tokens = network.forward_features(x)  # type: ignore[operator]
        np.testing.assert_allclose(
            both(x).numpy(), torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1).numpy(), atol=1e-5
        )
        seen: list[torch.Tensor] = []
        for block in network.blocks[-2:]:  # type: ignore[index, union-attr]
            block.register_forward_hook(lambda module, given, out: seen.append(network.norm(out)))  # type: ignore[operator]
        network.forward_features(x)  # type: ignore[operator]
        expected = torch.cat([part for t in seen for part in (t[:, 0], t[:, 1:].mean(1))], 1)
        for name, columns in (("class+mean", [0, 1, 2, 3]), ("class", [0, 2]), ("mean", [1, 3])):
            two = load_backbone("test_vit", weights=weights, input_size=(SIZE, SIZE), pooling=name, layers=2)  # type: ignore[arg-type]
            chosen = torch.cat([expected.chunk(4, 1)[k] for k in columns], 1)
            np.testing.assert_allclose(two(x).numpy(), chosen.numpy(), atol=1e-5)
            assert two.width == chosen.shape[1]


def test_stages_of_a_convolutional_network_are_pooled(weights: Path) -> None:
    backbone = load_backbone("test_resnet", pretrained=False, input_size=(SIZE, SIZE), pooling="mean", layers=2)
    x = torch.randn(1, 3, SIZE, SIZE)
    network = backbone.model.network
    seen: list[torch.Tensor] = []
    for stage in (network.layer3, network.layer4):
        stage.register_forward_hook(lambda module, given, out: seen.append(out.mean((2, 3))))  # type: ignore[union-attr]
    with torch.no_grad():
        network.forward_features(x)  # type: ignore[operator]
        np.testing.assert_allclose(backbone(x).numpy(), torch.cat(seen[:2], 1).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "pooling", "layers", "match"),
    [
        ("test_vit", "head", 2, "head reads the last layer alone"),
        ("test_vit", "class", 60, "does not give 60 layers"),
        ("test_resnet", "class", 2, "has no class token"),
        ("test_resnet", "class+mean", 1, "has no class token"),
    ],
)
def test_layers_and_tokens_that_are_not_there(model: str, pooling: str, layers: int, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_backbone(model, pretrained=False, input_size=(SIZE, SIZE), pooling=pooling, layers=layers)  # type: ignore[arg-type]


def test_a_cache_of_other_layers_is_refused(images: Path, weights: Path, tmp_path: Path) -> None:
    done = extract(config(images, weights, tmp_path / "f", pooling="mean", layers=2))
    assert FeatureCache.open(tmp_path / "f").manifest.layers == 2
    assert cached_backbone(done.cache).layers == 2
    with pytest.raises(FormatError, match="layers 2, not 3|width"):
        extract(config(images, weights, tmp_path / "f", pooling="mean", layers=3))
