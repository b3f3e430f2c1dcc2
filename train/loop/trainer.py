"""The training loop: micro-batches, updates, epochs, and the state that makes an interrupted run go on exactly."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, DataError, ModelError
from calibrant.progress import bar
from calibrant.train.config import TrainConfig
from calibrant.train.data.loader import Batch, to_network
from calibrant.train.data.pixels import BadImage
from calibrant.train.distributed import any_rank, gather_uneven, same_buffers
from calibrant.train.evaluate import run_network, validation_metrics
from calibrant.train.loop.epochs import Epoch, Position, is_better
from calibrant.train.loop.frozen_head import put
from calibrant.train.loop.interrupts import Interrupts
from calibrant.train.loop.mixing import mixed
from calibrant.train.loop.pace import Pace
from calibrant.train.loop.parts import Parts, autocast
from calibrant.train.loop.schedules import Plateau
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.run.checkpoint import save_checkpoint
from calibrant.train.run.epoch_files import keep_top
from calibrant.train.run.folder import CHECKPOINT_FILE, MODEL_FILE
from calibrant.train.run.history import History
from calibrant.train.seeds import seed_everything

log = logging.getLogger(__name__)


class Trainer:
    def __init__(
        self,
        config: TrainConfig,
        parts: Parts,
        run: Path,
        *,
        save_best: Callable[[FeatureModel, Path], None],
        history: History | None,
        fingerprint: dict[str, Any],
    ) -> None:
        self.config, self.parts, self.run = config, parts, run
        self.save_best, self.history, self.fingerprint = save_best, history, fingerprint
        self.at = Position()
        self.bad: list[BadImage] = []
        self._pending: list[tuple[Tensor, int, tuple[int, int, int]]] = []
        self._interrupts = Interrupts()
        self._saved_at = time.monotonic()
        self._largest_norm = torch.zeros(())  # of the gradients of this epoch, before they are clipped
        self._pace: Pace | None = None
        engine = config.engine
        self._scaler = torch.amp.GradScaler("cuda") if engine.amp == "fp16" else None
        self._parameters = [p for g in parts.optimizer.param_groups for p in g["params"]]
        self._model: Any = parts.network  # as it is called in training: wrapped and compiled where asked
        if parts.ranks.world > 1:
            self._model = nn.parallel.DistributedDataParallel(
                parts.network, device_ids=[parts.device.index] if parts.device.type == "cuda" else None
            )
        if engine.compile:
            self._model = torch.compile(self._model)

    # ---- the run ----

    def train(self, on_epoch: Callable[[Epoch], None] | None = None, say: Callable[[str], None] | None = None) -> None:
        """From where the run stands to its end, or to the first interrupt (which leaves a checkpoint).

        `say` is told once how long it will take.
        """
        epochs = self.config.schedule.epochs
        if say is not None:
            self._pace = Pace(say, self.parts.plan.steps, epochs - self.at.epoch)
        if self.at.update == 0 and self.at.step == 0:
            offered = self._offer_frozen_head()
            if offered is not None and on_epoch is not None:
                on_epoch(offered)
            self._checkpoint()
        with self._interrupts.caught():
            while self.at.epoch < epochs and not self._out_of_patience():
                started = time.monotonic()
                self._epoch()
                done = self._finish_epoch(started)
                if on_epoch is not None and self.parts.ranks.first:
                    on_epoch(done)
        if self.history is not None:
            self.history.close()

    def _epoch(self) -> None:
        at, plan, loss = self.at, self.parts.plan, self.parts.loss
        plan.epoch, plan.start = at.epoch, at.step
        loss.on_epoch_start(at.epoch, self.config.schedule.epochs)
        self._model.train()
        loss.train()
        accumulate = self.config.engine.accumulate
        what = f"epoch {at.epoch + 1}/{self.config.schedule.epochs}"
        with bar(what=what, total=plan.steps, unit="batch") as shown:
            shown.update(at.step)
            for batch in self.parts.loader:
                first = at.step - at.step % accumulate  # of the micro-batches that make this update
                last = min(first + accumulate, plan.steps) - 1
                rows = sum(plan.rows(s) for s in range(first, last + 1))
                self._micro_batch(batch, share=plan.rows(at.step) / rows, sync=at.step == last)
                at.step += 1
                shown.update(1)
                if at.step == last + 1:
                    self._update()
                    self._between_updates()
                if self._pace is not None:
                    self._pace.batch()
        loss.on_epoch_end(at.epoch, self.config.schedule.epochs)

    def _micro_batch(self, batch: Batch, *, share: float, sync: bool) -> None:
        """Gradients of one micro-batch, weighted by its share of the update's rows."""
        parts, at, plan = self.parts, self.at, self.parts.plan
        self._refuse_bad(batch)
        seed_everything(self.config.seed, "step", at.epoch * plan.steps + at.step, parts.ranks.rank)
        x = to_network(batch.pixels, parts.preprocessing, parts.device, channels_last=self.config.engine.channels_last)
        labels = batch.labels.to(parts.device, non_blocking=True)
        indices = batch.indices.to(parts.device, non_blocking=True)
        x, target = mixed(parts, self.config, x, labels, batch, at.epoch * plan.steps + at.step)
        for norm in parts.norms:
            norm.real_rows = plan.own_rows(at.step)
        hold = nullcontext() if sync or parts.ranks.world == 1 else self._ddp().no_sync()
        with hold:
            with self._autocast():
                logits, features = self._forward(x)
                value = parts.loss(logits, target, features, indices)
                extra = self._auxiliary()
                value = value if extra is None else value + extra
            scaled = value * share
            (scaled if self._scaler is None else self._scaler.scale(scaled)).backward()
        self._pending.append((value.detach(), plan.rows(at.step), (at.epoch, at.step, at.update)))
        # Reading a loss makes a GPU wait for it, so there a few are read together.
        if parts.device.type == "cpu" or len(self._pending) >= 16:
            self._read_losses()

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        try:
            logits, features = self._model(x)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ConfigError(
                f"the network's batch norm has one number a channel to work with (batch of {len(x)})",
                where="engine.batch_size",
                fix="use 2 or more, or a larger image_size",
            ) from None
        return logits, features

    def _read_losses(self) -> None:
        """Add up the losses since the last call, and stop at one that is not finite."""
        if not self._pending:
            return
        values = torch.stack([value for value, _, _ in self._pending]).tolist()
        for number, (_, rows, place) in zip(values, self._pending, strict=True):
            if not math.isfinite(number):
                raise self._not_finite(number, *place)
            self.at.loss_sum += number * rows
            self.at.loss_rows += rows
        self._pending = []

    def _update(self) -> None:
        parts, options = self.parts, self.config.optimizer
        if self._scaler is not None:
            self._scaler.unscale_(parts.optimizer)
        if options.clip_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, options.clip_norm)
            known = torch.where(norm.isfinite(), norm, 0.0).detach()  # an update that fp16 skips has no finite one
            self._largest_norm = torch.maximum(self._largest_norm.to(known), known)
        if self._scaler is not None:
            self._scaler.step(parts.optimizer)
            self._scaler.update()
        else:
            parts.optimizer.step()
        parts.optimizer.zero_grad(set_to_none=True)
        self.at.update += 1
        if parts.schedule is not None:
            parts.schedule.step_update(self.at.update)
        if parts.ema is not None:
            parts.ema.update(parts.network, step=self.at.update)

    def _between_updates(self) -> None:
        """Only here may a checkpoint be written: an update is never half done."""
        engine, at = self.config.engine, self.at
        if any_rank(self._interrupts.noted, self.parts.device):
            self._checkpoint()
            raise KeyboardInterrupt
        due = engine.checkpoint_updates is not None and at.update % engine.checkpoint_updates == 0
        late = time.monotonic() - self._saved_at > 60 * engine.checkpoint_minutes
        if due or late:
            self._checkpoint()

    def _finish_epoch(self, started: float) -> Epoch:
        at, parts = self.at, self.parts
        self._read_losses()
        same_buffers(parts.network)
        probs, labels = self.validate()
        val = validation_metrics(probs, labels)
        parts.loss.on_validation(torch.from_numpy(probs).to(parts.device), torch.from_numpy(labels).to(parts.device))
        best = self._is_kept(val)
        if best:
            if parts.ranks.first:
                self.save_best(self.evaluated(), self.run / MODEL_FILE)
            at.best, at.best_tie, at.best_epoch = val[self._metric], val["nll"], at.epoch + 1
        at.stale = 0 if best else at.stale + 1
        self._keep_top(val)
        if isinstance(parts.schedule, Plateau):
            parts.schedule.after_epoch(val[self._metric], at.update)
            at.schedule = parts.schedule.state_dict()
        train_loss = at.loss_sum / max(1, at.loss_rows)
        norm = None if self.config.optimizer.clip_norm is None else float(self._largest_norm)
        at.epoch, at.step, at.loss_sum, at.loss_rows = at.epoch + 1, 0, 0.0, 0
        self._largest_norm = torch.zeros(())
        seconds = time.monotonic() - started
        diagnostics = parts.loss.diagnostics()  # on every rank: the call starts its counters anew
        if self.history is not None:
            line = {
                "epoch": at.epoch, "update": at.update, "lr": parts.optimizer.param_groups[0]["lr"],
                "train": {"loss": train_loss} | ({} if norm is None else {"gradient_norm": norm}),
                "val": val, "loss": diagnostics, "best": best, "seconds": round(seconds, 3),
            }  # fmt: skip
            self.history.append(line)
        self._checkpoint()
        return Epoch(at.epoch, self.config.schedule.epochs, train_loss, val, best, seconds)

    def _keep_top(self, val: dict[str, float]) -> None:
        """Beside the file that the run ends with, those of the best epochs (engine.top_k)."""
        at, k = self.at, self.config.engine.top_k
        if not k:
            return

        def save(path: Path) -> None:
            self.save_best(self.evaluated(), path)

        entry = [float(at.epoch + 1), val[self._metric], val["nll"]]
        first = self.parts.ranks.first
        at.top = keep_top(self.run, at.top, entry, k=k, by=self._metric, save=save if first else None)

    def _is_kept(self, val: dict[str, float]) -> bool:
        """With `keep = last` only the end of the schedule is compared, and with the frozen head only: of few images
        the best of many epochs is the luckiest.
        """
        at = self.at
        if self.config.engine.keep == "last":
            head = at.best is not None and at.best_epoch == 0
            if not head:
                return True
            if at.epoch + 1 < self.config.schedule.epochs:
                return False
        return is_better(val, at.best, at.best_tie, by=self._metric)

    def _offer_frozen_head(self) -> Epoch | None:
        """Keep the network with that head as epoch 0, and start as it was."""
        at, parts, head = self.at, self.parts, self.parts.head
        if head is None:
            return None
        started = time.monotonic()
        layer = parts.network.classifier_layers()[0]
        before = {name: t.clone() for name, t in layer.state_dict().items()}
        put(parts.network, head)
        val = validation_metrics(*self.validate(parts.network))
        self.save_best(parts.network, self.run / MODEL_FILE)
        layer.load_state_dict(before)
        at.best, at.best_tie = val[self._metric], val["nll"]
        seconds = time.monotonic() - started
        if self.history is not None:
            self.history.append({
                "epoch": 0, "update": 0, "lr": parts.optimizer.param_groups[0]["lr"],
                "train": {"loss": head.nll}, "val": val, "loss": {},
                "best": True, "seconds": round(seconds, 3), "head": head.name,
            })  # fmt: skip
        return Epoch(0, self.config.schedule.epochs, head.nll, val, True, seconds)

    @property
    def _metric(self) -> str:
        assert self.config.engine.select is not None  # decided by defaults.resolved()
        return self.config.engine.select

    # ---- validation ----

    def evaluated(self) -> FeatureModel:
        """The network that is evaluated and kept: the averaged one where there is one."""
        network: FeatureModel = self.parts.ema.module if self.parts.ema is not None else self.parts.network
        return network

    def validate(self, network: FeatureModel | None = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Probabilities and labels of the validation set, the same on every rank."""
        parts, engine = self.parts, self.config.engine
        parts.loss.eval()
        out = run_network(
            network or self.evaluated(),
            parts.val,
            batch_size=max(engine.batch_size, 64) // parts.ranks.world or 1,
            device=parts.device,
            channels_last=engine.channels_last,
            autocast=self._autocast,
        )
        with torch.no_grad():
            z = parts.loss.adjust_logits(torch.from_numpy(out.logits).to(parts.device))
        z = gather_uneven(z)
        labels = gather_uneven(torch.from_numpy(parts.val.images.labels[out.rows]).to(parts.device))
        if not bool(torch.isfinite(z).all()):
            raise self._not_finite(float("nan"), self.at.epoch, self.at.step - 1, self.at.update - 1)
        return softmax(z.cpu().numpy()), labels.cpu().numpy()

    def _out_of_patience(self) -> bool:
        patience = self.config.engine.patience
        return patience is not None and self.at.stale >= patience

    # ---- state ----

    def state(self) -> dict[str, Any]:
        parts = self.parts
        return {
            "fingerprint": self.fingerprint, "position": {**vars(self.at), "largest_norm": float(self._largest_norm)},
            "network": parts.network.network.state_dict(), "loss": parts.loss.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "ema": None if parts.ema is None else parts.ema.module.network.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "bad_images": [[b.id, b.why] for b in self.bad],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Stand exactly where `state` was taken."""
        parts = self.parts
        parts.network.network.load_state_dict(state["network"])
        parts.loss.load_state_dict(state["loss"])
        parts.optimizer.load_state_dict(state["optimizer"])
        if parts.ema is not None:
            parts.ema.module.network.load_state_dict(state["ema"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])
        self.bad = [BadImage(*pair) for pair in state["bad_images"]]
        self.at = Position(**state["position"])
        self._largest_norm = torch.tensor(self.at.largest_norm)
        if isinstance(parts.schedule, Plateau) and self.at.schedule:
            parts.schedule.load_state_dict(self.at.schedule)
        if parts.schedule is not None:
            parts.schedule.step_update(self.at.update)

    def _checkpoint(self) -> None:
        self._read_losses()  # a state after a loss that is not finite must not be kept
        if self.parts.ranks.first:
            save_checkpoint(self.run / CHECKPOINT_FILE, self.state())
        self._saved_at = time.monotonic()

    # ---- things that go wrong ----

    def _refuse_bad(self, batch: Batch) -> None:
        if batch.bad and self.config.data.on_bad_image == "fail":
            raise DataError(batch.bad[0].why, where=batch.bad[0].id, fix="mend it, or pass --on-bad-image skip")
        known = {b.id for b in self.bad}
        self.bad += [b for b in batch.bad if b.id not in known]

    def _not_finite(self, value: float, epoch: int, step: int, update: int) -> ModelError:
        at = self.at
        kept = f"the last good state is {CHECKPOINT_FILE}"
        if at.best is not None:
            kept += f", the best epoch so far ({at.best_epoch}) is {MODEL_FILE}"
        return ModelError(
            f"the loss became {value:g} at epoch {epoch + 1}, batch {step + 1}, update {update + 1}; {kept}",
            where=self.run,
            fix="lower the learning rate, clip gradients (optimizer.clip_norm) or turn off amp",
        )

    def _autocast(self) -> AbstractContextManager[None]:
        return autocast(self.config.engine.amp, self.parts.device)

    def _auxiliary(self) -> Tensor | None:
        """What the network itself adds to the loss: a token reduction that learns which tokens to drop."""
        own = getattr(self.parts.network.network, "auxiliary_loss", None)
        return None if own is None else own()

    def _ddp(self) -> Any:
        return getattr(self._model, "_orig_mod", self._model)
