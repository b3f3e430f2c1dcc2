"""`calibrant train --engine ray`: a group of processes on a Ray cluster, started again when one is lost.

Ray Train starts the group, joins it by torch.distributed and starts it again; what a process does is fit(). The
checkpoint is that of the run folder, which all machines share, so nothing is handed to Ray and no epoch is lost on the
way. A batch is the same whatever the number of processes: each takes its part of it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrant import plugins
from calibrant.errors import CalibrantError, ConfigError, MissingExtra, ModelError
from calibrant.remote.ray_session import said, session
from calibrant.train.config import TrainConfig
from calibrant.train.loop.epochs import Epoch
from calibrant.train.machines.ray_worker import Ear, Lost, Task, train_here
from calibrant.train.machines.torchrun import launch_name
from calibrant.train.run.folder import CHECKPOINT_FILE
from calibrant.train.run.results import refuse_a_run
from calibrant.train.run.resume import begun_by

COMMAND = "calibrant train --engine ray"
# How long Ray waits for the machines that it has counted on, before it counts again what is left.
_START_TIMEOUT = ("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "15")
_LISTEN_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0  # without a word from a process that should have started


@dataclass(frozen=True)
class Workers:
    """Processes of the group: so many, and no fewer than `least` where machines are lost."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ConfigError(f"{self.least}:{self.most} is no range", where="--workers", fix="write 4, or 2:4")


@dataclass(frozen=True)
class Machine:
    cores: float
    gpus: float


def fit_on_ray(
    config: TrainConfig,
    workers: Workers | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_start: Callable[[str], None] | None = None,
    address: str | None = None,
) -> Path:
    """fit() by a group of processes; without `workers` one for each GPU, or for each machine where there are none.

    `address`: of the cluster, where it is not the one that `session` finds."""
    if config.data.path is None:
        raise ConfigError("no data", fix="pass --data DIR or set data.path")
    config = with_whole_paths(config)
    launch = launch_name() or uuid.uuid4().hex
    if not (resume or overwrite or begun_by(config.out, launch)):
        refuse_a_run(config.out)
    with session(COMMAND, os.cpu_count(), address) as cluster, _sealed(config.out) as seal:
        ray = cluster.ray
        train = _ray_train()
        machines = machines_of(ray.nodes())
        gpu = wants_gpus(config.engine.device, machines)
        workers = workers or usual_workers(machines, gpu=gpu)
        cores = cores_each(machines, workers.most, gpu=gpu)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        ear = ray.remote(num_cpus=0, scheduling_strategy=here)(Ear).remote()
        task = Task(config, launch, seal, ear, cores, resume, overwrite, tuple(map(_whole_source, plugins.sources())))
        waits = (
            f"no process is ready yet: {workers.least} or more are needed, each with {cores} free "
            f"core{'s' if cores > 1 else ''}{' and a GPU' if gpu else ''} of one machine (ray status says what is free)"
        )
        with _set(*_START_TIMEOUT), tempfile.TemporaryDirectory(prefix="calibrant-ray-") as own:
            trainer = _trainer(train, task, workers, Path(own), gpu=gpu)
            error = _ended(ray, trainer, ear, on_epoch, on_start or (lambda line: None), waits)
        if error is not None:
            raise _plain(error, config.out) from None
    return config.out


# ---- how many processes, and where ----


