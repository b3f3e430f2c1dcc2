"""Optional packages: which extra of `pip install 'calibrant[...]'` brings which module."""

from __future__ import annotations

# import name: extra
MODULES = {
    "onnxruntime": "cpu", "pyarrow": "evaluate", "scipy": "evaluate", "matplotlib": "evaluate",
    "torch": "train", "torchvision": "train", "timm": "train", "safetensors": "train", "tensorboard": "train",
    "sklearn": "train", "onnx": "train", "onnxscript": "train", "netcal": "calibration",
    "streamlit": "dashboard", "altair": "dashboard", "pandas": "dashboard", "vl_convert": "dashboard",
    "hpack": "grpc", "optuna": "search", "ray": "ray", "transformers": "huggingface", "lightning": "lightning",
    "mlflow": "tracking", "wandb": "tracking", "opentelemetry": "otel", "fsspec": "storage", "s3fs": "storage",
}  # fmt: skip


def extra_of(module: str) -> str | None:
    """The extra that brings `module`, by its first part; None for what no extra of ours brings."""
    return MODULES.get(module.partition(".")[0])
