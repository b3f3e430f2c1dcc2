"""mypy sees the whole mapped package.

The editable install and the folder mapping are invisible to static tools: `mypy -p calibrant` at the root checks three
files and is content. So the tree is laid out with links as it will be installed, and checked there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("train", "export", "serve", "calibration", "dashboard")


def _linked_tree() -> Path:
    tree = ROOT / "build" / "types"
    shutil.rmtree(tree / "calibrant", ignore_errors=True)
    (tree / "calibrant").mkdir(parents=True)
    for source in [*(ROOT / "calibrant").iterdir(), *(ROOT / stage for stage in STAGES)]:
        target = tree / "calibrant" / source.name
        try:
            target.symlink_to(source)
        except OSError:  # Windows without the right to make links
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return tree


@pytest.mark.timeout(600)
def test_the_mapped_package_passes_mypy_strict() -> None:
    pytest.importorskip("mypy")
    tree = _linked_tree()
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "-p", "calibrant", "-v"]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "types")}
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout
    found = re.search(r"no issues found in (\d+) source files", result.stdout)
    expected = sum(1 for folder in ("calibrant", *STAGES) for _ in (ROOT / folder).rglob("*.py"))
    # Every file of every stage was seen: the way this check goes blind is by finding none of them. (mypy also counts
    # folders without an __init__.py, such as the recipes.)
    assert found is not None
    assert int(found[1]) >= expected
