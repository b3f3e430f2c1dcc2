"""The source distribution is the whole project; workflows, images and the citation say what the project says."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from calibrant import __version__

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_source_distribution_holds_tests_docs_and_benches_and_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("build")
    tree = tmp_path / "tree"  # without .git and what builds leave behind
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if files.returncode:
        pytest.skip("not a git checkout")
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(tree)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    said = built.stdout + built.stderr
    assert not [word for word in ("would be ignored", "absent from", "Warning") if word in said], said
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("tests", "docs", "bench", ".ci", "deploy", "calibration", "train"):
        wanted = {str(p.relative_to(tree)) for p in (tree / folder).rglob("*") if p.is_file()}
        assert wanted, folder
        assert wanted <= packed, sorted(wanted - packed)[:5]
    assert {"Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "README.md"} <= packed


def test_the_citation_names_the_version_of_the_code() -> None:
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {c.rpartition(" ")[2] for c in classifiers if re.search(r"Python :: 3\.\d+$", c)}
    tested = set(
        re.findall(
            r'"(3\.\d+)"',
            (ROOT / ".github/workflows/ci.yml").read_text().partition("matrix:")[2].partition("steps:")[0],
        )
    )
    assert named == tested


@pytest.mark.parametrize("image", sorted((ROOT / "deploy/docker").glob("*.Dockerfile")), ids=lambda p: p.stem)
def test_an_image_runs_as_nobody_and_tells_its_health(image: Path) -> None:
    lines = image.read_text().splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("FROM"))
    assert any(re.match(r"USER \d+$", line) for line in lines[last:])
    assert any(line.startswith("HEALTHCHECK") for line in lines[last:])
    text = image.read_text()
    extras = re.search(r"'\.\[([^$]+)\]'|(?m:^ARG EXTRAS=)(\S+)", text)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [extras[1] or extras[2], *re.findall(r"--build-arg EXTRAS=(\S+)", text)]
    assert {extra for line in named for extra in line.split(",")} <= known.keys()
