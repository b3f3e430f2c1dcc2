"""Training one head on a matrix of features that stays where it is: rows are gathered by index, nothing is loaded.

Everything random has a stream of its own, a function of (seed, purpose), so a switch that is off draws nothing and one
that is on moves no other stream. With one thread the weights are bitwise those of a DataLoader loop over the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.settings.heads import TRAINED, HeadConfig
from calibrant.shares import thirds
from calibrant.train.heads.training.auxiliary import AuxiliaryTerm
from calibrant.train.heads.training.balance import (
    class_weights,
    corrections_of,
    sampling_weights,
    strength_of,
    with_smote,
)
from calibrant.train.heads.training.closed_form import solve
from calibrant.train.heads.training.head_loss import make_loss, reduced, smoothed_target, wants_cosines
from calibrant.train.heads.training.mixing import add_noise, head_to_tail, mix, mixup_share, scale_channels
from calibrant.train.heads.training.modules import Cosine, Head, Transform, make_body, make_classifier
from calibrant.train.heads.training.optimizing import WeightAverage, make_optimizer, make_schedule
from calibrant.train.heads.training.row_views import RowViews, Twins, disagreement, refuse_mixed_rows
from calibrant.train.heads.training.trained import TrainedHead, own_scale
from calibrant.train.losses import Loss, create_loss
from calibrant.train.seeds import derive


def train_head(
    config: HeadConfig,
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    copies: int = 1,
    views: RowViews | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> TrainedHead:
    """The head of `config` on features (N, D) or (N, T, D), labels (N,); every image gave `copies` of the rows.

    `views` says of which image each row is and, of mixed views, what the second label is.
    `validation` serves losses that look at validation rows after each epoch (adafocal) and is used by nothing else.
    """
    kind = config.head.kind
    if features.ndim == 3 and kind != "map":
        raise ConfigError(
            f"the features are patch tokens, which a {kind} head cannot read",
            where="head.kind",
            fix='use kind = "map", or features with another --pooling',
        )
    if features.ndim == 2 and kind == "map":
        raise ConfigError(
            "a map head pools patch tokens, and the features are vectors",
            where="head.kind",
            fix="extract with: calibrant features --pooling tokens",
        )
    with torch.random.fork_rng(
        devices=[]
    ):  # dropout and initial values use the global stream; the caller's stays as it is
        _seed(config, "init")
        transform = fit_transform(config, features)
        x = transform(features)
        counts = torch.bincount(labels, minlength=classes)
        if views is not None and views.share is not None:
            refuse_mixed_rows(config)
            counts = views.mass(labels, classes).round().long()
        if kind not in TRAINED:
            return solve(config, transform, x, labels, counts, copies)
        return _Training(config, transform, x, labels, counts, validation, views).fit(on_epoch)


def fit_transform(config: HeadConfig, features: Tensor) -> Transform:
    name = config.input.transform
    transform = Transform(features.shape[-1], power=config.input.power, unit=name == "l2").to(features.device)
    transform.fit(features, center=name == "center", standardise=name == "standardise")
    return transform.eval()


class _Training:
    """One training run; the two phases share it."""

    def __init__(
        self,
        config: HeadConfig,
        transform: Transform,
        x: Tensor,
        y: Tensor,
        counts: Tensor,
        validation: tuple[Tensor, Tensor] | None,
        views: RowViews | None = None,
    ) -> None:
        self.config, self.counts, self.validation = config, counts, validation
        self.device, self.classes = x.device, len(counts)
        body, hidden = make_body(config.head, x.shape[-1])
        cosines = wants_cosines(config)
        classifier = make_classifier(config.head, hidden, self.classes, cosines=cosines)
        self.head = Head(transform, body, classifier, hidden=hidden).to(self.device)
        if config.head.kind == "prototype":
            self._start_at_means(x, y)
        _seed(config, "loss")
        self.loss = make_loss(config, self.classes, hidden, counts).to(self.device)
        if self.loss.needs_cosines and config.head.kind not in ("linear", "mlp", "map", "arcface"):
            raise ConfigError(
                f"loss {config.loss.name} brings its own cosine layer",
                where="loss.name",
                fix='use head.kind = "linear", "mlp" or "map"',
            )
        _seed(config, "auxiliary")
        self.auxiliary = (
            None
            if config.auxiliary.name == "none"
            else AuxiliaryTerm(config.auxiliary, hidden=hidden, counts=counts).to(self.device)
        )
        self.corrections = corrections_of({"loss": self.loss.absorbed_prior_strength})
        self.x, self.y, filled = with_smote(config, x, y, counts)
        self.corrections |= filled
        self.weights = class_weights(config, counts)
        self.corrections |= corrections_of({"class weights": strength_of(self.weights, counts)})
        self.row_weights = sampling_weights(
            config.sampling.name, torch.bincount(self.y, minlength=self.classes), self.y
        )
        if self.row_weights is not None:
            self.corrections |= corrections_of({"sampling": {"balanced": 1.0, "sqrt": 0.5}[config.sampling.name]})
        augment = config.augment
        self.plain = augment == type(augment)(
            smote=augment.smote, smote_neighbours=augment.smote_neighbours, consistency=augment.consistency
        )
        self.views = views
        self.twins = None
        if augment.consistency:
            image = torch.arange(len(self.x), device=self.device)
            if views is not None:  # rows that SMOTE made are of no image
                image[: len(x)] = views.image - len(self.x)
            self.twins = Twins(RowViews(image, None, None if views is None else views.share))
        self.deviation = self.x.reshape(-1, self.x.shape[-1]).std(0) if augment.noise else None
        self.tail = self.pool = None
        if augment.head_tail:
            groups = thirds(counts.tolist())
            self.tail = torch.zeros(self.classes, dtype=torch.bool, device=self.device)
            self.tail[list(groups["tail"])] = True
            heads = torch.as_tensor(groups["head"], device=self.device)
            self.pool = self.x[torch.isin(self.y, heads)]
        self.rng = {
            name: torch.Generator().manual_seed(derive(config.seed, name))
            for name in ("order", "noise", "channels", "mixup", "head-tail", "crt", "consistency")
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
        average = WeightAverage(self.head, config.ema.decay) if config.ema.decay else None
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        history: list[float] = []
        for module in modules:
            module.train()
        for epoch in range(epochs):
            loss.on_epoch_start(epoch, epochs)
            total = torch.zeros((), device=self.device)
            for rows in order().split(size):  # type: ignore[no-untyped-call]
                value = self._step_loss(loss, rows, epoch / epochs)
                if self.twins is not None:
                    value = value + config.augment.consistency * self._disagreement(loss, self.twins, rows)
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
                    f"the loss is {history[-1]} in epoch {epoch + 1}",
                    where="optimizer.lr",
                    fix=f'lower it (it is {lr:g}), or set input.transform = "standardise"',
                )
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
        if not self.plain:
            x = self._augmented(x, y)
        if self.plain or not self.config.augment.mixup:
            z, h = self.head.after_transform(x)
            mixed = self.views
            if mixed is not None and mixed.other is not None and mixed.share is not None:
                return self._loss_of(loss, z, (y, mixed.other[rows], mixed.share[rows]), h, rows, progress)
            return self._loss_of(loss, z, (y, y, 1.0), h, rows, progress)
        return self._mixed_step_loss(loss, x, y, rows, progress)

    def _disagreement(self, loss: Loss, twins: Twins, rows: Tensor) -> Tensor:
        """Between what is said of rows and of another view of the same images."""
        mine, theirs = twins.draw(rows, self.rng["consistency"])
        if not len(mine):
            return self.x.new_zeros(())
        z = own_scale(loss) * self.head.after_transform(self.x.index_select(0, torch.cat([mine, theirs])))[0]
        first, second = (z if own_scale(loss) != 1.0 else loss.adjust_logits(z)).chunk(2)
        return disagreement(first, second)

    def _augmented(self, x: Tensor, y: Tensor) -> Tensor:
        a = self.config.augment
        if self.tail is not None and self.pool is not None:
            x = head_to_tail(
                x,
                y,
                pool=self.pool,
                is_tail=self.tail,
                share=a.head_tail,
                largest=a.head_tail_lam,
                rng=self.rng["head-tail"],
            )
        if self.deviation is not None:
            x = add_noise(x, self.deviation, a.noise, self.rng["noise"])
        if a.channel_scale:
            x = scale_channels(x, a.channel_scale, self.rng["channels"])
        return x

    def _mixed_step_loss(self, loss: Loss, x: Tensor, y: Tensor, rows: Tensor, progress: float) -> Tensor:
        a = self.config.augment
        lam = mixup_share(a.mixup, self.rng["mixup"])
        order = torch.randperm(len(y), generator=self.rng["mixup"]).to(y.device)
        # Losses and auxiliary terms that read features see unmixed rows: a mixture belongs to no class.
        unmixed = self.head.body(x) if a.mixup_layer == "hidden" or self.auxiliary or loss.needs_features else None
        if a.mixup_layer == "hidden":
            assert unmixed is not None  # for the type checker
            z = self.head.classifier(mix(unmixed, order, lam))
        else:
            z = self.head.classifier(self.head.body(mix(x, order, lam)))
        return self._loss_of(loss, z, (y, y[order], lam), unmixed, rows, progress)

    def _loss_of(
        self,
        loss: Loss,
        z: Tensor,
        labels: tuple[Tensor, Tensor, float | Tensor],
        h: Tensor | None,
        rows: Tensor,
        progress: float,
    ) -> Tensor:
        """Main and auxiliary loss; labels: of both images of a mixture, and the share of the first."""
        y, other, lam = labels
        target = smoothed_target(y, other, lam, self.classes, self.config.loss.label_smoothing)
        value: Tensor = loss(
            z, target, h if loss.needs_features else None, indices=rows if loss.needs_indices else None
        )
        if loss.reduction == "none":
            value = reduced(value, target, self.weights, self.config.loss, progress)
        return value if self.auxiliary is None else value + self.auxiliary(z, y, h)

    def _second_phase(self, on_epoch: Callable[[int, float], None]) -> list[float]:
        """cRT: the last layer anew on frozen features, class-balanced rows, cross-entropy (Kang et al. 2020)."""
        config, crt = self.config, self.config.crt
        scale = own_scale(self.loss)
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
        self.weights, self.auxiliary, self.plain, self.twins = None, None, True, None
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


def _seed(config: HeadConfig, purpose: str) -> None:
    torch.default_generator.manual_seed(derive(config.seed, purpose))
