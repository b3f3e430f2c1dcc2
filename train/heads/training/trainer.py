"""Training one head on a matrix of features that stays where it is: rows are gathered by index, nothing is loaded.

Everything random has a stream of its own, a function of (seed, purpose), so a switch that is off draws nothing and one
that is on moves no other stream. With one thread the weights are bitwise those of a DataLoader loop over the same rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.train.heads.config import TRAINED, HeadConfig
from calibrant.train.heads.split import thirds
from calibrant.train.heads.training.auxiliary import AuxiliaryTerm
from calibrant.train.heads.training.mixing import add_noise, head_to_tail, mix, mixup_share, scale_channels, smote
from calibrant.train.heads.training.modules import Cosine, Folded, Head, Transform, make_body, make_classifier
from calibrant.train.heads.training.solve import discriminant, logistic, nearest_mean
from calibrant.train.losses import LOSSES, Loss, create_loss, effective_number_weights, log_prior
from calibrant.train.losses.prior import weight_strength
from calibrant.train.seeds import derive

logger = logging.getLogger(__name__)


@dataclass
class TrainedHead:
    """A head in eval mode with what its logits need: softmax(loss.adjust_logits(z)) is its probability."""

    head: Head
    loss: Loss | None  # None: closed form
    corrections: dict[str, float]  # prior corrections in the logits, by name; they add up
    history: list[float] = field(default_factory=list)  # mean training loss of each epoch

    @property
    def absorbed(self) -> float:
        return sum(self.corrections.values())

    @torch.no_grad()
    def logits(self, features: Tensor, *, batch: int = 4096) -> Tensor:
        """The head's own logits, scaled as the loss saw them and before class temperatures. (N, ...) -> (N, C)."""
        parts = [self.head(rows)[0] for rows in features.split(batch)]  # type: ignore[no-untyped-call]
        return self.scale * torch.cat(parts)

    @property
    def scale(self) -> float:
        """Scale that a loss on cosines brings (ldam, arcface); 1 for all others."""
        return _own_scale(self.loss)

    def class_temperatures(self) -> Tensor | None:
        return None if self.loss is None else self.loss.class_temperatures()

    @property
    def gauge(self) -> str:
        return str(getattr(self.loss, "gauge", "none"))

    @torch.no_grad()
    def claimed(self, logits: Tensor) -> Tensor:
        """Logits whose softmax the model claims, class temperatures applied, from `logits`."""
        if self.loss is None or self.scale != 1.0:
            return logits
        return self.loss.eval().adjust_logits(logits)


