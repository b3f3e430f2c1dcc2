"""Which onnxruntime execution providers to use, and how many threads.

onnxruntime-gpu lists CUDA and TensorRT on machines that have neither and writes errors to stderr when they are tried,
so what is really there is looked up first.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrant.errors import ConfigError, ModelError, did_you_mean
from calibrant.runtime import runtime

SHORT = {
    "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider", "rocm": "ROCMExecutionProvider", "coreml": "CoreMLExecutionProvider",
    "dml": "DmlExecutionProvider",
}  # fmt: skip

# OpenVINO computes in bfloat16 on CPUs that have it unless told otherwise: probabilities move by up to 2e-2.
_OPTIONS: dict[str, dict[str, Any]] = {
    "OpenVINOExecutionProvider": {"device_type": "CPU", "load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}'},
}


def choose(wanted: Sequence[str] | None, available: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The providers to hand to onnxruntime, best first, CPU last.

    Without a wish: CUDA where there is a device, else OpenVINO where its build of onnxruntime is installed, else CPU.
    TensorRT is used on request only, because building its engines takes minutes at the first start.
    """
    if wanted:
        names = [_full_name(w, available) for w in wanted]
    elif "CUDAExecutionProvider" in available and has_cuda_device():
        names = ["CUDAExecutionProvider"]
    elif "OpenVINOExecutionProvider" in available:
        names = ["OpenVINOExecutionProvider"]
    else:
        names = []
    if "CPUExecutionProvider" not in names:
        names.append("CPUExecutionProvider")
    return [(name, _OPTIONS.get(name, {})) for name in names]


def _full_name(word: str, available: Sequence[str]) -> str:
    name = SHORT.get(word.lower(), word)
    if name not in SHORT.values() and name not in available:
        raise ConfigError(f'no execution provider "{word}"', where="--provider", fix=did_you_mean(word.lower(), SHORT))
    short = next((k for k, v in SHORT.items() if v == name), word)
    if name not in available:
        there = ", ".join(k for k, v in SHORT.items() if v in available)
        raise ModelError(
            f"this build of onnxruntime has no {short} provider",
            where="--provider",
            fix=f"install the build that has it, or use one of: {there}",
        )
    if name in ("CUDAExecutionProvider", "TensorrtExecutionProvider") and not has_cuda_device():
        raise ModelError(
            f"{short} needs an NVIDIA GPU and its driver, and none was found",
            where="--provider",
            fix="leave --provider out to use what is there",
        )
    return name


def has_cuda_device() -> bool:
    """Asks the driver library itself; it is absent where there is no NVIDIA driver."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int(0)
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def share_threads(threads: int) -> None:
    """Makes one pool of threads for all sessions that are opened to share it. Before the first session, once."""
    runtime().set_global_thread_pool_sizes(threads, 1)


def available_cores() -> int:
    """Cores that this process may use: its affinity mask, cut by the CPU quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cores, int(quota))) if quota is not None else cores


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of CPU time allowed by cgroup v2 (cpu.max) or v1, None where there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()[:2]
        return None if quota == "max" else max(1.0, float(quota) / float(period))
    except (OSError, ValueError):
        pass
    try:
        quota_us = float((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = float((root / "cpu/cpu.cfs_period_us").read_text())
        return max(1.0, quota_us / period_us) if quota_us > 0 else None
    except (OSError, ValueError):
        return None
