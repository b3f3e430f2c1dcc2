"""The README's examples run: its own lines, on a small set of images."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import timm
from safetensors.torch import save_file

from calibrant.commands.root import COMMANDS, cli, main

from .docs.pages import blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What makes the README's line affordable in a test, and nothing else: a small network that is at hand, small images.
CHEAPER = ("--preset", "fast", "--image-size", "32")


def commands(page: Path) -> list[list[str]]:
    """The `calibrant ...` lines of a page, but for those that leave something out."""
    return [block.words for block in blocks(page) if block.kind == "calibrant" and "..." not in block.text]


def test_the_readmes_path_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from calibrant.train.data.digits import DigitSpec, write_digits

    monkeypatch.chdir(tmp_path)
    write_digits("images", DigitSpec(imbalance=1.0))
    for folder in Path("images").glob("*/*"):  # a dozen of each class are enough to walk the path
        for file in sorted(folder.iterdir())[12:]:
            file.unlink()
    weights = tmp_path / "test_resnet.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    own = [c for c in commands(ROOT / "README.md") if c[0] in ("fit", "serve")]
    assert [c[0] for c in own] == ["fit", "serve"]
    monkeypatch.setattr("sys.argv", ["calibrant", *own[0], "--weights", str(weights), *CHEAPER])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code, capsys.readouterr().err
    assert Path(own[1][1]).is_file()
    assert (Path(own[1][1]).parent / "report.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_line_of_the_docs_has_only_options_that_exist(page: Path) -> None:
    for command in commands(page):
        known = _options(command)
        for word in command:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, f"{page.name}: calibrant {' '.join(command)}"


def _options(command: list[str]) -> set[str]:
    import click

    assert command[0].startswith("-") or command[0] in COMMANDS, command
    if command[0].startswith("-"):
        return {"--help", "--version", "--debug"}
    found = cli.get_command(click.Context(cli), command[0])
    assert found is not None
    options = {"--help", "--debug", "--plugin"}  # of any command
    stack: list[click.Command] = [found]
    while stack:
        current = stack.pop()
        options |= {o for p in current.params for o in (*p.opts, *p.secondary_opts)}
        if isinstance(current, click.Group):
            stack += current.commands.values()
    return options
