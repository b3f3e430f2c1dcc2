"""How many processes and threads where nobody says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from calibrant.serve.config import ModelSpec, ServeConfig
from calibrant.serve.processes import layout
from calibrant.serve.processes.layout import Layout, chosen, free_memory

GIB = 1 << 30
pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="needs SO_REUSEPORT")


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    (tmp_path / "m.onnx").write_bytes(bytes(1000))
    return ServeConfig([ModelSpec(tmp_path / "m.onnx")])


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "choose", lambda wanted, available: [("CPUExecutionProvider", {})])


@pytest.mark.parametrize(("cores", "expected"), [(1, (1, 1)), (2, (2, 1)), (8, (8, 1)), (16, (8, 2)), (64, (8, 8))])
def test_a_process_for_each_core_and_above_eight_threads(
    config: ServeConfig, cores: int, expected: tuple[int, int]
) -> None:
    assert chosen(config, cores=cores, memory=64 * GIB)[0] == Layout(*expected)


def test_half_of_the_free_memory_is_the_bound(config: ServeConfig) -> None:
    """1 GiB: half of it holds two processes of 250 MiB; what is left of the cores are threads."""
    found, why = chosen(config, cores=8, memory=GIB)
    assert found == Layout(2, 4)
    assert why == "8 cores, and 1.0 GiB of memory"
    assert chosen(config, cores=8, memory=GIB // 16)[0] == Layout(1, 8)


def test_large_files_count_three_times(tmp_path: Path) -> None:
    with open(tmp_path / "big.onnx", "wb") as stream:
        stream.truncate(GIB)
    config = ServeConfig([ModelSpec(tmp_path / "big.onnx")])
    assert chosen(config, cores=8, memory=14 * GIB)[0] == Layout(2, 4)


def test_one_process_where_others_would_be_wrong(
    config: ServeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(ServeConfig(config.models, threads=3), cores=8, memory=64 * GIB)[0] == Layout(1, 3)
    for n in range(4):
        (tmp_path / f"other{n}.onnx").touch()
    assert chosen(ServeConfig(folders=(tmp_path,)), cores=8, memory=64 * GIB)[0] == Layout(1, 8)
    monkeypatch.setattr(layout, "choose", lambda wanted, available: [("CUDAExecutionProvider", {})])
    assert chosen(config, cores=8, memory=64 * GIB)[0] == Layout(1, 8)


def test_memory_is_what_the_machine_has_free_or_the_group_may_have(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert free_memory(tmp_path) == 4000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) == 4000 * 1024
    (group / "memory.max").write_text("1000000\n")
    assert free_memory(tmp_path) == 1_000_000
