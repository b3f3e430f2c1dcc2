"""timm's pretrained configuration: of a name that timm knows, or of the config.json beside a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.images.declared.declaration import Declared
from calibrant.images.preprocessing import Interpolation, Preprocessing

NEEDED = ("input_size", "crop_pct", "interpolation", "mean", "std")


def of_timm_name(name: str) -> Declared:
    import timm

    found = timm.models.get_pretrained_cfg(name, allow_unregistered=False) if timm.is_model(name) else None
    if found is None:
        near = did_you_mean(name.split(".")[0], timm.list_models())
        raise ConfigError(f'timm knows no model "{name}"', where="--preprocess", fix=near)
    return of_timm_config(found.to_dict(), f"timm:{name}")


def of_timm_config(block: Mapping[str, Any], where: str) -> Declared:
    missing = [key for key in NEEDED if block.get(key) is None]
    if missing:
        raise DataError(f"has no {', '.join(missing)}", where=where, fix="give --size, --mean and --std instead")
    mode, guesses = block.get("crop_mode"), []
    if mode is None:
        mode = "center"
        guesses.append("crop_mode is not in the configuration, taken as center")
    if mode not in ("center", "squash"):
        raise DataError(f'crop_mode "{mode}" pads the picture, which cannot be expressed', where=where)
    kind = str(block["interpolation"])
    if kind not in get_args(Interpolation):
        raise DataError(f'interpolation "{kind}" is not known', where=where, fix="give --interpolation")
    size = (int(block["input_size"][-2]), int(block["input_size"][-1]))
    preprocessing = Preprocessing.of_timm({**block, "crop_mode": mode}, size)
    return Declared(preprocessing, source=where.rsplit("/", 1)[-1], guesses=tuple(guesses))