def machines_of(nodes: Sequence[Any]) -> list[Machine]:
    """Of ray.nodes()."""
    return [
        Machine(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in nodes if node["Alive"]
    ]


def wants_gpus(device: str, machines: Sequence[Machine]) -> bool:
    there = any(machine.gpus >= 1 for machine in machines)
    if device.startswith("cuda:"):
        raise ConfigError("each process has a GPU of its own", where=f"engine.device {device}", fix="use cuda or auto")
    if device == "cuda" and not there:
        raise ConfigError("no machine of the cluster has a GPU", where="engine.device cuda", fix="use cpu or auto")
    return there and device in ("auto", "cuda")


def usual_workers(machines: Sequence[Machine], *, gpu: bool) -> Workers:
    count = sum(int(m.gpus) for m in machines) if gpu else sum(m.cores >= 1 for m in machines)
    return Workers(1, max(1, count))


def cores_each(machines: Sequence[Machine], count: int, *, gpu: bool) -> int:
    """The most cores that so many processes can have, none of which lies on two machines; 1 where they do not fit."""
    for cores in range(int(max((m.cores for m in machines), default=1)), 1, -1):
        if sum(min(int(m.cores // cores), int(m.gpus) if gpu else count) for m in machines) >= count:
            return cores
    return 1


def _trainer(train: Any, task: Task, workers: Workers, own: Path, *, gpu: bool) -> Any:
    """`own`: a folder for what Ray writes beside it, which is nothing that anybody reads."""
    from ray.train.torch import TorchTrainer

    from calibrant.train.machines.ray_losses import Losses

    fixed = workers.least == workers.most
    resources = {"CPU": task.threads, **({"GPU": 1} if gpu else {})}
    return TorchTrainer(
        train_here,
        train_loop_config={"task": task},
        scaling_config=train.ScalingConfig(
            num_workers=workers.most if fixed else (workers.least, workers.most),
            use_gpu=gpu,
            resources_per_worker=resources,
        ),
        run_config=train.RunConfig(
            name=f"calibrant-{uuid.uuid4().hex}",
            storage_path=str(own),
            failure_config=train.FailureConfig(max_failures=-1),  # Losses says when to stop
            callbacks=[Losses(task.config.out / CHECKPOINT_FILE, task.ear)],
        ),
    )


def _ray_train() -> Any:
    """The module ray.train, in the version that groups of changing size need."""
    try:
        import ray.train
        import ray.util.scheduling_strategies
    except ImportError:
        raise MissingExtra(COMMAND, "ray", "ray[train]") from None
    if "elastic_resize_monitor_interval_s" not in getattr(ray.train.ScalingConfig, "__dataclass_fields__", {}):
        raise ConfigError(f"needs a newer Ray than {ray.__version__}", where=COMMAND, fix="run: pip install -U ray")
    return ray.train


# ---- the folder and the paths that all machines share ----


def with_whole_paths(config: TrainConfig) -> TrainConfig:
    """The same files from whatever folder a process is started in."""
    data, model = config.data, config.model
    return replace(
        config,
        out=Path(os.path.abspath(config.out)),
        data=replace(
            data,
            path=_whole(data.path),
            cache_dir=None if data.cache_dir is None else Path(os.path.abspath(data.cache_dir)),
        ),
        model=replace(model, weights=_whole(model.weights)),
    )


def _whole(path: Path | None) -> Path | None:
    """plugin:NAME is no path, and what is not there is refused by its reader under the name that was given."""
    return Path(os.path.abspath(path)) if path is not None and path.exists() else path


def _whole_source(source: str) -> str:
    return os.path.abspath(source) if source.endswith(".py") else source


@contextlib.contextmanager
def _sealed(out: Path) -> Iterator[Path]:
    """A file that every machine must see. A run that was refused leaves no folder."""
    made = not out.exists()
    seal = out / f".seen-by-all.{uuid.uuid4().hex}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        seal.touch()
    except OSError as error:
        raise ConfigError(f"cannot be made ({error.strerror})", where=out) from None
    try:
        yield seal
    finally:
        seal.unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):  # it holds a run
                out.rmdir()


# ---- waiting for the end ----


def _ended(
    ray: Any,
    trainer: Any,
    ear: Any,
    on_epoch: Callable[[Epoch], None] | None,
    say: Callable[[str], None],
    waits: str,
) -> Exception | None:
    """What the training ended with. In a thread, since Ray would take Ctrl-C for itself and end without a word."""
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            trainer.fit()
            outcome.append(None)
        except Exception as error:  # handed to the thread that waits
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    starting: float | None = time.monotonic()  # a group; None while one trains
    ended = False
    while not ended:
        thread.join(_LISTEN_SECONDS)
        ended = not thread.is_alive()
        for word in ray.get(ear.taken.remote()):
            starting = time.monotonic() if isinstance(word, Lost) else None
            if isinstance(word, Epoch):
                if on_epoch is not None:
                    on_epoch(word)
            else:
                say(word.words if isinstance(word, Lost) else word)
        if starting is not None and time.monotonic() - starting > _PATIENCE_SECONDS:
            starting = time.monotonic()
            say(waits)
    return outcome[0] if outcome else ModelError("the thread that drives Ray Train ended without a word")


def _plain(error: Exception, out: Path) -> CalibrantError:
    """What we raised over there is raised here; all else is a line."""
    causes = [error, getattr(error, "controller_failure", None), *getattr(error, "worker_failures", {}).values()]
    for cause in causes:
        if isinstance(cause, CalibrantError):
            return cause
    return ModelError(
        f"Ray Train gave up ({said(error)})", where=out, fix="what is finished is kept: go on with --resume"
    )


@contextlib.contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    """An environment variable, where nobody has set it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
