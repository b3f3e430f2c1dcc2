"""The house holds: folders, import directions, names, and nothing heavy where it does not belong.

Each rule is a function of a root folder that gives what breaks it, so that a test can run it on a copy of the tree in
which somebody has just broken it.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("train", "export", "serve", "calibration", "dashboard")
FOLDERS = ("calibrant", *STAGES)
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

# Which other stages a stage may import, and which libraries it must not name at module level or (never) anywhere.
MAY_IMPORT = {
    "calibrant": set(),
    "calibration": set(),
    "serve": {"calibration"},
    "train": {"calibration"},
    "export": {"calibration", "train"},
    "dashboard": {"calibration", "serve"},
}
# The folders that compose the stages, for a shell and for a notebook. A stage's own cli.py is no root: it sees what its
# stage may see. Nobody imports a root but its entry.
ROOTS = {"calibrant/commands": "calibrant/__main__.py", "calibrant/api": "calibrant/__init__.py"}
HEAVY = {
    "calibrant": {"torch", "onnxruntime", "onnx", "streamlit", "timm", "pyarrow", "scipy", "matplotlib", "PIL"},
    "calibration": {"torch", "netcal", "matplotlib", "pyarrow", "timm", "onnx", "onnxruntime"},
    "serve": {"torch", "onnx", "timm", "netcal", "matplotlib"},
    "train": {"onnx", "onnxruntime", "streamlit"},
    "export": {"streamlit"},
    "dashboard": {"torch", "timm", "onnx"},
}
NEVER = {"serve": {"torch", "torchvision", "onnx", "timm", "netcal", "safetensors", "scipy", "streamlit"}}
# What answers requests; http and grpc translate it, and the folders that start processes put the two together.
TRANSPORTS = ("calibrant.serve.http", "calibrant.serve.grpc", "calibrant.serve.processes")
CORE_OF_SERVE = ("engine", "models", "protocol", "monitor", "batch", "inference.py")

SMALLEST_TABLE = 4  # entries of a literal that is worth its own layout
# Statements that are no tables and go unformatted; the number may only fall.
UNFORMATTED = {"calibrant": 0, "calibration": 2, "serve": 0, "train": 0, "export": 0, "dashboard": 0}

MOST_FILES = 15  # of a folder, besides its __init__.py
LARGER_FOLDERS = {
    "train/losses": "one loss, one file; the rooms would be papers",
}
# Names that two classes of a stage share, and why that is no confusion.
SHARED_CLASS_NAMES: dict[str, dict[str, str]] = {}

LIGHT_STAGES = ("calibrant", "calibrant.calibration", "calibrant.serve", "calibrant.train", "calibrant.export")


def source_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path, *, top_level_only: bool) -> frozenset[str]:
    return _imports(path.read_text(), top_level_only)


@cache
def _imports(text: str, top_level_only: bool) -> frozenset[str]:
    names: set[str] = set()
    for node in _statements(ast.parse(text), top_level_only):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in\n{text[:200]}"
            module = node.module or ""
            # `from calibrant import serve` and `from calibrant.serve import http` name a package by its last word.
            names |= {f"{module}.{alias.name}" for alias in node.names} if module.startswith("calibrant") else {module}
        elif isinstance(node, ast.Call) and _dynamic(node):
            names.add(node.args[0].value)  # type: ignore[attr-defined]
    return frozenset(names)


def _statements(node: ast.AST, top_level_only: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if top_level_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from _statements(child, top_level_only)


def _dynamic(call: ast.Call) -> bool:
    """import_module("calibrant.train") says the same as an import statement."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    return name in {"import_module", "__import__"} and isinstance(first, ast.Constant) and isinstance(first.value, str)


def wrong_directions(root: Path) -> list[str]:
    """Imports from a stage that the importing one must not see, and of a root by anybody."""
    wrong = []
    for folder in FOLDERS:
        for path in source_files(root / folder):
            where = path.relative_to(root).as_posix()
            for name in sorted(imports(path, top_level_only=False)):
                parts = name.split(".")
                other = parts[1] if parts[0] == "calibrant" and len(parts) > 1 else None
                to = next((root for root in ROOTS if f"{name}.".startswith(root.replace("/", ".") + ".")), None)
                inside = next((root for root in ROOTS if where.startswith(f"{root}/")), None)
                in_root = inside is not None
                if parts[0] in STAGES:
                    wrong.append(f"{where} imports {parts[0]}; import calibrant.{parts[0]}")
                elif to is not None and to != inside and where != ROOTS[to]:
                    wrong.append(f"{where} imports {name}: nobody imports a root")
                elif other in STAGES and other != folder and not in_root and other not in MAY_IMPORT[folder]:
                    wrong.append(f"{where} imports {name}")
    return wrong


def heavy_imports(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root).as_posix()} imports {name}"
        for folder in FOLDERS
        for path in source_files(root / folder)
        for name in sorted(imports(path, top_level_only=True))
        if name.split(".")[0] in HEAVY[folder]
    ]