def train_head(
    config: HeadConfig,
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    copies: int = 1,
    validation: tuple[Tensor, Tensor] | None = None,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> TrainedHead:
    """The head of `config` on features (N, D) or (N, T, D), labels (N,); every image gave `copies` of the rows.

    `validation` serves losses that look at validation rows after each epoch (adafocal) and is used by nothing else.
    """
    kind = config.head.kind
    if features.ndim == 3 and kind != "map":
        raise ConfigError(
            f"the features are patch tokens, which a {kind} head cannot read",
            where="head.kind", fix='use kind = "map", or features with another --pooling',
        )  # fmt: skip
    if features.ndim == 2 and kind == "map":
        raise ConfigError(
            "a map head pools patch tokens, and the features are vectors",
            where="head.kind", fix="extract with: calibrant features --pooling tokens",
        )  # fmt: skip
    with torch.random.fork_rng(
        devices=[]
    ):  # dropout and initial values use the global stream; the caller's stays as it is
        _seed(config, "init")
        transform = fit_transform(config, features)
        x = transform(features)
        counts = torch.bincount(labels, minlength=classes)
        if kind not in TRAINED:
            return _solved(config, transform, x, labels, counts, copies)
        return _Run(config, transform, x, labels, counts, validation).fit(on_epoch)


def fit_transform(config: HeadConfig, features: Tensor) -> Transform:
    name = config.input.transform
    transform = Transform(features.shape[-1], power=config.input.power, unit=name == "l2").to(features.device)
    transform.fit(features, center=name == "center", standardise=name == "standardise")
    return transform.eval()


def _solved(config: HeadConfig, transform: Transform, x: Tensor, y: Tensor, counts: Tensor, copies: int) -> TrainedHead:
    """Logistic regression, nearest mean and discriminant: no steps, no randomness but SMOTE's."""
    head, classes = config.head, len(counts)
    corrections: dict[str, float] = {}
    x, y, filled = _with_smote(config, x, y, counts)
    corrections.update(filled)
    loss: Loss | None = None
    classifier: nn.Module
    if head.kind == "logistic":
        loss = make_loss(config, classes, x.shape[1], counts)
        smoothing = config.loss.label_smoothing
        mass = nn.functional.one_hot(y, classes).to(x) * (1 - smoothing) + smoothing / classes
        weights = class_weights(config, counts)
        offset = None
        if config.loss.name == "balanced-softmax":
            offset = loss.absorbed_prior_strength * log_prior(counts, classes)
        weight, bias = logistic(
            x, mass, l2=head.l2, row_weights=None if weights is None else weights.to(x)[y], offset=offset
        )
        classifier = _linear(weight, bias)
        corrections |= _named({"loss": loss.absorbed_prior_strength, "class weights": _strength(weights, counts)})
    elif head.kind == "ncm":
        cosine = head.metric == "cosine"
        weight, found = nearest_mean(x, y, classes, prior_rows=head.prior_rows, cosine=cosine)
        classifier = Folded(head.scale * weight) if found is None else _linear(weight, found)
        corrections["equal class priors"] = 1.0
    else:
        classifier = _linear(
            *discriminant(
                x, y, classes, prior_rows=head.prior_rows, shrinkage=head.shrinkage, between=head.between, copies=copies
            )
        )
        corrections["equal class priors"] = 1.0
    whole = Head(transform, nn.Identity(), classifier, hidden=x.shape[1])
    return TrainedHead(whole.requires_grad_(False).eval(), loss, corrections)


class _Run:
    """One training run; the two phases share it."""

    def __init__(
        self,
        config: HeadConfig,
        transform: Transform,
        x: Tensor,
        y: Tensor,
        counts: Tensor,
        validation: tuple[Tensor, Tensor] | None,
    ) -> None:
        self.config, self.counts, self.validation = config, counts, validation
        self.device, self.classes = x.device, len(counts)
        body, hidden = make_body(config.head, x.shape[-1])
        cosines = _wants_cosines(config)
        classifier = make_classifier(config.head, hidden, self.classes, cosines=cosines)
        self.head = Head(transform, body, classifier, hidden=hidden).to(self.device)
        if config.head.kind == "prototype":
            self._start_at_means(x, y)
        _seed(config, "loss")
        self.loss = make_loss(config, self.classes, hidden, counts).to(self.device)
        if self.loss.needs_cosines and config.head.kind not in ("linear", "mlp", "map", "arcface"):
            raise ConfigError(
                f"loss {config.loss.name} brings its own cosine layer", where="loss.name",
                fix='use head.kind = "linear", "mlp" or "map"',
            )  # fmt: skip
        _seed(config, "auxiliary")
        self.auxiliary = (
            None if config.auxiliary.name == "none"
            else AuxiliaryTerm(config.auxiliary, hidden=hidden, counts=counts).to(self.device)
        )  # fmt: skip
        self.corrections = _named({"loss": self.loss.absorbed_prior_strength})
        self.x, self.y, filled = _with_smote(config, x, y, counts)
        self.corrections |= filled
        self.weights = class_weights(config, counts)
        self.corrections |= _named({"class weights": _strength(self.weights, counts)})
        self.row_weights = sampling_weights(
            config.sampling.name, torch.bincount(self.y, minlength=self.classes), self.y
        )
        if self.row_weights is not None:
            self.corrections |= _named({"sampling": {"balanced": 1.0, "sqrt": 0.5}[config.sampling.name]})
        augment = config.augment
        self.plain = augment == type(augment)(smote=augment.smote, smote_neighbours=augment.smote_neighbours)
        self.deviation = self.x.reshape(-1, self.x.shape[-1]).std(0) if augment.noise else None
        self.tail = self.pool = None
        if augment.head_tail:
            groups = thirds(counts.cpu().numpy())
            self.tail = torch.zeros(self.classes, dtype=torch.bool, device=self.device)
            self.tail[torch.as_tensor(groups["tail"].copy(), device=self.device)] = True
            heads = torch.as_tensor(groups["head"].copy(), device=self.device)
            self.pool = self.x[torch.isin(self.y, heads)]
        self.rng = {
            name: torch.Generator().manual_seed(derive(config.seed, name))
            for name in ("order", "noise", "channels", "mixup", "head-tail", "crt")
        }

    def fit(self, on_epoch: Callable[[int, float], None]) -> TrainedHead:
        config, o = self.config, self.config.optimizer
        _seed(config, "steps")
        modules = [self.head, self.loss, *([self.auxiliary] if self.auxiliary else [])]
        history = self._phase(modules, self.loss, epochs=o.epochs, lr=o.lr, order=self._order, on_epoch=on_epoch)
        if config.crt.epochs:
            history += self._second_phase(on_epoch)
        return TrainedHead(
            self.head.requires_grad_(False).eval(), self.loss.requires_grad_(False).eval(), self.corrections, history
        )

    def _phase(
        self,
        modules: list[nn.Module],
        loss: Loss,
        *,
        epochs: int,
        lr: float,
        order: Callable[[], Tensor],
        on_epoch: Callable[[int, float], None],
        done: int = 0,
    ) -> list[float]:
        config, size = self.config, self.config.optimizer.batch_size
        steps = -(-len(self.x) // size)
        optimizer = make_optimizer(config, modules, lr)
        schedule = make_schedule(config, optimizer, lr, epochs * steps)
        average = _Average(self.head, config.ema.decay) if config.ema.decay else None
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        history: list[float] = []
        for module in modules:
            module.train()
        for epoch in range(epochs):
            loss.on_epoch_start(epoch, epochs)
            total = torch.zeros((), device=self.device)
            for rows in order().split(size):  # type: ignore[no-untyped-call]
                value = self._step_loss(loss, rows, epoch / epochs)
                for p in parameters:
                    p.grad = None
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if schedule is not None:
                    schedule.step()
                if average is not None:
                    average.update()
                total += value.detach()
            history.append(float(total) / steps)
            if not math.isfinite(history[-1]):
                raise ConfigError(
                    f"the loss is {history[-1]} in epoch {epoch + 1}", where="optimizer.lr",
                    fix=f"lower it (it is {lr:g}), or set input.transform = \"standardise\"",
                )  # fmt: skip
            loss.on_epoch_end(epoch, epochs)
            self._show_validation(loss)
            on_epoch(done + epoch, history[-1])
        if loss.absorbed_prior_strength and loss is self.loss:  # deferred re-weighting sets in late
            self.corrections["loss"] = loss.absorbed_prior_strength
        if average is not None:
            average.copy_back()
        return history

    def _order(self) -> Tensor:
        n = len(self.x)
        if self.row_weights is None:
            return torch.randperm(n, generator=self.rng["order"]).to(self.device)
        return torch.multinomial(self.row_weights, n, True, generator=self.rng["order"]).to(self.device)

    def _step_loss(self, loss: Loss, rows: Tensor, progress: float) -> Tensor:
        x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
        if self.plain:
            z, h = self.head.after_transform(x)
            value = self._reduced(loss, z, self._target(y, y, 1.0), h, rows, progress)
            return value if self.auxiliary is None else value + self.auxiliary(z, y, h)
        return self._augmented_step(loss, self._augmented(x, y), y, rows, progress)

    def _augmented(self, x: Tensor, y: Tensor) -> Tensor:
        a = self.config.augment
        if self.tail is not None and self.pool is not None:
            x = head_to_tail(
                x, y, pool=self.pool, is_tail=self.tail, share=a.head_tail, largest=a.head_tail_lam,
                rng=self.rng["head-tail"],
            )  # fmt: skip
        if self.deviation is not None:
            x = add_noise(x, self.deviation, a.noise, self.rng["noise"])
        if a.channel_scale:
            x = scale_channels(x, a.channel_scale, self.rng["channels"])
        return x

    def _augmented_step(self, loss: Loss, x: Tensor, y: Tensor, rows: Tensor, progress: float) -> Tensor:
        a = self.config.augment
        if not a.mixup:
            z, h = self.head.after_transform(x)
            value = self._reduced(loss, z, self._target(y, y, 1.0), h, rows, progress)
            return value if self.auxiliary is None else value + self.auxiliary(z, y, h)
        lam = mixup_share(a.mixup, self.rng["mixup"])
        order = torch.randperm(len(y), generator=self.rng["mixup"]).to(y.device)
        # Losses and auxiliary terms that read features see unmixed rows: a mixture belongs to no class.
        unmixed = self.head.body(x) if a.mixup_layer == "hidden" or self.auxiliary or loss.needs_features else None
        if a.mixup_layer == "hidden":
            assert unmixed is not None  # for the type checker
            z = self.head.classifier(mix(unmixed, order, lam))
        else:
            z = self.head.classifier(self.head.body(mix(x, order, lam)))
        value = self._reduced(loss, z, self._target(y, y[order], lam), unmixed, rows, progress)
        return value if self.auxiliary is None else value + self.auxiliary(z, y, unmixed)

    def _target(self, y: Tensor, other: Tensor, lam: float) -> Tensor:
        """Hard labels where nothing softens them, else probabilities (B, C)."""
        smoothing = self.config.loss.label_smoothing
        if lam == 1.0 and not smoothing:
            return y
        mass = torch.full((len(y), self.classes), smoothing / self.classes, device=y.device)
        mass.scatter_add_(1, y[:, None], torch.full((len(y), 1), (1 - smoothing) * lam, device=y.device))
        mass.scatter_add_(1, other[:, None], torch.full((len(y), 1), (1 - smoothing) * (1 - lam), device=y.device))
        return mass

    def _reduced(
        self, loss: Loss, z: Tensor, target: Tensor, h: Tensor | None, rows: Tensor, progress: float
    ) -> Tensor:
        """The mean, or the mean of weighted and of the hardest rows."""
        value: Tensor = loss(
            z, target, h if loss.needs_features else None, indices=rows if loss.needs_indices else None
        )
        if loss.reduction != "none":
            return value
        c = self.config.loss
        weights = torch.ones_like(value)
        if self.weights is not None and progress >= c.weights_from:
            w = self.weights.to(value)
            weights = target.to(w.dtype) @ w if target.is_floating_point() else w[target]
        if c.hard_share < 1 and progress >= c.hard_from:
            kept = value.detach().topk(math.ceil(c.hard_share * len(value))).indices
            value, weights = value[kept], weights[kept]
        mean: Tensor = (weights * value).sum() / weights.sum()
        return mean

    def _second_phase(self, on_epoch: Callable[[int, float], None]) -> list[float]:
        """cRT: the last layer anew on frozen features, class-balanced rows, cross-entropy (Kang et al. 2020)."""
        config, crt = self.config, self.config.crt
        scale = _own_scale(self.loss)
        _seed(config, "second-phase")
        fresh = make_classifier(config.head, self.head.hidden, self.classes, cosines=self.loss.needs_cosines)
        if isinstance(fresh, Cosine) and self.loss.needs_cosines:
            fresh.scale = scale
        self.head.body.requires_grad_(False)
        self.head.classifier = fresh.to(self.device)
        counts = torch.bincount(self.y, minlength=self.classes)
        weights = sampling_weights("balanced", counts, self.y)
        assert weights is not None  # for the type checker: "balanced" always has weights
        plain = create_loss("ce", num_classes=self.classes)
        self.loss = plain
        self.weights, self.auxiliary, self.plain = None, None, True
        self.corrections = {"second phase's sampling": 1.0}
        epochs = config.optimizer.epochs

        def order() -> Tensor:
            return torch.multinomial(weights, len(self.y), True, generator=self.rng["crt"]).to(self.device)

        lr = crt.lr if crt.lr is not None else config.optimizer.lr
        return self._phase(
            [self.head.classifier], plain, epochs=crt.epochs, lr=lr, order=order, on_epoch=on_epoch, done=epochs
        )

    def _show_validation(self, loss: Loss) -> None:
        if type(loss).on_validation is Loss.on_validation:
            return
        if self.validation is None:
            raise ConfigError(f"loss {self.config.loss.name} needs validation rows after each epoch", where="loss.name")
        x, y = self.validation
        self.head.eval()
        with torch.no_grad():
            loss.on_validation(loss.adjust_logits(self.head(x)[0]).softmax(1), y)
        self.head.train()

    def _start_at_means(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            assert isinstance(self.head.classifier, Cosine)
            unit = nn.functional.normalize(x, dim=1)
            sums = torch.zeros_like(self.head.classifier.weight).index_add_(0, y, unit)
            self.head.classifier.weight.copy_(nn.functional.normalize(sums, dim=1))


class _Average:
    """Exponential average of weights and buffers; warmed up, since the first steps are far from the end."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay, self.steps = module, decay, 0
        self.values = [t.detach().clone() for t in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        return list(self.module.parameters())

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.values, [t.detach() for t in self._tensors()], 1 - decay)

    @torch.no_grad()
    def copy_back(self) -> None:
        for t, value in zip(self._tensors(), self.values, strict=True):
            t.copy_(value)


def make_loss(config: HeadConfig, classes: int, hidden: int, counts: Tensor) -> Loss:
    """The loss of the configuration; arcface heads bring theirs."""
    c = config.loss
    options = dict(c.options)
    name = c.name
    if config.head.kind == "arcface":
        if name not in ("ce", "arcface") or options:
            raise ConfigError(
                f'an arcface head has its own loss, not "{name}"', where="loss", fix="set head.margin and head.scale"
            )
        name, options = "arcface", {"margin": config.head.margin, "scale": config.head.scale}
    if name == "vace" and (config.augment.mixup or c.label_smoothing):
        raise ConfigError(
            "vace measures the scatter of unmixed classes", where="loss.name", fix="leave mixup and label_smoothing out"
        )
    if c.class_weights != "none" or c.hard_share < 1:
        options["reduction"] = "none"
    loss = create_loss(name, num_classes=classes, feature_dim=hidden, class_counts=counts, **options)
    if not loss.trains_classifier:
        raise ConfigError(
            f'"{name}" says nothing about logits', where="loss.name", fix=f'use auxiliary.name = "{name}"'
        )
    return loss


def class_weights(config: HeadConfig, counts: Tensor) -> Tensor | None:
    """w_c (C,): 1/n, 1/sqrt(n), or the effective number's; a class without rows has weight 0. The mean is weighted."""
    name = config.loss.class_weights
    if name == "none":
        return None
    if name == "effective":
        return effective_number_weights(counts, beta=config.loss.weights_beta)
    n = counts.double()
    return torch.where(n > 0, n.clamp(min=1) ** (-1.0 if name == "inverse" else -0.5), 0.0)


def sampling_weights(name: str, counts: Tensor, y: Tensor) -> Tensor | None:
    """Weight of each row for drawing with replacement: classes equally often, or by the root of their size."""
    if name == "random":
        return None
    return (counts.double() ** (-1.0 if name == "balanced" else -0.5))[y].cpu()


def make_optimizer(config: HeadConfig, modules: list[nn.Module], lr: float) -> torch.optim.Optimizer:
    """The head's parameters decay, those of losses and projection heads do not."""
    o = config.optimizer
    own = [p for p in modules[0].parameters() if p.requires_grad]
    other = [p for m in modules[1:] for p in m.parameters() if p.requires_grad]
    groups = [{"params": own, "weight_decay": o.weight_decay}]
    if other:
        groups.append({"params": other, "weight_decay": 0.0})
    if o.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=o.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def make_schedule(
    config: HeadConfig, optimizer: torch.optim.Optimizer, lr: float, steps: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    name = config.optimizer.schedule
    if name == "constant" or steps < 4:
        return None
    if name == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)


def _with_smote(config: HeadConfig, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, dict[str, float]]:
    a = config.augment
    if not a.smote:
        return x, y, {}
    rng = torch.Generator().manual_seed(derive(config.seed, "smote"))
    more_x, more_y = smote(x, y, len(counts), fill=a.smote, neighbours=a.smote_neighbours, rng=rng)
    y_all = torch.cat([y, more_y])
    ratio = torch.bincount(y_all, minlength=len(counts)).double() / counts.double().clamp(min=1)
    return torch.cat([x, more_x]), y_all, _named({"smote": weight_strength(ratio.cpu(), counts.cpu())})


def _strength(weights: Tensor | None, counts: Tensor) -> float:
    return 0.0 if weights is None else weight_strength(weights.cpu(), counts.cpu())


def _named(parts: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in parts.items() if abs(value) > 1e-9}


def _wants_cosines(config: HeadConfig) -> bool:
    name = "arcface" if config.head.kind == "arcface" else config.loss.name
    return name in LOSSES and LOSSES[name].needs_cosines


def _own_scale(loss: Loss | None) -> float:
    return float(loss.scale) if loss is not None and loss.needs_cosines else 1.0  # type: ignore[arg-type]


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0]).to(weight.device)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def _seed(config: HeadConfig, purpose: str) -> None:
    torch.default_generator.manual_seed(derive(config.seed, purpose))
