"""Pages of the site that are made from the code: every command with its options, and what `import calibrant` gives.

A hook of MkDocs (mkdocs.yml). Functions are read from their source and commands from click, so nothing heavy is loaded.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/calibrant/calibrant/blob/main/"
PAGES = {"reference/commands.md": "commands_page", "reference/python.md": "python_page"}


def on_config(config: Any) -> Any:
    """A page that the menu does not name stands at the end of it, so that none is lost."""
    named = set(_pages(config["nav"]))
    docs = Path(config["docs_dir"])
    config["nav"] += sorted({p.relative_to(docs).as_posix() for p in docs.rglob("*.md")} - named)
    return config


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for one in inner for page in _pages(one)]


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, maker in PAGES.items():
        files.append(File.generated(config, path, content=globals()[maker]()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of docs/, and to notebooks, lead to the repository."""
    markdown = re.sub(r"\]\(\.\./(?!\.\.)([\w./-]+\.md)\)", rf"]({REPOSITORY}\1)", markdown)
    return re.sub(r"\]\((notebooks[/)])", rf"]({REPOSITORY}docs/\1", markdown)


def commands_page() -> str:
    from calibrant.commands.root import COMMANDS, cli

    parts = ["# Commands\n", "`calibrant --debug` and `--plugin FILE.py` go with every command.\n"]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        parts += _command(f"calibrant {name}", command)
    return "\n".join(parts)


def _command(name: str, command: click.Command) -> list[str]:
    default = getattr(command, "default_command", None)
    shown = command.commands[default] if isinstance(command, click.Group) and default else command
    context = click.Context(shown, info_name=name)
    usage = " ".join([name, *shown.collect_usage_pieces(context)])
    parts = [f"## {name}\n", f"    {usage}\n", _prose(shown.help or command.help or "")]
    rows = [_option(p, context) for p in shown.params if isinstance(p, click.Option)]
    if rows:
        parts += ["| option | |", "|---|---|", *rows, ""]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            parts += _command(f"{name} {inner}", command.commands[inner])
    return parts


def _prose(text: str) -> str:
    """Help as Markdown: what click leaves unwrapped is shown as it stands."""
    parts = []
    for block in inspect.cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            lines = inspect.cleandoc(block[1:].lstrip("\n")).splitlines()
            parts.append("\n".join(f"    {line}" for line in lines))
        else:
            parts.append(_plain(" ".join(block.split())))
    return "\n\n".join(parts) + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    name, text = record if record is not None else (", ".join(option.opts), option.help or "")
    return f"| `{name.replace('|', ' &#124; ') if '|' not in name else name.replace('|', '/')}` | {_plain(text)} |"


def _plain(text: str) -> str:
    """Signs that Markdown would take for its own."""
    return re.sub(r"([\\*_\[\]<>|])", r"\\\1", text)


def python_page() -> str:
    import calibrant

    homes: dict[str, str] = dict(calibrant._HOMES)
    homes["train"] = homes.pop("_train")
    parts = ["# Python\n", "What `import calibrant` gives; [in a notebook](../notebook.md) shows it at work.\n"]
    for name in sorted(homes, key=str.lower):
        parts += _definition(f"calibrant.{name}", _found(_source(homes[name]), name))
    return "\n".join(parts)


def _source(home: str) -> Path:
    """The file of a module of the mapped package."""
    parts = home.removeprefix("calibrant.").split(".")
    base = ROOT if (ROOT / parts[0]).is_dir() else ROOT / "calibrant"
    path = base.joinpath(*parts)
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def _found(file: Path, name: str) -> ast.stmt:
    """Where `name` is defined: in the file itself, or where the file has it from."""
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(a.name == name for a in node.names):
            return _found(_source(node.module), name)
    raise LookupError(f"{file} does not define {name}")


def _definition(name: str, node: ast.stmt) -> list[str]:
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    parts = [f"## {name}\n"]
    if isinstance(node, ast.FunctionDef):
        returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
        parts += ["```python", _signature(name, node.args) + returns, "```", ""]
    parts += [_docstring(node)]
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and (not inner.name.startswith("_") or inner.name == "__init__"):
                label = name if inner.name == "__init__" else f".{inner.name}"
                parts += ["```python", _signature(label, inner.args), "```", "", _docstring(inner)]
    return parts


def _signature(name: str, arguments: ast.arguments) -> str:
    one = f"{name}({ast.unparse(arguments)})"
    if len(one) <= 100:
        return one
    pieces = re.split(r", (?![^\[]*\])", ast.unparse(arguments))
    return "\n".join([f"{name}(", *(f"    {piece}," for piece in pieces), ")"])


def _docstring(node: ast.FunctionDef | ast.ClassDef) -> str:
    text = ast.get_docstring(node)
    return "" if text is None else f"```text\n{text}\n```\n"
