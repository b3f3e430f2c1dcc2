"""The house holds: folders, import directions, and nothing heavy where it does not belong."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("train", "export", "serve", "calibration", "dashboard")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

# Which other stages a stage may import, and which libraries it must not name at module level or (hard) anywhere.
MAY_IMPORT = {
    "calibrant": set(),
    "calibration": set(),
    "serve": {"calibration"},
    "train": {"calibration"},
    "export": {"calibration", "train"},
    "dashboard": {"calibration", "serve"},
}
# The one folder that composes the stages. A stage's own cli.py is no root: it sees what its stage may see.
ROOTS = ROOT / "calibrant" / "commands"
HEAVY = {
    "calibrant": {"torch", "onnxruntime", "onnx", "streamlit", "timm", "pyarrow", "scipy", "matplotlib", "PIL"},
    "calibration": {"torch", "netcal", "matplotlib", "pyarrow", "timm", "onnx", "onnxruntime"},
    "serve": {"torch", "onnx", "timm", "netcal", "matplotlib"},
    "train": {"onnx", "onnxruntime", "streamlit"},
    "export": {"streamlit"},
    "dashboard": {"torch", "timm", "onnx"},
}
LIGHT_STAGES = ("calibrant", "calibrant.calibration", "calibrant.serve", "calibrant.train", "calibrant.export")


def _source_files(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def _imports(path: Path, *, top_level_only: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes: list[ast.AST] = []

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if top_level_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            nodes.append(child)
            walk(child)

    walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} if module == "calibrant" else {module}
    return names


def test_every_package_is_listed_and_every_listed_package_exists() -> None:
    folders = {folder: name for name, folder in SETUPTOOLS["package-dir"].items()}
    on_disk = set()
    for stage in folders:
        for init in (ROOT / stage).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / stage).parts
            on_disk.add(".".join([folders[stage], *inner]))
    assert set(SETUPTOOLS["packages"]) == on_disk


def test_every_module_lies_in_a_package() -> None:
    strays = [p for stage in STAGES for p in _source_files(stage) if not (p.parent / "__init__.py").is_file()]
    assert strays == []


@pytest.mark.parametrize("stage", ["calibrant", *STAGES])
def test_imports_go_one_way(stage: str) -> None:
    wrong = []
    for path in _source_files(stage):
        for name in _imports(path, top_level_only=False):
            parts = name.split(".")
            assert parts[0] not in STAGES, f"{path}: import calibrant.{parts[0]}, not {parts[0]}"
            other = parts[1] if parts[0] == "calibrant" and len(parts) > 1 else None
            if other in STAGES and other != stage and other not in MAY_IMPORT[stage] and ROOTS not in path.parents:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("stage", ["calibrant", *STAGES])
def test_heavy_libraries_are_not_imported_at_module_level(stage: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in _source_files(stage)
        for name in _imports(path, top_level_only=True)
        if name.split(".")[0] in HEAVY[stage]
    ]
    assert wrong == []


def test_serve_never_names_a_training_library() -> None:
    for path in _source_files("serve"):
        found = {name.split(".")[0] for name in _imports(path, top_level_only=False)}
        assert not found & {"torch", "onnx", "timm", "netcal"}, path


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
    assert "Commands:" in result.stdout
    assert not {m for m in loaded if m.split(".")[0] in {"numpy", "torch", "pyarrow", "PIL", "scipy", "onnxruntime"}}
    assert not {m for m in loaded if m.startswith("calibrant.") and m.split(".")[1] in STAGES}


def test_help_takes_at_most_three_times_the_import_of_click() -> None:
    def best(arguments: list[str]) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(["-m", "calibrant", "--help"]) <= 3 * best(["-c", "import click"])


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
