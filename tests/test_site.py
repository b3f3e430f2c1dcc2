"""The site of the documentation: its reference is the code's, and it asks nobody for anything."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import calibrant
from calibrant.commands.root import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[1]
MADE_ELSEWHERE = {"__version__"}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "deploy" / "site" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_option_is_in_the_reference(reference: ModuleType) -> None:
    page = reference.commands_page()
    for name in COMMANDS:
        assert f"\n## calibrant {name}\n" in page
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert any(o in page for o in parameter.opts), (name, parameter.opts)
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)  # a bar inside would be another column


def test_every_public_name_is_in_the_reference_with_its_docstring(reference: ModuleType) -> None:
    page = reference.python_page()
    for name in set(calibrant.__all__) - MADE_ELSEWHERE:
        assert f"\n## calibrant.{name}\n" in page
    assert "calibrant.load(" in page
    assert (calibrant.load.__doc__ or "").strip().splitlines()[0] in page


def test_links_out_of_the_docs_lead_to_the_repository(reference: ModuleType) -> None:
    text = "[a](../README.md) [b](notebooks/x.ipynb) [c](fit.md#how)"
    into = "https://github.com/calibrant/calibrant/blob/main/"
    expected = f"[a]({into}README.md) [b]({into}docs/notebooks/x.ipynb) [c](fit.md#how)"
    assert reference.on_page_markdown(text, page=None) == expected


def test_a_page_that_the_menu_forgets_stands_at_its_end(reference: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    for name in ("a.md", "b.md", "evidence/c.md", "evidence/d.md"):
        (tmp_path / name).write_text("# x\n")
    nav = ["a.md", {"Evidence": [{"C": "evidence/c.md"}]}]
    found = reference.on_config({"nav": nav, "docs_dir": str(tmp_path)})["nav"]
    assert found == ["a.md", {"Evidence": [{"C": "evidence/c.md"}]}, "b.md", "evidence/d.md"]


def test_the_readme_leads_to_files_that_exist_from_wherever_it_is_read() -> None:
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://"), link
        own = re.match(
            r"https://(?:github|raw\.githubusercontent)\.com/calibrant/calibrant/(?:blob/)?main/([^#]+)", link
        )
        assert own is None or (ROOT / own[1]).exists(), link


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_nobody(tmp_path: Path) -> None:
    """Ten seconds where mkdocs is installed: pip install -e ".[docs]"."""
    pytest.importorskip("material")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md"))) + 2
    asked = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?://|<link[^>]+rel=\"?stylesheet[^>]+href=\"?https?://")
    for page in pages:
        text = page.read_text()
        assert asked.findall(text) == [], page
        assert 'data-md-component="source"' not in text, page  # asks api.github.com for stars
    assert "out of fold" in (tmp_path / "site" / "search" / "search_index.json").read_text()
