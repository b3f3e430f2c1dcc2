"""What `calibrant serve` is told, resolved once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from calibrant.serve.limits import Limits


@dataclass(frozen=True)
class ServeConfig:
    models: tuple[Path, ...]
    name: str | None = None  # of the only model
    host: str = "127.0.0.1"
    port: int = 8000  # 0 is a free one
    providers: tuple[str, ...] | None = None
    threads: int | None = None
    batch_cap: int | None = None  # None is measured
    ready_file: Path | None = None
    token: str | None = None
    admin: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    access_log: bool = False
    limits: Limits = field(default_factory=Limits)
