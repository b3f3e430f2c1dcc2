"""One .onnx file in onnxruntime: its inputs and outputs, its card, and how fast it runs at each batch size."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.errors import CalibrantError, FormatError, ModelError
from calibrant.runtime import runtime
from calibrant.serve.engine import providers as providers_
from calibrant.serve.engine.batch_curve import BATCH_SIZES, BatchCurve, measure
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec

log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]


class Session:
    """A loaded file. `run` may be called from one thread at a time per model for the best speed, but is thread-safe."""

    def __init__(
        self,
        path: str | Path,
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        shared_threads: bool = False,
    ) -> None:
        self.path = Path(path)
        self.threads = threads if threads is not None else providers_.available_cores()
        self._ort = _open(self.path, providers, self.threads, shared_threads)
        meta = self._ort.get_modelmeta()
        self.producer = str(meta.producer_name)
        text = meta.custom_metadata_map.get(KEY)
        self.card = None if text is None else ModelCard.from_json(text, where=self.path)
        self.providers: tuple[str, ...] = tuple(self._ort.get_providers())
        self.inputs = self._specs(self._ort.get_inputs())
        for spec in self._specs(self._ort.get_overridable_initializers(), optional=True).values():
            self.inputs[spec.name] = spec
        self.outputs = self._specs(self._ort.get_outputs())
        required = [s for s in self.inputs.values() if not s.optional]
        self.required: tuple[str, ...] = tuple(s.name for s in required)
        # Rows of different requests may share a run only where every tensor has a free first axis.
        self.batched = bool(required) and all(s.shape and s.shape[0] == -1 for s in [*required, *self.outputs.values()])
        self.fixed_rows = required[0].shape[0] if required and required[0].shape and not self.batched else None
        self.cap = 1
        self.curve = BatchCurve()

    def asked(self) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec], bool]:
        """Inputs and outputs as a caller has them, and whether the first axis is free there: also in a deployed file
        of a fixed batch size, which `run_rows` feeds as it wants its rows. Of a file without a card a fixed first axis
        may be anything."""
        step = self.fixed_rows
        whole = [*(self.inputs[name] for name in self.required), *self.outputs.values()]
        if step is None or self.card is None or any(s.shape[:1] != (step,) for s in whole):
            return self.inputs, self.outputs, self.batched

        def free(specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
            return {n: s if s.optional else replace(s, shape=(-1, *s.shape[1:])) for n, s in specs.items()}

        return free(self.inputs), free(self.outputs), True

    def _specs(self, nodes: Sequence[Any], *, optional: bool = False) -> dict[str, TensorSpec]:
        specs = {}
        for node in nodes:
            spec = TensorSpec.from_ort(node, optional=optional)
            if spec is None:
                raise ModelError(f'"{node.name}" is a {node.type}, which cannot be served', where=self.path)
            specs[spec.name] = spec
        return specs

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> Arrays:
        names = list(self.outputs) if outputs is None else list(outputs)
        return dict(zip(names, self._ort.run(names, dict(feeds)), strict=True))

    def run_rows(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> Arrays:
        """Any number of rows, also through a file of a fixed batch size: that many at a time, the last ones padded."""
        step, rows = self.fixed_rows, len(feeds[self.required[0]]) if self.required else 1
        if step is None or rows == step:
            return self.run(feeds, outputs)
        parts = []
        for start in range(0, rows, step):
            count = min(step, rows - start)
            some = {n: a[start : start + step] if len(a) == rows else a for n, a in feeds.items()}
            if count < step:
                some = {n: np.concatenate([a, np.repeat(a[-1:], step - len(a), axis=0)]) for n, a in some.items()}
            parts.append({n: a[:count] for n, a in self.run(some, outputs).items()})
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    def require_card(self) -> ModelCard:
        """The card, or what is missing without it."""
        if self.card is not None:
            return self.card
        ours = self.producer == "calibrant"
        raise FormatError(
            "the calibrant block at the end of the file is gone: the file was cut or rewritten"
            if ours
            else "has no calibrant block, so its class names, preprocessing and calibration are unknown",
            where=self.path,
            fix="copy the file again"
            if ours
            else "take it over with calibrant adopt, or send ready tensors to /v2/models/NAME/infer",
        )

    @property
    def own_name(self) -> str:
        """What the model is called where nobody says otherwise."""
        return self.card.name if self.card is not None and self.card.name != "model" else self.path.stem

    def sha256(self) -> str:
        with open(self.path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def blank(self, rows: int) -> Arrays | None:
        """Mid-grey input of that many rows, or None where a free axis other than the batch leaves the size open."""
        feeds: Arrays = {}
        for name in self.required:
            spec = self.inputs[name]
            shape = list(spec.shape)
            if shape and shape[0] == -1:
                shape[0] = rows
            if len(shape) == 4 and -1 in shape and self.card is not None and name == self.card.input.name:
                height, width = self.card.preprocessing.size
                shape[1:] = [height, width, 3] if self.card.input.layout == "NHWC" else [3, height, width]
            if -1 in shape or spec.datatype == "BYTES":
                return None
            value = {"UINT8": 127}.get(spec.datatype, 1 if name == "temperature" else 0)
            feeds[name] = np.full(shape, value, NUMPY[spec.datatype])
        return feeds

    def warm_up(self, *, max_rows: int = 64, budget: float = 0.8, known: BatchCurve | None = None) -> int:
        """Measures runs of 1, 2, 4, ... rows and sets `cap`, the batch size with the most rows a second.

        `known`: a curve of this file on this machine, which is not measured again.
        """
        sizes = [n for n in BATCH_SIZES if n <= max(1, max_rows)] if self.batched else [self.fixed_rows or 1]
        sizes = [n for n in sizes if self.blank(n) is not None]
        if known is not None and sizes:
            self._best_time(self.blank(1) or self.blank(sizes[0]) or {}, sizes[0], deadline=0.0)
            self.curve = known
        elif sizes:
            one = self.blank(1) or self.blank(sizes[0]) or {}
            self.curve = measure(lambda n, until: self._best_time(one, n, deadline=until), sizes=sizes, budget=budget)
            self._shrink()
        self.cap = self.curve.cap if self.batched else 1
        log.info(
            "%s: %s, %d thread(s), batch cap %d, chosen from %s%s",
            self.path.name,
            self.providers[0],
            self.threads,
            self.cap,
            self.curve.said() or "nothing that could be measured",
            "" if known is None else " (measured at an earlier start)",
        )
        return self.cap

    def _shrink(self) -> None:
        """Gives back what onnxruntime's arena kept for larger batches than will run: 100 MB for EfficientNet-Lite0."""
        ort = runtime()

        feeds = self.blank(self.fixed_rows or 1)
        if feeds is None or self.providers[0] != "CPUExecutionProvider":
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            self._ort.run(None, feeds, options)
        except Exception as error:  # a build without an arena has nothing to give back
            log.debug("%s: the arena was not shrunk (%s)", self.path.name, _short(error))

    def _best_time(self, one: Arrays, rows: int, *, deadline: float) -> float:
        """Of putting the rows together, as the batcher has to, and running them."""
        # With one thread on a CPU, what the run itself took: another process that takes the core now is no property of
        # the batch size.
        alone = self.threads == 1 and self.providers[0] == "CPUExecutionProvider"
        clock = time.thread_time if alone else time.perf_counter
        best = float("inf")
        many = {name: [array] * rows for name, array in one.items()}
        try:
            self.run(self.blank(rows) or one)
            for _ in range(5):
                start = clock()
                self.run(one if rows == 1 or not self.batched else {n: np.concatenate(a) for n, a in many.items()})
                best = min(best, clock() - start)
                if time.perf_counter() > deadline:
                    break
        except Exception as error:
            raise ModelError(f"onnxruntime cannot run it on a blank input ({_short(error)})", where=self.path) from None
        return best

    @property
    def seconds_per_row(self) -> float:
        """At the cap; a guess of 10 ms before anything was measured."""
        at_cap = [p for p in self.curve.points if p.rows == self.cap] or list(self.curve.points[-1:])
        return at_cap[0].seconds / at_cap[0].rows if at_cap else 0.01


def _open(path: Path, wanted: Sequence[str] | None, threads: int, shared: bool) -> Any:
    if not path.is_file():
        what = "is a folder, not an .onnx file" if path.is_dir() else "no such file"
        raise FormatError(what, where=path, fix="make one with calibrant export")
    ort = runtime()

    chosen = providers_.choose(wanted, ort.get_available_providers())
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if shared:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Spinning threads of an idle session would take the cores from the ones that decode and answer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(str(path), options, providers=chosen)
    except CalibrantError:
        raise
    except Exception as error:
        raise FormatError(
            f"onnxruntime cannot load it ({_short(error)})",
            where=path,
            fix="is it an .onnx file, copied completely, with its external weights beside it?",
        ) from None
    if chosen[0][0] not in session.get_providers():
        raise ModelError(
            f"onnxruntime could not start {chosen[0][0]} and would fall back to {session.get_providers()[0]}",
            where="--provider",
            fix="check the driver and libraries, or leave --provider out",
        )
    return session


def _short(error: Exception) -> str:
    """The last part of onnxruntime's message, without its status prefix and paths of its own source."""
    text = str(error).split("\n", 1)[0]
    return text.rsplit("] : ", 1)[-1].split(" : ", 2)[-1][:200]
