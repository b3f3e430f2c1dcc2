"""Switches: each changes the weights when on and nothing when off; the values that can be worked out are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from calibrant.errors import ConfigError
from calibrant.train.heads.config import head_config
from calibrant.train.heads.training.balance import class_weights, sampling_weights
from calibrant.train.heads.training.ensemble import train_heads
from calibrant.train.heads.training.modules import AttentionPool
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.losses import LOSSES, create_loss
from calibrant.train.seeds import derive

C, D = 6, 12
QUICK = ["optimizer.epochs=3", "optimizer.batch_size=16", "optimizer.lr=0.01"]


def fit(toy: tuple[Tensor, Tensor], *settings: str, epochs: int = 3, classes: int = C) -> TrainedHead:
    x, y = toy
    config = head_config({}, [*QUICK, f"optimizer.epochs={epochs}", *settings])
    return train_heads(config, x, y, classes, validation=(x, y))


def state(trained: TrainedHead) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in trained.head.state_dict().items()}


def same(a: TrainedHead, b: TrainedHead) -> bool:
    left, right = state(a), state(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


# (settings that must be there, the switch on, the same switch written out as off)
SWITCHES = {
    "centre": ([], ["input.transform=center"], ["input.transform=none"]),
    "standardise": ([], ["input.transform=standardise"], ["input.transform=none"]),
    "unit length": ([], ["input.transform=l2"], ["input.transform=none"]),
    "power": ([], ["input.power=0.5"], ["input.power=1.0"]),
    "label smoothing": ([], ["loss.label_smoothing=0.1"], ["loss.label_smoothing=0.0"]),
    "inverse weights": ([], ["loss.class_weights=inverse"], ["loss.class_weights=none"]),
    "root weights": ([], ["loss.class_weights=sqrt"], ["loss.class_weights=none"]),
    "effective weights": ([], ["loss.class_weights=effective"], ["loss.class_weights=none"]),
    "deferred weights": (["loss.class_weights=inverse"], ["loss.weights_from=0.6"], ["loss.weights_from=0.0"]),
    "hard examples": ([], ["loss.hard_share=0.5", "loss.hard_from=0.0"], ["loss.hard_share=1.0", "loss.hard_from=0.0"]),
    "noise": ([], ["augment.noise=0.2"], ["augment.noise=0.0"]),
    "channel scaling": ([], ["augment.channel_scale=0.2"], ["augment.channel_scale=0.0"]),
    "mixup": ([], ["augment.mixup=2.0"], ["augment.mixup=0.0"]),
    "hidden mixup": (["head.kind=mlp", "head.hidden=[8]"], ["augment.mixup=2.0", "augment.mixup_layer=hidden"], []),
    "smote": ([], ["augment.smote=1.0"], ["augment.smote=0.0"]),
    "head-tail mixing": ([], ["augment.head_tail=1.0"], ["augment.head_tail=0.0"]),
    "balanced batches": ([], ["sampling.name=balanced"], ["sampling.name=random"]),
    "root batches": ([], ["sampling.name=sqrt"], ["sampling.name=random"]),
    "crt": ([], ["crt.epochs=2"], ["crt.epochs=0"]),
    "ema": ([], ["ema.decay=0.9"], ["ema.decay=0.0"]),
    "dropout": (["head.kind=mlp", "head.hidden=[8]"], ["head.dropout=0.5"], ["head.dropout=0.0"]),
    "supcon": (["head.kind=mlp", "head.hidden=[8]"], ["auxiliary.name=supcon"], ["auxiliary.name=none"]),
    "weighted supcon": (
        ["head.kind=mlp", "head.hidden=[8]", "auxiliary.name=supcon"],
        ["auxiliary.name=weighted-supcon"],
        ["auxiliary.name=supcon"],
    ),
    "balanced contrastive": (["head.kind=mlp", "head.hidden=[8]"], ["auxiliary.name=balanced-contrastive"], []),
    "center": (["head.kind=mlp", "head.hidden=[8]"], ["auxiliary.name=center"], ["auxiliary.name=none"]),
    "prototype": (["head.kind=mlp", "head.hidden=[8]"], ["auxiliary.name=prototype"], ["auxiliary.name=none"]),
    "schedule": ([], ["optimizer.schedule=constant"], ["optimizer.schedule=onecycle"]),
    "ensemble": ([], ["ensemble.heads=2"], ["ensemble.heads=1"]),
    "between": (["head.kind=lda"], ["head.between=0.5"], ["head.between=0.0"]),
    "shrinkage": (["head.kind=lda"], ["head.shrinkage=ledoit-wolf"], ["head.shrinkage=0.5"]),
    "shrunken means": (["head.kind=lda"], ["head.prior_rows=2.0"], ["head.prior_rows=0.0"]),
    "logistic penalty": (["head.kind=logistic"], ["head.l2=0.1"], ["head.l2=0.001"]),
    "weight decay": ([], ["optimizer.weight_decay=0.5"], ["optimizer.weight_decay=0.01"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_the_weights_when_on_and_no_bit_when_off(name: str, toy: tuple[Tensor, Tensor]) -> None:
    needed, on, off = SWITCHES[name]
    plain = fit(toy, *needed)
    assert same(plain, fit(toy, *needed, *off))
    assert not same(plain, fit(toy, *needed, *on))


AUXILIARY = ("supcon", "balanced-contrastive", "center", "prototype")


@pytest.mark.parametrize("name", sorted(n for n in LOSSES if n not in ("ce", *AUXILIARY)))
def test_every_loss_of_the_toolkit_trains_a_head_of_its_own(name: str, toy: tuple[Tensor, Tensor]) -> None:
    needed = ["head.kind=mlp", "head.hidden=[8]"] if name.startswith(("fedlas", "vace")) else []
    margin = ["loss.margin=0.5"] if name in ("acls", "mbls", "fedlas-mbls") else []  # logits of a toy are small
    trained = fit(toy, *needed, f"loss.name={name}", *margin)
    assert not same(fit(toy, *needed), trained)
    assert all(math.isfinite(v) for v in trained.history)


@pytest.mark.parametrize("kind", ["linear", "mlp", "cosine", "arcface", "prototype"])
def test_two_runs_with_one_seed_agree_in_every_bit_and_another_seed_does_not(
    kind: str, toy: tuple[Tensor, Tensor]
) -> None:
    first = fit(toy, f"head.kind={kind}")
    assert same(first, fit(toy, f"head.kind={kind}"))
    assert not same(first, fit(toy, f"head.kind={kind}", "seed=1"))


def test_training_leaves_the_callers_random_stream_alone(toy: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(toy, "head.kind=mlp", "head.dropout=0.5")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_weights_are_bitwise_those_of_a_dataloader_loop(optimizer: str, toy: tuple[Tensor, Tensor]) -> None:
    x, y = toy
    trained = fit(toy, f"optimizer.name={optimizer}", "optimizer.schedule=constant", epochs=4)

    torch.manual_seed(derive(0, "init"))
    model = nn.Linear(D, C)
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.01, "fused": True}
    step = torch.optim.AdamW(model.parameters(), **options) if optimizer == "adamw" else (
        torch.optim.SGD(model.parameters(), momentum=0.9, **options)
    )  # fmt: skip
    order = torch.Generator().manual_seed(derive(0, "order"))
    loss = create_loss("ce", num_classes=C)
    for _ in range(4):
        batches = BatchSampler(torch.randperm(len(x), generator=order).tolist(), 16, drop_last=False)
        for xb, yb in DataLoader(TensorDataset(x, y), batch_sampler=batches):
            step.zero_grad()
            loss(model(xb), yb).backward()
            step.step()
    classifier = trained.head.classifier
    assert isinstance(classifier, nn.Linear)
    assert torch.equal(classifier.weight, model.weight)
    assert torch.equal(classifier.bias, model.bias)


def test_label_smoothing_is_the_smoothed_cross_entropy_of_the_toolkit(toy: tuple[Tensor, Tensor]) -> None:
    a, b = fit(toy, "loss.label_smoothing=0.2"), fit(toy, "loss.name=ls", "loss.alpha=0.2")
    torch.testing.assert_close(state(a), state(b), rtol=1e-5, atol=1e-6)


def test_class_weights_by_hand() -> None:
    counts = torch.tensor([8, 2])
    config = head_config({}, ["loss.class_weights=inverse"])
    assert class_weights(config, counts).tolist() == [1 / 8, 1 / 2]  # type: ignore[union-attr]
    config = head_config({}, ["loss.class_weights=sqrt"])
    assert class_weights(config, counts).tolist() == pytest.approx([8**-0.5, 2**-0.5])  # type: ignore[union-attr]
    # effective number, beta .5: (1 - .5) / (1 - .5^8) and (1 - .5) / (1 - .25), scaled to sum 2
    config = head_config({}, ["loss.class_weights=effective", "loss.weights_beta=0.5"])
    raw = np.asarray([0.5 / (1 - 0.5**8), 0.5 / 0.75])
    assert class_weights(config, counts).tolist() == pytest.approx((2 * raw / raw.sum()).tolist())  # type: ignore[union-attr]


def test_weighted_and_hard_rows_by_hand(toy: tuple[Tensor, Tensor]) -> None:
    """One step on all rows: the loss value of the history is the weighted mean over the hardest half."""
    x, y = toy
    n = len(x)
    trained = fit(
        toy, "loss.class_weights=inverse", "loss.hard_share=0.5", "loss.hard_from=0.0", f"optimizer.batch_size={n}",
        epochs=1,
    )  # fmt: skip
    torch.manual_seed(derive(0, "init"))
    rows = nn.functional.cross_entropy(nn.Linear(D, C)(x), y, reduction="none").detach()
    hard = rows.topk(math.ceil(n / 2)).indices
    w = 1.0 / torch.bincount(y, minlength=C)[y[hard]]
    assert trained.history[0] == pytest.approx(float((w * rows[hard]).sum() / w.sum()), rel=1e-5)


def test_balanced_sampling_draws_classes_equally_often_and_root_sampling_by_the_root() -> None:
    y = torch.tensor([0] * 9 + [1])
    counts = torch.bincount(y)
    balanced, root = (sampling_weights(name, counts, y) for name in ("balanced", "sqrt"))
    assert balanced is not None
    assert root is not None
    assert float(balanced[:9].sum()) == pytest.approx(float(balanced[9:].sum()))
    assert float(root[:9].sum() / root[9:].sum()) == pytest.approx(3.0)  # sqrt(9) : sqrt(1)


def test_ema_is_the_warmed_up_average_of_the_steps(toy: tuple[Tensor, Tensor]) -> None:
    """Two epochs of one step: e1 = lerp(w0, w1, 1 - 2/11), e2 = lerp(e1, w2, 1 - 3/12)."""
    n = len(toy[0])
    one = ["optimizer.schedule=constant", f"optimizer.batch_size={n}"]
    torch.manual_seed(derive(0, "init"))
    w0 = nn.Linear(D, C).weight.detach()
    w1, w2 = (state(fit(toy, *one, epochs=k))["classifier.weight"] for k in (1, 2))
    average = state(fit(toy, *one, "ema.decay=0.99", epochs=2))["classifier.weight"]
    e1 = w0 + (1 - 2 / 11) * (w1 - w0)
    torch.testing.assert_close(average, e1 + (1 - 3 / 12) * (w2 - e1), rtol=1e-5, atol=1e-7)


def test_second_phase_renews_the_last_layer_and_keeps_the_body(toy: tuple[Tensor, Tensor]) -> None:
    kind = ["head.kind=mlp", "head.hidden=[8]"]
    before, after = state(fit(toy, *kind)), state(fit(toy, *kind, "crt.epochs=2"))
    assert torch.equal(before["body.0.weight"], after["body.0.weight"])
    assert not torch.equal(before["classifier.weight"], after["classifier.weight"])


def test_ldam_and_arcface_probabilities_come_from_the_scaled_cosine(toy: tuple[Tensor, Tensor]) -> None:
    x, _ = toy
    for settings, scale in ((["loss.name=ldam"], 30.0), (["head.kind=arcface", "head.scale=20.0"], 20.0)):
        trained = fit(toy, *settings)
        w = state(trained)["classifier.weight"]
        cosine = nn.functional.normalize(x, dim=1) @ nn.functional.normalize(w, dim=1).T
        torch.testing.assert_close(trained.claimed(trained.logits(x)), scale * cosine, rtol=1e-4, atol=1e-4)


def test_prototypes_start_at_the_class_means(toy: tuple[Tensor, Tensor]) -> None:
    x, y = toy
    trained = fit(toy, "head.kind=prototype", "optimizer.lr=1e-12", "optimizer.weight_decay=0", epochs=1)
    unit = nn.functional.normalize(x, dim=1)
    mean = nn.functional.normalize(unit[y == 2].sum(0), dim=0)
    torch.testing.assert_close(state(trained)["classifier.weight"][2], mean, rtol=1e-4, atol=1e-5)


# Corrections of the class prior


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ([], 0.0),
        (["loss.name=balanced-softmax"], 1.0),
        (["loss.name=balanced-softmax", "loss.tau=1.5"], 1.5),
        (["loss.class_weights=inverse"], 1.0),
        (["loss.class_weights=sqrt"], 0.5),
        (["sampling.name=balanced"], 1.0),
        (["augment.smote=1.0"], 1.0),
        (["loss.name=balanced-softmax", "sampling.name=sqrt", "loss.class_weights=inverse"], 2.5),
        (["loss.name=balanced-softmax", "crt.epochs=1"], 1.0),
        (["head.kind=mlp", "loss.name=ce"], 0.0),
    ],
)
def test_strengths_of_the_prior_correction_add_up(
    settings: list[str], total: float, toy: tuple[Tensor, Tensor]
) -> None:
    assert fit(toy, *settings, epochs=1).absorbed == pytest.approx(total, abs=1e-6)


def long_tail(seed: int, counts: list[int]) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    centres = 1.6 * np.random.default_rng(9).normal(size=(len(counts), 4))
    y = np.repeat(np.arange(len(counts)), counts)
    x = centres[y] + 1.2 * rng.normal(size=(len(y), 4))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def test_training_adds_log_prior_and_post_hoc_subtracts_it() -> None:
    """With the sign turned round, the balanced error of both routes is far worse than without any correction."""
    counts = [600, 200, 60, 20, 8, 6]
    train, (tx, ty) = long_tail(0, counts), long_tail(1, [300] * 6)
    log_pi = torch.log(torch.tensor(counts) / sum(counts))

    def error(z: Tensor) -> float:
        wrong = (z.argmax(1) != ty).float()
        return float(torch.stack([wrong[ty == k].mean() for k in range(6)]).mean())

    plain = fit(train, "head.kind=logistic", "head.l2=1e-4").logits(tx)
    balanced = fit(train, "head.kind=logistic", "head.l2=1e-4", "loss.name=balanced-softmax").logits(tx)
    turned = fit(train, "head.kind=logistic", "head.l2=1e-4", "loss.name=balanced-softmax", "loss.tau=-1.0").logits(tx)
    stepped = fit(train, "loss.name=balanced-softmax", epochs=20).logits(tx)
    assert error(balanced) < error(plain) - 0.05
    assert error(stepped) < error(plain) - 0.05
    assert error(plain - log_pi) < error(plain) - 0.05
    assert error(plain + log_pi) > error(plain) + 0.05
    assert error(turned) > error(plain) + 0.05


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["auxiliary.name=supcon"], "has no hidden features"),
        (["head.kind=ncm", "augment.noise=0.1"], "does not obey"),
        (["head.kind=logistic", "loss.name=focal"], "does not obey"),
        (["head.kind=map"], "pools patch tokens"),
        (["loss.name=supcon"], "says nothing about logits"),
        (["head.kind=cosine", "loss.name=ldam"], "its own cosine layer"),
        (["head.kind=arcface", "loss.name=focal"], "its own loss"),
        (["loss.name=vace", "augment.mixup=1.0"], "unmixed"),
        (["optimizer.lr=1e6", "optimizer.name=sgd", "optimizer.schedule=constant"], "lower it"),
        (["augment.mixup=1.0", "augment.mixup_layer=hidden"], "no hidden layer"),
        (["loss.hard_share=0"], "must be from"),
        (["head.margin=0.2"], "a linear head does not read head.margin.*use head.kind = arcface"),
        (["head.kind=lda", "head.between=0.1", "head.prior_rows=1.0"], "both shrink"),
        (["head.kind=lda", "ensemble.heads=2"], "does not obey"),
        (["head.kind=mlp", "ensemble.heads=2"], "do not average"),
        (["head.kind=lda", "head.shrinkage=1.5"], "must be from"),
    ],
)
def test_switches_that_could_do_nothing_are_refused(
    settings: list[str], message: str, toy: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(toy, *settings, epochs=60)


def test_map_head_pools_tokens_in_any_order(toy: tuple[Tensor, Tensor]) -> None:
    """Attention pooling has no positions: shuffled tokens give the same logits. And it learns."""
    x, y = toy
    tokens = x[:, None, :] + 0.5 * torch.randn(len(x), 5, D, generator=torch.Generator().manual_seed(0))
    trained = fit((tokens, y), "head.kind=map", "head.heads=3", epochs=15)
    shuffled = tokens[:, torch.tensor([3, 0, 4, 1, 2])]
    torch.testing.assert_close(trained.logits(tokens), trained.logits(shuffled), rtol=1e-4, atol=1e-4)
    assert float((trained.logits(tokens).argmax(1) == y).float().mean()) > 0.9
    with pytest.raises(ConfigError, match="patch tokens"):
        fit((tokens, y), "head.kind=linear")
    with pytest.raises(ConfigError, match="does not divide"):
        fit((tokens, y), "head.kind=map", "head.heads=5")


def test_attention_pooling_is_multi_head_attention_with_one_query() -> None:
    """torch's own attention with the same matrices, then the residual MLP."""
    torch.manual_seed(0)
    pool = AttentionPool(12, 3).double().eval()
    tokens = torch.randn(4, 7, 12, dtype=torch.float64)
    other = nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    with torch.no_grad():
        pool.norm.weight.uniform_(0.5, 2.0)
        pool.norm.bias.uniform_(-1.0, 1.0)
        other.in_proj_weight.copy_(torch.cat([torch.eye(12), pool.key_value.weight]))
        other.in_proj_bias.copy_(torch.cat([torch.zeros(12), pool.key_value.bias]))
        other.out_proj.load_state_dict(pool.out.state_dict())
        x = pool.norm(tokens)
        pooled = other(pool.query.expand(4, 1, 12), x, x, need_weights=False)[0][:, 0]
        torch.testing.assert_close(pool(tokens), pooled + pool.mlp(pooled))


@pytest.mark.parametrize("kind", [["head.kind=linear"], ["head.kind=cosine"], ["loss.name=ldam"]])
def test_an_ensemble_is_the_mean_of_its_members_logits(kind: list[str], toy: tuple[Tensor, Tensor]) -> None:
    x, _ = toy
    members = [fit(toy, *kind), fit(toy, *kind, f"seed={derive(0, 'ensemble', 1)}")]
    both = fit(toy, *kind, "ensemble.heads=2")
    expected = torch.stack([m.claimed(m.logits(x)) for m in members]).mean(0)
    torch.testing.assert_close(both.claimed(both.logits(x)), expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(members[0].logits(x), members[1].logits(x))
    assert both.absorbed == members[0].absorbed
