"""The counts of a server in Prometheus' text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from calibrant.serve.models.statistics import BOUNDS, Histogram


class Exposition:
    """Collects samples and writes them with HELP and TYPE lines, once each."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, str, list[str]]] = {}

    def add(self, name: str, kind: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        self._family(name, kind, text).append(f"{name}{_labels(labels)} {_number(value)}")

    def histogram(self, name: str, text: str, values: Histogram, labels: Mapping[str, str]) -> None:
        lines, seen = self._family(name, "histogram", text), 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], values.counts, strict=True):
            seen += count
            lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {seen}")
        lines += [f"{name}_sum{_labels(labels)} {_number(values.total)}", f"{name}_count{_labels(labels)} {seen}"]

    def _family(self, name: str, kind: str, text: str) -> list[str]:
        return self._families.setdefault(name, (kind, text, []))[2]

    def text(self) -> str:
        return "".join(_family_lines(name, *family) for name, family in self._families.items())


def _family_lines(name: str, kind: str, text: str, lines: Iterable[str]) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str] | None) -> str:
    if not labels:
        return ""
    escaped = ((k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for k, v in labels.items())
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
