"""The Ray cluster that work is handed to: one rule for all that does."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from calibrant.errors import CalibrantError, MissingExtra


@contextlib.contextmanager
def session(command: str, cores: int | None = None) -> Iterator[Any]:
    """Ray on the cluster that a program has joined already, the one that RAY_ADDRESS names, or one of this machine with
    so many cores, else all. `command`: what needs it."""
    try:
        import ray
    except ImportError:
        raise MissingExtra(command, "ray", "ray") from None
    if ray.is_initialized():
        yield ray
        return
    own = {} if cores is None or "RAY_ADDRESS" in os.environ else {"num_cpus": cores}
    ray.init(
        log_to_driver=False, logging_level=logging.WARNING, configure_logging=False, include_dashboard=False, **own
    )
    try:
        yield ray
    finally:
        ray.shutdown()


def said(error: Exception) -> str:
    """One line of what Ray raised; what we raised over there is said as it is."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CalibrantError):
        return str(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
