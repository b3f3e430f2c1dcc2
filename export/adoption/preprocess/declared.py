"""How pictures are prepared for a foreign network, as somebody declares it, and what of that is only a guess."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.images.declared.declaration import BYTES, SCALED, Declared, Three
from calibrant.images.preprocessing import Interpolation, Preprocessing

WORDS = ("hf:", "timm:", "torchvision:")


@dataclass(frozen=True)
class Flags:
    """Options of the command line; each wins over what a file says."""

    mean: Three | None = None
    std: Three | None = None
    scale: str | None = None  # "0-1" or "0-255": what mean and std are counted in
    colour: str | None = None
    resize: int | None = None
    crop: str | None = None
    interpolation: str | None = None

    def applied(self, declared: Declared) -> Declared:
        p, changed = declared.preprocessing, []
        mean, std = self._statistics(p)
        if (mean, std) != (p.mean, p.std):
            changed.append("mean and std")
        values: dict[str, Any] = {"mean": mean, "std": std}
        for name, known in (("crop", ("center", "squash")), ("interpolation", get_args(Interpolation))):
            wanted = getattr(self, name)
            if wanted is None:
                continue
            if wanted not in known:
                raise ConfigError(f'unknown {name} "{wanted}"', where=f"--{name}", fix=did_you_mean(wanted, known))
            values[name] = wanted
            changed.append(name)
        if self.resize is not None:
            values["resize"] = self.resize
            changed.append("resize")
        bgr = declared.bgr
        if self.colour is not None:
            if self.colour.lower() not in ("rgb", "bgr"):
                raise ConfigError(f'unknown colour order "{self.colour}"', where="--colour", fix="rgb or bgr")
            bgr = self.colour.lower() == "bgr"
            changed.append("colour")
        if not changed and not self._given():
            return declared
        source = "the command line" if declared.guessed else f"{declared.source}, changed on the command line"
        left = declared.guesses
        if declared.guessed and (self.mean is not None or self.scale is not None):
            left = tuple(g for g in left if not g.startswith("scale"))
        return Declared(replace(p, **values), bgr, source, left)

    def _given(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__dataclass_fields__)

    def _statistics(self, p: Preprocessing) -> tuple[Three, Three]:
        unit = {"0-1": 1.0, "0-255": 255.0, None: 1.0}.get(self.scale)
        if unit is None:
            raise ConfigError(f'unknown scale "{self.scale}"', where="--scale", fix="0-1 or 0-255")
        if (self.mean is None) != (self.std is None) and self.scale is None:
            raise ConfigError("--mean and --std go together", fix="give both; 0,0,0 and 1,1,1 change nothing")
        if self.mean is None and self.std is None:
            return {None: (p.mean, p.std), 1.0: SCALED, 255.0: BYTES}[None if self.scale is None else unit]
        mean, std = self.mean or (0.0, 0.0, 0.0), self.std or (1.0, 1.0, 1.0)
        if min(std) <= 0:
            raise ConfigError("a standard deviation must be positive", where="--std")
        if self.scale is None and max(*mean, *std) > 10:
            raise ConfigError(
                f"mean {mean} and std {std} look like levels of 0..255", where="--mean", fix="say so: --scale 0-255"
            )
        return _three([m / unit for m in mean]), _three([s / unit for s in std])


def read_declared(written: str | None, size: tuple[int, int] | None) -> Declared:
    """`--preprocess`: a file of Hugging Face, timm or Calibrant, or timm:NAME, torchvision:NAME, hf:FILE."""
    from calibrant.export.adoption.preprocess.timm_config import of_timm_config, of_timm_name
    from calibrant.export.adoption.preprocess.torchvision_weights import of_torchvision
    from calibrant.images.declared.huggingface import of_hugging_face

    if written is None:
        shape = size or (224, 224)
        guesses = [
            "scale 0..1 without mean and std",
            "red before blue",
            f"the whole picture to {shape[0]} x {shape[1]}",
        ]
        return Declared(Preprocessing(shape, max(shape), "squash", "bilinear", *SCALED), guesses=tuple(guesses))
    word = next((w for w in WORDS if written.startswith(w)), None)
    if word == "timm:":
        return of_timm_name(written.removeprefix(word))
    if word == "torchvision:":
        return of_torchvision(written.removeprefix(word))
    path = Path(written.removeprefix("hf:"))
    if word is None and not path.exists() and ":" in written:
        near = did_you_mean(written.split(":")[0] + ":", WORDS)
        raise ConfigError(f'cannot read "{written}"', where="--preprocess", fix=near)
    block = _json(path / "preprocessor_config.json" if path.is_dir() else path)
    if word == "hf:" or any(k in block for k in ("image_mean", "do_resize", "image_processor_type", "do_normalize")):
        return of_hugging_face(block, path)
    if any(k in block for k in ("pretrained_cfg", "input_size", "crop_pct")):
        return of_timm_config(block.get("pretrained_cfg", block), str(path))
    if {"size", "resize", "crop"} <= block.keys():
        return Declared(Preprocessing.from_dict(block, where=path), source=path.name)
    raise DataError(
        "is no preprocessor_config.json of Hugging Face, no config.json of timm and no preprocessing of Calibrant",
        where=path,
        fix="say it with --mean, --std, --scale, --colour, --resize, --crop",
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        block = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("no such file", where=path, fix="a preprocessor_config.json, or timm:NAME") from None
    except (ValueError, OSError) as error:
        raise DataError(f"cannot be read as JSON ({error})", where=path) from None
    if not isinstance(block, dict):
        raise DataError("is JSON but no table of settings", where=path)
    return block


def _three(values: list[float]) -> Three:
    return values[0], values[1], values[2]
