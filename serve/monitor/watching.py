"""How a server's traffic is watched: the log, the thread that writes it, a monitor for each model that it fits.

Imported by servers that watch; the others do without the 4 MB of statistics behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.config import ServeConfig
from calibrant.serve.models.model import NOT_WATCHED, Model
from calibrant.serve.monitor.baseline import read_baseline
from calibrant.serve.monitor.features import ServedFeatures
from calibrant.serve.monitor.log.history import Histories
from calibrant.serve.monitor.log.shipping import LogShipping
from calibrant.serve.monitor.log_follower import LogFollower
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.thread import MonitorThread

log = logging.getLogger(__name__)


class Watching:
    """`leads`: this process takes the labels; `follows`: it also reads what other workers write to the log."""

    def __init__(self, config: ServeConfig, *, leads: bool, follows: bool) -> None:
        self._config, self._leads = config, leads
        writer = _writer(config)
        self.thread = MonitorThread(writer)
        if leads and config.log_to is not None and config.feedback_log is not None:
            self.thread.shipping = LogShipping(config.feedback_log, config.log_to)
            self.thread.shipping.start()
        self.awaits: Callable[[Collection[str]], bool] = lambda ids: False
        if follows and writer is not None and config.feedback_log is not None:
            follower = LogFollower(config.feedback_log, writer.wrote, self.thread.monitors)
            self.thread.follow, self.awaits = follower.round, follower.awaits
        self.histories = Histories(None if writer is None else writer.folder)
        if leads and writer is not None:
            self.histories.restore_later(writer.wrote)

    def watch(self, model: Model) -> None:
        """Gives the model its monitor."""
        config, card = self._config, model.session.card
        if card is None or "logits" not in model.session.outputs:
            return
        if card.independent:
            log.warning("%s: %s", model.name, NOT_WATCHED)
            return
        identity = feedback.Model(model.name, model.version, model.sha256, card.classes)
        given = read_baseline(config.baseline, card) if config.baseline is not None and self._leads else None
        features = None
        if config.watch.features:
            features = ServedFeatures.of(model.session, model.sha256, config.baseline)
            log.log(
                logging.INFO if features.watched else logging.WARNING, "%s: features: %s", model.name, features.said
            )
        model.monitor = Monitor(
            identity,
            card,
            config.watch,
            self.thread.writer,
            counts=self._leads,
            given=given,
            features=features,
            history=self.histories.of(model.name),
        )
        self.thread.add(model.monitor)


def _writer(config: ServeConfig) -> FeedbackWriter | None:
    if config.feedback_log is None:
        return None
    watch = config.watch
    return FeedbackWriter(
        config.feedback_log,
        segment_bytes=watch.segment_bytes,
        keep_bytes=int(watch.keep_gib * 2**30),
        keep_days=watch.keep_days,
        segment_seconds=None if watch.segment_hours is None else 3600 * watch.segment_hours,
        kept=Kept(watch.half, watch.top),
    )
