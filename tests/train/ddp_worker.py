"""Runs every configuration of a JSON file in the processes that torchrun started. A script, not a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from calibrant.train.config import train_config
from calibrant.train.distributed import processes
from calibrant.train.engine import fit

if __name__ == "__main__":
    torch.set_num_threads(1)
    with processes("cpu"):
        for table in json.loads(Path(sys.argv[1]).read_text()):
            fit(train_config(table))
