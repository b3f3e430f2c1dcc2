from __future__ import annotations

import itertools

import pytest

from calibrant.errors import ConfigError
from calibrant.train.config import train_config
from calibrant.train.losses import create_loss
from calibrant.train.recipe import laid_over, moved_schedule, recipe_table, settings, variants


@pytest.mark.parametrize("setting", settings())
def test_every_recipe_is_a_valid_configuration_with_a_loss_that_can_be_made(setting: str) -> None:
    import timm

    names = variants(setting)
    for name in ["", *names, *("/".join(pair) for pair in itertools.combinations(names, 2))]:
        if "keep" in name and "clca" not in name:
            continue  # a keep rate needs the method that it belongs to
        config = train_config(recipe_table(f"{name}/{setting}"))
        assert timm.is_model(config.model.name), config.model.name
        create_loss(config.loss.name, num_classes=10, feature_dim=8, class_counts=[5] * 10, **config.loss.options)


def test_published_settings_are_those_of_the_papers() -> None:
    cub = train_config(recipe_table("fedlas-ls/cub/vit-b16"))
    assert (cub.model.name, cub.model.image_size, cub.engine.batch_size) == ("vit_base_patch16_384", 384, 16)
    assert (cub.optimizer.name, cub.optimizer.lr, cub.optimizer.weight_decay) == ("adamw", 1e-4, 5e-4)
    assert cub.loss.options == {"alpha": 0.05, "beta": 4.0, "momentum": 0.5}
    hundred = train_config(recipe_table("fedlas-mbls/cifar100"))
    assert hundred.loss.options == {"alpha": 0.1, "beta": 1.0, "margin": 6.0, "momentum": 0.5}
    assert hundred.schedule.milestones == (150, 250)
    ten = train_config(recipe_table("fedlas-ls/cifar10"))
    assert ten.loss.options == {"alpha": 0.05, "beta": 4.0, "momentum": 0.95}
    ufg = train_config(recipe_table("ufg/clca/keep10/448"))
    assert ufg.model.token_reduction is not None
    assert (ufg.model.token_reduction.method, ufg.model.token_reduction.keep_rate) == ("evit", 0.1)
    assert (ufg.model.image_size, ufg.schedule.epochs, ufg.schedule.cooldown_epochs) == (448, 50, 5)


def test_mixing_variants_lie_over_a_loss_and_a_tail() -> None:
    cub = train_config(recipe_table("superpixel-mix/vace/cub"))
    assert (cub.augment.superpixel_mix, cub.augment.mix_prob, cub.loss.name) == (3, 0.5, "vace")
    tail = train_config(recipe_table("cifar100/long-tail/transplant"))
    assert (tail.augment.transplant, tail.data.imbalance) == (0.3, 100.0)


def test_unknown_parts_are_named() -> None:
    with pytest.raises(ConfigError, match='names no setting; did you mean "cub"'):
        recipe_table("vace/cubs")
    with pytest.raises(ConfigError, match='cub has no variant "fedlas"; did you mean "fedlas'):
        recipe_table("fedlas/cub")
    with pytest.raises(ConfigError, match="names 2 settings"):
        recipe_table("cub/ufg")


def test_a_schedule_moves_with_its_epochs() -> None:
    schedule = {"epochs": 350, "milestones": [150, 250], "warmup_epochs": 7}
    assert moved_schedule(schedule, 14) == {"warmup_epochs": 0, "milestones": [6, 10]}
    assert moved_schedule(schedule, 350) == {}


def test_another_loss_brings_its_own_options_and_the_same_one_keeps_them() -> None:
    table = {"loss": {"name": "vace", "lam": 0.5}}
    assert laid_over(table, {"loss": {"rho": 1.0}}) == {"loss": {"name": "vace", "lam": 0.5, "rho": 1.0}}
    assert laid_over(table, {"loss": {"name": "ce"}}) == {"loss": {"name": "ce"}}


@pytest.mark.parametrize("setting", settings())
def test_every_setting_has_the_thirteen_baselines(setting: str) -> None:
    named = {"ls", "mbls", "acls", "focal", "flsd53", "dual-focal", "adafocal", "ecp", "mmce", "mdca", "cpc", "crl"}
    assert named <= set(variants(setting))  # and cross-entropy, which a setting has without a variant
    assert train_config(recipe_table(f"crl/{setting}")).loss.options == {"history": "epochs"}
