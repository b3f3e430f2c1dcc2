"""`make reproduce-small`: one table of each of the four sources from nothing, compared with the committed ones.

    python bench/reproduce_small.py --data ../shared/data --weights ../shared/weights/tf_efficientnet_lite0.safetensors

Needs cifar10_jpeg.npz and plantdoc.tar.gz in the data folder. Two processes of one thread; what was stopped goes
on with the same line. --only fedlas (vace, clca, heads) makes one of the tables. They are equal to the printed digits
on the same kind of machine with the same versions; --write puts what came out in the place of the committed ones.

Each of the three libraries that multiply here picks its sums by the processor, and 150 steps of training carry a last
digit into the second one of a table. They are held to what every x86 processor with AVX2 has, so that a newer one,
or another maker's, takes the same way. Whether it then prints the same was not run, for want of one.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "docs" / "evidence" / "data"
KEPT = (".md", ".csv", ".json", ".svg")
# One thread, and the same instructions everywhere: ATen, oneDNN, MKL.
FIXED = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
}
# Study, name of its data, where they lie in the data folder, name of the committed folder.
STUDIES = (
    ("fedlas/table1", "cifar10", "cifar10_jpeg.npz", "fedlas-tiny"),
    ("vace/main", "cifar10-tail", "cifar10_jpeg.npz", "vace-tiny"),
    ("clca/accuracy", "cifar10", "cifar10_jpeg.npz", "clca-tiny"),
    ("heads/tail", "plantdoc", "plantdoc", "heads-tiny"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "reproduce-small")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=[study.partition("/")[0] for study, *_ in STUDIES])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    unpacked = asked.out / "images"
    chosen = [entry for entry in STUDIES if asked.only in (None, entry[0].partition("/")[0])]
    if any(place == "plantdoc" for _, _, place, _ in chosen) and not (unpacked / "plantdoc").is_dir():
        with tarfile.open(asked.data / "plantdoc.tar.gz") as archive:
            archive.extractall(unpacked, filter="data")
    changed = []
    began = time.monotonic()
    for study, data, place, name in chosen:
        place_of = unpacked / place if place == "plantdoc" else asked.data / place
        out = asked.out / name
        line = [
            sys.executable,
            "-m",
            "calibrant",
            "study",
            study,
            "--scale",
            "tiny",
            "--data",
            f"{data}={place_of}",
            "--out",
            str(out),
            "--workers",
            str(asked.workers),
        ]
        line += ["--weights", str(asked.weights)] if study.startswith("heads/") else []
        print(f"{study}: {' '.join(line[1:])}", flush=True)
        subprocess.run(line, check=True, env={**os.environ, **FIXED}, stdout=subprocess.DEVNULL)
        changed += compared(out, COMMITTED / name)
        if asked.write:
            keep(out, COMMITTED / name)
        print(f"{study}: done after {(time.monotonic() - began) / 60:.0f} min", flush=True)
    for text in changed:
        print(text)
    if changed and not asked.write:
        sys.exit("tables differ from the committed ones")
    print("written" if asked.write else "tables equal the committed ones to the printed digits")


def compared(out: Path, committed: Path) -> list[str]:
    """The lines of table.md that differ."""
    old = (committed / "table.md").read_text().splitlines() if (committed / "table.md").is_file() else []
    new = (out / "table.md").read_text().splitlines()
    return list(difflib.unified_diff(old, new, f"committed {committed.name}", f"made {out.name}", lineterm="", n=0))


def keep(out: Path, committed: Path) -> None:
    committed.mkdir(parents=True, exist_ok=True)
    for file in out.iterdir():
        if file.suffix in KEPT:
            shutil.copyfile(file, committed / file.name)


if __name__ == "__main__":
    main()
