"""Copies the closed segments of a feedback log to object storage, in a thread of its own that no request waits for.

One file at a time; where the storage does not answer, again later, after a wait that grows from seconds to minutes. The
key of a segment is its name and the folder's own id, so a second try after a kill writes the same object, and the logs
of many servers lie beside each other as one log. What was sent stands in `sent.json` of the folder. A segment is closed
once nobody holds its lock; while it is sent this thread does, so that no compaction takes it away. The folder's own
retention goes on meanwhile: what it drops before it was sent is counted as lost.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from pathlib import Path

from calibrant import atomic
from calibrant.artifacts.feedback_records import hold, segment_name, segments
from calibrant.remote.storage import Storage, why

log = logging.getLogger(__name__)

LOOK_SECONDS, MOST_SECONDS = 5.0, 300.0  # between two looks; and after many failures
SENT = "sent.json"


class LogShipping:
    """`start` it when the server starts, `close` it once the log is closed."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._storage = folder, Storage(address)
        self._known, self._sent, self._id = set[str](), set[str](), ""
        self._stop, self._well = threading.Event(), True
        self._thread = threading.Thread(target=self._work, name="log-shipping", daemon=True)
        self.sent = self.failures = self.lost = 0  # segments that went, tries that did not, segments dropped before

    @property
    def address(self) -> str:
        return self._storage.address

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """A last round for what was closed just now; what is left goes at the next start."""
        self._stop.set()
        self._thread.join(timeout)

    def round(self) -> bool:
        """Sends what is closed and was not sent; False where the storage did not take it."""
        here = {segment_name(path): path for path in segments(self._folder)}
        gone = self._known - here.keys() - self._sent
        if gone:
            self.lost += len(gone)
            log.error(
                "%d part(s) of the feedback log were dropped before they were sent to %s", len(gone), self.address
            )
        self._known = set(here)
        self._sent &= here.keys()
        return all(self._send(here[name]) for name in sorted(here.keys() - self._sent))

    def _send(self, path: Path) -> bool:
        """True also where it is not closed yet."""
        try:
            with open(path, "rb") as stream:
                if not hold(stream):
                    return True
                suffix = path.name.removeprefix(segment_name(path))
                self._storage.put(path, f"{segment_name(path)}-{self._id}{suffix}")
        except FileNotFoundError:  # dropped or compacted meanwhile: the next look knows
            return True
        except Exception as error:  # of whatever library the storage has
            self.failures += 1
            if self._well:
                log.error("the feedback log cannot be sent to %s (%s); it is tried again", self.address, why(error))
            self._well = False
            return False
        if not self._well:
            log.error("the feedback log is sent to %s again", self.address)
        self._well = True
        self._sent.add(segment_name(path))
        self.sent += 1
        self._keep()
        return True

    def _keep(self) -> None:
        try:
            atomic.write_json(self._folder / SENT, {"id": self._id, "sent": sorted(self._sent)})
        except OSError as error:  # a full disk: sent again at the next start, to the same key
            log.warning("%s cannot be written (%s)", self._folder / SENT, error.strerror)

    def _recall(self) -> None:
        try:
            kept = json.loads((self._folder / SENT).read_text())
            self._id, self._sent = str(kept["id"]), set(map(str, kept["sent"]))
        except (OSError, ValueError, KeyError, TypeError):
            self._id = uuid.uuid4().hex[:12]
            self._keep()

    def _work(self) -> None:
        self._recall()
        wait = LOOK_SECONDS
        while True:
            last = self._stop.is_set()
            try:
                well = self.round()
            except Exception:
                log.exception("sending the feedback log failed; serving goes on")
                well = False
            if last:
                return
            wait = LOOK_SECONDS if well else min(2 * wait, MOST_SECONDS)
            self._stop.wait(wait)
