"""A request for labels of pictures, without a transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.serve.engine.knobs import Knobs


@dataclass(frozen=True)
class Pictures:
    images: Sequence[tuple[str, bytes | memoryview]]  # name, encoded picture
    knobs: Knobs | None
    id: str | None = None
