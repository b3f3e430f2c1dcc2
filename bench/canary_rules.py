"""How often a canary is decided rightly, and after how many labels, on streams whose law is known.

    OMP_NUM_THREADS=1 python bench/canary_rules.py [--streams 100] [--share 0.1] [--seed 1] [--json PATH]

The old version answers rows of ten classes with logits z ~ N(0, 2) and is calibrated: labels come from softmax(z). The
canary answers as said in the table. Latencies are exp(N(log 5 ms, .5)), times what the table says. All rows get labels.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.canary import CanaryRules, CanaryTrial, Labelled, Traffic, Version, latency_bin
from calibrant.calibration.monitoring.rolling import ECE_BINS
from calibrant.calibration.softmax import log_softmax
from calibrant.calibration.statistics.bins import equal_width

CLASSES, STEP, MOST = 10, 500, 100_000  # rows of both between looks, and in all


@dataclass(frozen=True)
class Kind:
    name: str
    sharpness: float = 1.0  # of what the canary says, beside what is true
    noise: float = 0.0  # in its logits
    failed: float = 0.0
    slower: float = 1.0


KINDS = (
    Kind("as good"),
    Kind("ECE + 3 points, within the margin", sharpness=1.08),
    Kind("over-confident: ECE + 15 points", sharpness=1.6),
    Kind("less accurate by 10 points", noise=1.1, sharpness=0.77),
    Kind("fails 3 % of the requests", failed=0.03),
    Kind("takes twice as long", slower=2.0),
)


def label(known: Labelled, n: int, kind: Kind, rng: np.random.Generator) -> None:
    z = rng.normal(0, 2, (n, CLASSES))
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    log_p = log_softmax(kind.sharpness * (z + kind.noise * rng.normal(size=z.shape)))
    more, bins = equal_width(np.exp(log_p.max(1)), (log_p.argmax(1) == labels).astype(float), ECE_BINS), known.bins
    for name in ("rows", "weight", "confidence_sum", "correct_sum"):
        getattr(bins, name)[:] += getattr(more, name)


def took(n: int, kind: Kind, rng: np.random.Generator) -> NDArray[np.float64]:
    return 0.005 * kind.slower * np.exp(rng.normal(0, 0.5, n))


@dataclass(frozen=True)
class Outcome:
    kind: str
    streams: int
    promoted: int
    rolled_back: int
    labels_median: float  # of the canary, at the decision
    labels_p95: float


def outcome(kind: Kind, streams: int, share: float, seed: int, rules: CanaryRules) -> Outcome:
    decided: dict[str, list[int]] = {"promote": [], "roll back": []}
    for n in range(streams):
        rng = np.random.default_rng([seed, n, KINDS.index(kind)])
        trial, sides = CanaryTrial(rules), [(law, Traffic(), Labelled()) for law in (Kind("old"), kind)]
        for _ in range(0, MOST, STEP):
            canary = int(rng.binomial(STEP, share))
            for rows, (law, traffic, known) in zip((STEP - canary, canary), sides, strict=True):
                failed = int(rng.binomial(rows, law.failed))
                traffic.failed += failed
                for seconds in took(rows - failed, law, rng):
                    traffic.answered += 1
                    traffic.latency[latency_bin(float(seconds))] += 1
                label(known, rows - failed, law, rng)
            versions = [Version(t, t.answered, 0, rows) for _, t, rows in sides]
            said = trial.look(*versions).decision
            if said is not None:
                decided[said].append(len(sides[1][2]))
                break
    spent = decided["promote"] + decided["roll back"] or [MOST]
    return Outcome(kind.name, streams, len(decided["promote"]), len(decided["roll back"]),
                   float(np.median(spent)), float(np.percentile(spent, 95)))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print("| canary | promoted | rolled back | its labels at the decision, median (95 %) |\n|---|---|---|---|")
    rows = []
    for kind in KINDS:
        one = outcome(kind, asked.streams, asked.share, asked.seed, CanaryRules())
        rows.append(asdict(one))
        print(
            f"| {one.kind} | {one.promoted} of {one.streams} | {one.rolled_back} | "
            f"{one.labels_median:,.0f} ({one.labels_p95:,.0f}) |", flush=True,
        )  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
