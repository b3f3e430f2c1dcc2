"""Heads for the demo: three ways to put a classifier on the frozen network that was trained."""

from __future__ import annotations

from pathlib import Path

_HEADS = (  # folder, head.kind, loss.name
    ("linear", "linear", "ce"),
    ("balanced", "linear", "balanced-softmax"),
    ("class-means", "ncm", "ce"),
)
_ALIKE = {"input": {"transform": "standardise"}, "posthoc": {"temperature": "global"}}


def train_heads(run: Path, model: str, images: Path, out: Path, *, image_size: int) -> list[Path]:
    """Caches the features of the run's network under `out`, and trains the heads there; each is a run folder."""
    import torch

    from calibrant.train.heads.config import head_config
    from calibrant.train.heads.experiment import run_experiment
    from calibrant.train.heads.features.cache import FeatureCache
    from calibrant.train.heads.features.extract import FeatureConfig, extract
    from calibrant.train.heads.matrices import Matrices
    from calibrant.train.heads.run import write_run

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        asked = FeatureConfig(
            model, images, out / "features", weights=run / "model.safetensors", image_size=image_size, crop_pct=1.0
        )
        extract(asked)
        cache = FeatureCache.open(asked.out)
        written = []
        for name, kind, loss in _HEADS:
            table = {"head": {"kind": kind}, "loss": {"name": loss}}
            chosen = head_config(table | _ALIKE, where="calibrant demo")
            result = run_experiment(Matrices(cache), chosen, device=torch.device("cpu"))
            written.append(write_run(out / name, cache, result, data=images).path)
        return written
    finally:
        torch.set_num_threads(threads)
