"""Answers a second by processes x threads, in turns: what the server's own choice rests on (serve/processes/layout.py).

python bench/serve_layouts.py MODEL.onnx ... [--rounds 3] [--seconds 2]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from calibrant.commands.tune.measure import measure, measured_cap
from calibrant.commands.tune.settings import Setting, layouts
from calibrant.serve.engine.providers import available_cores
from calibrant.serve.processes.layout import Layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    cores = available_cores()
    tried = layouts(cores, first=Layout(1, cores))
    for path in options.models:
        settings = [Setting(layout, measured_cap(path, layout)) for layout in tried]
        found: dict[Setting, list[float]] = {setting: [] for setting in settings}
        for _ in range(options.rounds):
            for setting in settings:
                found[setting].append(measure(path, setting, p99=None, seconds=options.seconds).capacity)
        base = statistics.median(found[settings[0]])
        for setting, rates in found.items():
            middle = statistics.median(rates)
            each = ", ".join(f"{rate:,.0f}" for rate in rates)
            print(f"{path.name} {setting}: {middle:,.0f}/s ({each}), {middle / base:.2f}")


if __name__ == "__main__":
    main()
