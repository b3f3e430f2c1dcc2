"""What a timm network sees of a picture: one derivation for training, prediction and cached features."""

from __future__ import annotations

from typing import Literal

from calibrant.errors import ConfigError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.model.grey import is_grey


def evaluation_transform(
    network: FeatureModel,
    *,
    crop_pct: float | None = None,
    normalise: Literal["model", "imagenet"] = "model",
    small_stem: bool = False,
) -> Preprocessing:
    """timm's data configuration of the network, at the size of its input.

    Its crop_pct holds at every size, as in timm's own evaluation: it belongs to the weights.
    Differs: a network whose stem was replaced for small pictures (`small_stem`) is no longer the one that timm
    describes, and those pictures have been cropped already: crop_pct is 1 there unless it is given.
    """
    from timm.data import resolve_data_config

    height, width = network.input_size
    config = resolve_data_config({"input_size": (3, height, width)}, model=network.network)
    if crop_pct is None:
        crop_pct = 1.0 if small_stem else float(config["crop_pct"])
    if not 0 < crop_pct <= 1:
        raise ConfigError(f"crop_pct is {crop_pct:g}, but must be in (0, 1]")
    if normalise == "imagenet":
        plain = Preprocessing((height, width), height)
        config = {**config, "mean": plain.mean, "std": plain.std}
    if is_grey(network):
        same = {key: (sum(config[key]) / len(config[key]),) * 3 for key in ("mean", "std")}
        config = {**config, **same}
    return Preprocessing.of_timm({**config, "crop_pct": crop_pct}, (height, width))
