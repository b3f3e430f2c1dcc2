"""`calibrant doctor`: what this machine has, what is missing, and a short run of the real thing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from calibrant._version import __version__
from calibrant.commands.extras import MODULES
from calibrant.errors import CalibrantError
from calibrant.runtime import DISTRIBUTIONS, installed, runtime

Answer = tuple[str, str]  # how it stands, and what was found

_LOW_DISK = 2e9  # bytes; a torch install alone takes more


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: ok, absent (an extra that is not installed) or wrong, and how to mend it."""

    what: str
    state: str
    found: str
    fix: str = ""


@click.command()
@click.option(
    "--self-test/--no-self-test", default=True, help="Also run a small model and a small evaluation (seconds)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(self_test: bool, as_json: bool) -> None:
    """Say what is installed, what is missing or broken, and how to mend it; exit code 1 if something is wrong.

    \b
    Examples:
      calibrant doctor
      calibrant doctor --json | jq '.[] | select(.state == "wrong")'
    """
    findings = [_machine(), _memory(), _disk(Path.cwd()), _runtime(), *_extras()]
    if self_test:
        findings += [_tried("self-test: run a model", _run_a_model), _tried("self-test: evaluate", _evaluate)]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        click.echo(f"Calibrant {__version__}\n")
        wide = max(len(f.what) for f in findings)
        for finding in findings:
            click.echo(f"{finding.state:<8}{finding.what:<{wide + 2}}{finding.found}")
        for finding in findings:
            if finding.state == "wrong":
                click.echo(f"\n{finding.what}: {finding.found}\n  next: {finding.fix}")
    if any(f.state == "wrong" for f in findings):
        click.get_current_context().exit(1)


def _machine() -> Finding:
    from calibrant.serve.engine.providers import available_cores

    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("machine", "ok", f"{system}, {available_cores()} cores")


def _memory() -> Finding:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return Finding("memory", "ok", "not told by this system")
    return Finding("memory", "ok", f"{total / 1e9:.0f} GB, {free / 1e9:.0f} free")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    fix = "free some space, or work in another folder"
    return Finding("disk", "ok" if free > _LOW_DISK else "wrong", f"{free / 1e9:.0f} GB free in this folder", fix)


def _runtime() -> Finding:
    there = installed()
    if not there:
        return Finding("onnxruntime", "absent", "needed to serve: calibrant[cpu], or calibrant[gpu] for NVIDIA")
    try:
        module = runtime()
    except CalibrantError as error:
        return Finding("onnxruntime", "wrong", error.what, error.fix or "")
    if len(there) > 1:
        which = " and ".join(f"{n} {importlib.metadata.version(n)}" for n in there)
        drop = f"pip uninstall {' '.join(there)}; pip install 'calibrant[{DISTRIBUTIONS[there[-1]]}]'"
        return Finding("onnxruntime", "wrong", f"{which} overwrite one another", drop)
    providers = ", ".join(p.removesuffix("ExecutionProvider") for p in module.get_available_providers())
    return Finding("onnxruntime", "ok", f"{there[0]} {module.__version__}: {providers}")


def _extras() -> list[Finding]:
    """One line for each extra: its modules with their versions, or what is missing of it."""
    owners = importlib.metadata.packages_distributions()
    found = []
    for extra in dict.fromkeys(MODULES.values()):
        if extra == "cpu":
            continue  # has its own line
        modules = [m for m, e in MODULES.items() if e == extra]
        missing = [m for m in modules if importlib.util.find_spec(m) is None]
        if missing == modules:
            found.append(Finding(f"extra {extra}", "absent", f"pip install 'calibrant[{extra}]'"))
        elif missing:
            fix = f"pip install 'calibrant[{extra}]'"
            found.append(Finding(f"extra {extra}", "wrong", f"without {', '.join(missing)}", fix))
        else:
            versions = (f"{m} {importlib.metadata.version(owners[m][0])}" for m in modules if m in owners)
            found.append(Finding(f"extra {extra}", "ok", ", ".join(versions)))
    return found


def _tried(what: str, test: Callable[[], Answer]) -> Finding:
    start = time.perf_counter()
    try:
        state, found = test()
    except ModuleNotFoundError as error:
        return Finding(what, "absent", f"{error.name} is not installed")
    except CalibrantError as error:
        return Finding(what, "absent", error.what)
    return Finding(what, state, f"{found} ({time.perf_counter() - start:.1f} s)", "report this with the lines above")


def _run_a_model() -> Answer:
    """A classifier of one matrix, built here, at batches of 1 and 64, against numpy."""
    import numpy as np

    from calibrant.artifacts.onnx_wire import Node, Value, blob, encode_tensor, integer
    from calibrant.calibration.softmax import softmax

    w = np.random.default_rng(0).normal(size=(32, 10)).astype(np.float32)
    nodes = [
        Node("MatMul", ("x", "w"), ("z",), "classify"),
        Node("Softmax", ("z",), ("p",), "softmax", {"axis": 1}),
    ]
    ports = [blob(11, Value("x", 1, ("N", 32)).encode()), blob(12, Value("p", 1, ("N", 10)).encode())]
    graph = b"".join([*(blob(1, n.encode()) for n in nodes), blob(2, "g"), blob(5, encode_tensor("w", w)), *ports])
    model = integer(1, 8) + blob(7, graph) + blob(8, integer(2, 13))
    session = runtime().InferenceSession(model, providers=["CPUExecutionProvider"])
    worst = 0.0
    for rows in (1, 64):
        x = np.random.default_rng(rows).normal(size=(rows, 32)).astype(np.float32)
        worst = max(worst, float(np.abs(session.run(None, {"x": x})[0] - softmax(x @ w)).max()))
    return ("ok" if worst < 1e-5 else "wrong"), f"differs from numpy by {worst:.0e}"


def _evaluate() -> Answer:
    """2,000 rows whose labels are drawn from the probabilities themselves: the interval of the ECE must reach 0."""
    import numpy as np

    from calibrant.calibration import evaluate
    from calibrant.calibration.softmax import softmax
    from calibrant.calibration.statistics.accumulate import statistics_of_probabilities

    rng = np.random.default_rng(0)
    probabilities = softmax(2 * rng.normal(size=(2000, 5)))
    labels = (rng.random((2000, 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(0, 4)
    ece = evaluate(statistics_of_probabilities(probabilities, labels)).to_dict()["metrics"]["ece"]
    low, high = ece["low"], ece["high"]
    return ("ok" if low <= 1e-9 else "wrong"), f"ECE of a calibrated model in {100 * low:.1f} .. {100 * high:.1f} %"