def forbidden_libraries(root: Path) -> list[str]:
    """Also inside functions."""
    return [
        f"{path.relative_to(root).as_posix()} imports {name}"
        for folder, libraries in NEVER.items()
        for path in source_files(root / folder)
        for name in sorted(imports(path, top_level_only=False))
        if name.split(".")[0] in libraries
    ]


def transports_in_the_core(root: Path) -> list[str]:
    at = [root / "serve" / name for name in CORE_OF_SERVE]
    files = [path for entry in at for path in ([entry] if entry.is_file() else source_files(entry))]
    return [
        f"{path.relative_to(root).as_posix()} imports {name}"
        for path in files
        for name in sorted(imports(path, top_level_only=False))
        if any(f"{name}.".startswith(f"{transport}.") for transport in TRANSPORTS)
    ]


def large_folders(root: Path) -> list[str]:
    counts: dict[str, int] = defaultdict(int)
    for folder in FOLDERS:
        for path in source_files(root / folder):
            counts[path.parent.relative_to(root).as_posix()] += path.name != "__init__.py"
    too_many = [f"{name} has {n} files" for name, n in counts.items() if n > MOST_FILES and name not in LARGER_FOLDERS]
    return too_many + [f"{name} needs no reason any more" for name in LARGER_FOLDERS if counts[name] <= MOST_FILES]


def class_names_with_two_meanings(root: Path) -> list[str]:
    wrong = []
    for stage in FOLDERS:
        homes: dict[str, list[str]] = defaultdict(list)
        for path in source_files(root / stage):
            for name in _classes(path.read_text()):
                homes[name].append(path.relative_to(root).as_posix())
        shared = {name for name, files in homes.items() if len(files) > 1}
        allowed = set(SHARED_CLASS_NAMES.get(stage, {}))
        wrong += [f"{name}: {', '.join(homes[name])}" for name in sorted(shared - allowed)]
        wrong += [f"{name} of {stage} is one class now" for name in sorted(allowed - shared)]
    return wrong


@cache
def _classes(text: str) -> tuple[str, ...]:
    return tuple(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def unformatted_prose(root: Path) -> list[str]:
    """`# fmt: skip` on anything but a table, where there are more of them than there were."""
    wrong = []
    for folder in FOLDERS:
        found = [
            f"{path.relative_to(root).as_posix()}:{line}"
            for path in source_files(root / folder)
            for line in skips_off_tables(path.read_text())
        ]
        if len(found) > UNFORMATTED[folder]:
            wrong.append(f"{folder} has {len(found)} of {UNFORMATTED[folder]}: {', '.join(found)}")
    return wrong


@cache
def skips_off_tables(text: str) -> list[int]:
    lines = text.splitlines()
    marked = {n for n, line in enumerate(lines, 1) if "# fmt: skip" in line}
    if not marked:
        return []
    tables = {
        n
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set) and node.end_lineno > node.lineno
        if len(node.keys if isinstance(node, ast.Dict) else node.elts) >= SMALLEST_TABLE
        for n in _last_lines(node.end_lineno, lines)
    }
    return sorted(marked - tables)


def _last_lines(end: int, lines: list[str]) -> Iterator[int]:
    """The line on which a literal ends, and the next one where that only closes brackets."""
    yield end
    if end < len(lines) and not lines[end].split("#")[0].strip(" )]},:"):
        yield end + 1


