from __future__ import annotations

import pytest

from calibrant.errors import ConfigError
from calibrant.export.adoption.preprocess.torchvision_weights import of_torchvision


def test_the_transforms_of_weights_by_name() -> None:
    """ResNet-50's second weights are resized to 232 and cropped to 224."""
    p = of_torchvision("ResNet50_Weights.IMAGENET1K_V2").preprocessing
    assert (p.size, p.resize, p.crop, p.interpolation) == ((224, 224), 232, "center", "bilinear")
    assert p.mean == (0.485, 0.456, 0.406)


def test_a_name_that_torchvision_does_not_know() -> None:
    with pytest.raises(ConfigError, match=r'did you mean "ResNet50_Weights\.IMAGENET1K_V2"'):
        of_torchvision("ResNet50_Weights.IMAGENET1K_V22")
