"""What a shell completes in the options of training: names from the tables, looked up when it asks."""

from __future__ import annotations

from calibrant.words import Words


def _losses() -> tuple[str, ...]:
    from calibrant.settings.losses import LOSSES

    return tuple(name for name, record in LOSSES.items() if record.reads != "features")


def _models() -> tuple[str, ...]:
    from timm import list_models

    return tuple(list_models())


def _reductions() -> tuple[str, ...]:
    from calibrant.train.vit.reductions.table import REDUCTIONS

    return tuple(REDUCTIONS)


def _recipes() -> tuple[str, ...]:
    from calibrant.train.recipe import settings, variants

    return tuple(name for s in settings() for name in (s, *(f"{s}/{v}" for v in variants(s))))


def _kinds() -> tuple[str, ...]:
    from calibrant.settings.heads import KINDS

    return KINDS


LOSS, MODEL, REDUCTION, RECIPE, KIND = map(Words, (_losses, _models, _reductions, _recipes, _kinds))