RULES: tuple[Callable[[Path], list[str]], ...] = (
    wrong_directions, heavy_imports, forbidden_libraries, transports_in_the_core, large_folders,
    class_names_with_two_meanings, unformatted_prose,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    assert rule(ROOT) == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the house, to be broken."""
    root = tmp_path_factory.mktemp("house")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "*.toml", "*.typed"))
    return root


BREAKS: dict[str, tuple[Callable[[Path], list[str]], str, str]] = {
    "serve/cli.py imports torch": (forbidden_libraries, "serve/cli.py", "def f() -> None:\n    import torch\n"),
    "serve/cli.py imports train": (wrong_directions, "serve/cli.py", "from calibrant.train import fit\n"),
    "serve imports a loss in a function": (
        wrong_directions, "serve/engine/session.py", "def f() -> None:\n    import calibrant.train.losses\n",
    ),
    "serve imports train by its name as text": (
        wrong_directions, "serve/cli.py", 'x = importlib.import_module("calibrant.train.loop")\n',
    ),
    "train imports serve": (wrong_directions, "train/engine.py", "from calibrant.serve import load\n"),
    "train imports serve as a name": (wrong_directions, "train/cli.py", "from calibrant import serve\n"),
    "calibration imports serve": (wrong_directions, "calibration/evaluation.py", "import calibrant.serve.config\n"),
    "the floor imports a stage": (wrong_directions, "calibrant/config.py", "import calibrant.calibration\n"),
    "the dashboard imports train": (wrong_directions, "dashboard/cli.py", "import calibrant.train\n"),
    "a stage imports a root": (wrong_directions, "train/cli.py", "from calibrant.commands.demo import demo\n"),
    "a stage imports the notebooks' root": (
        wrong_directions, "train/cli.py", "from calibrant.api.training import train\n",
    ),
    "the commands import the notebooks' root": (
        wrong_directions, "calibrant/commands/demo.py", "from calibrant.api.training import train\n",
    ),
    "a stage by its folder": (wrong_directions, "export/cli.py", "import train\n"),
    "serving needs scipy": (forbidden_libraries, "serve/models/repository.py", "def f():\n    import scipy.stats\n"),
    "calibration loads netcal": (heavy_imports, "calibration/cross_check.py", "import netcal\n"),
    "the engine knows http": (transports_in_the_core, "serve/engine/session.py", "import calibrant.serve.http.app\n"),
    "a class of the same name": (class_names_with_two_meanings, "serve/engine/session.py", "class Classifier: ...\n"),
    "a call that is no table": (
        unformatted_prose, "serve/cli.py", "f(1,\n  2)  # fmt: skip\n" * 120,
    ),
}  # fmt: skip


@pytest.mark.parametrize("broken", BREAKS)
def test_a_break_is_seen(broken: str, copy: Path) -> None:
    rule, name, line = BREAKS[broken]
    path = copy / name
    whole, before = path.read_text(), rule(copy)
    path.write_text(f"{whole}\n{line}")
    try:
        new = [text for text in rule(copy) if text not in before]
    finally:
        path.write_text(whole)
    assert len(new) == 1
    assert name in new[0]


def test_a_folder_that_grows_is_seen(copy: Path) -> None:
    files = [copy / "calibration" / "conformal" / f"more{n}.py" for n in range(MOST_FILES + 1)]
    for file in files:
        file.touch()
    try:
        assert any(text.startswith("calibration/conformal has ") for text in large_folders(copy))
    finally:
        for file in files:
            file.unlink()


def test_a_table_is_a_literal_of_several_lines_and_entries() -> None:
    table = "X = {\n  1: 2, 3: 4,\n  5: 6, 7: 8,\n}  # fmt: skip\n"
    in_a_call = "f([\n  1, 2,\n  3, 4,\n], x=1)  # fmt: skip\n"
    small, signature = "X = [\n  1, 2,\n]  # fmt: skip\n", "def f(\n    a, b,\n    c, d,\n): ...  # fmt: skip\n"
    assert [skips_off_tables(text) for text in (table, in_a_call, small, signature)] == [[], [], [3], [4]]


def test_every_package_is_listed_and_every_listed_package_exists() -> None:
    folders = {folder: name for name, folder in SETUPTOOLS["package-dir"].items()}
    on_disk = set()
    for stage in folders:
        for init in (ROOT / stage).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / stage).parts
            on_disk.add(".".join([folders[stage], *inner]))
    assert set(SETUPTOOLS["packages"]) == on_disk


def test_every_module_lies_in_a_package() -> None:
    strays = [p for stage in STAGES for p in source_files(ROOT / stage) if not (p.parent / "__init__.py").is_file()]
    assert strays == []


@pytest.mark.parametrize("module", LIGHT_STAGES)
def test_importing_a_light_stage_loads_nothing_heavy(module: str) -> None:
    code = f"import {module}, sys; print(*sorted(m.split('.')[0] for m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "timm", "onnx", "onnxruntime", "netcal", "matplotlib", "streamlit", "pandas", "pyarrow"}
    assert not heavy & set(result.stdout.split())


def test_help_loads_no_stage_and_no_heavy_module() -> None:
    code = (
        "import sys; sys.argv=['calibrant','--help']\n"
        "from calibrant.commands.root import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(result.stderr.split())
    assert "Start here:" in result.stdout
    assert not {m for m in loaded if m.split(".")[0] in {"numpy", "torch", "pyarrow", "PIL", "scipy", "onnxruntime"}}
    assert not {m for m in loaded if m.startswith("calibrant.") and m.split(".")[1] in STAGES}


def test_the_front_door_loads_nothing_until_it_is_used() -> None:
    code = "import calibrant, sys; dir(calibrant); print(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {m for m in result.stdout.split() if m.startswith("calibrant")} == {"calibrant", "calibrant._version"}


def test_help_takes_at_most_three_times_the_import_of_click() -> None:
    assert best(["-m", "calibrant", "--help"]) <= 3 * best(["-c", "import click"])


def test_the_front_door_takes_at_most_a_fifth_more_than_the_import_of_click() -> None:
    assert best(["-c", "import calibrant; dir(calibrant)"]) <= 1.2 * best(["-c", "import click"])


def best(arguments: list[str]) -> float:
    """Seconds of the fastest of seven starts."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_no_committed_file_names_a_path_of_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    words = ["/wor" + "k/", "/ro" + "ot/", "/simp" + "le/"]
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".json", ".html", ""} and path.is_file():
            text = path.read_text(errors="ignore")
            assert not any(word in text for word in words), name
