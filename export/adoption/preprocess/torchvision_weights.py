"""torchvision's transforms, by the name of the weights that bring them: ResNet50_Weights.IMAGENET1K_V2."""

from __future__ import annotations

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.images.declared.declaration import Declared, three
from calibrant.images.preprocessing import Preprocessing


def of_torchvision(name: str) -> Declared:
    from torchvision import models

    where = f"torchvision:{name}"
    try:
        transform = models.get_weight(name).transforms()
    except (ValueError, AttributeError, KeyError):
        known = [str(w) for m in models.list_models(module=models) for w in models.get_model_weights(m)]
        raise ConfigError(
            f'torchvision knows no weights "{name}"', where="--preprocess", fix=did_you_mean(name, known)
        ) from None
    if not hasattr(transform, "crop_size"):
        raise DataError("is not a transform of pictures for classification", where=where)
    size, resize = int(transform.crop_size[0]), int(transform.resize_size[0])
    mean, std = three(transform.mean, "mean", where), three(transform.std, "std", where)
    kind = transform.interpolation.value
    return Declared(Preprocessing((size, size), resize, "center", kind, mean, std), source=where)
