"""What a user gets wrong is answered with one clear line, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image

from calibrant.commands.root import main


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["calibrant", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two classes in three splits, eight small images each."""
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for label, level in (("dark", 60), ("light", 190)):
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = rng.normal(level, 25, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "images"


def train_line(images: Path, out: Path, *more: object) -> list[object]:
    return ["train", "--data", images, "--model", "test_resnet", "--epochs", 1, "--out", out,
            "--set", "model.image_size=32", *more]  # fmt: skip


def assert_one_line(code: int, said: str, *words: str) -> None:
    assert code == 2, said
    assert "Traceback" not in said
    errors = [line for line in said.strip().splitlines() if line.startswith("Error")]
    assert len(errors) == 1, said
    for word in words:
        assert word in errors[0], said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--loss", "vase"], ['did you mean "vace"']),
        (["--model", "resnet81"], ["resnet81", "did you mean"]),
        (["--set", "schedule.epoch=3"], ['did you mean "epochs"']),
        (["--set", "optimizer.lr=fast"], ["lr", "expected"]),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    images: Path, tmp_path: Path, options: list[str], words: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    code, _, said = run(capsys, monkeypatch, *train_line(images, tmp_path / "run"), *options)
    assert_one_line(code, said, *words)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_missing_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, said = run(capsys, monkeypatch, *train_line(tmp_path / "nowhere", tmp_path / "run"))
    assert_one_line(code, said, "nowhere")


def test_an_empty_class_is_named(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (images / "train" / "hollow").mkdir()
    code, _, said = run(capsys, monkeypatch, *train_line(images, tmp_path / "run"))
    assert_one_line(code, said, "hollow")


def test_an_unreadable_image_is_named_or_skipped_and_counted(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (images / "train" / "dark" / "broken.png").write_text("not an image")
    code, _, said = run(capsys, monkeypatch, *train_line(images, tmp_path / "run"))
    assert_one_line(code, said, "broken.png")
    assert not (tmp_path / "run" / "model.safetensors").exists()
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    code, out, said = run(capsys, monkeypatch, *train_line(images, tmp_path / "run", "--on-bad-image", "skip"))
    assert code == 0, said
    assert (tmp_path / "run" / "model.safetensors").is_file()
    listed = [p for p in (tmp_path / "run").rglob("*bad-images*") if "broken.png" in p.read_text()]
    assert listed
    assert "1 " in out + said


def test_wrong_file_types_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    fake = tmp_path / "fake.onnx"
    fake.write_bytes(b"hello, I am no protobuf")
    for arguments in (
        ("evaluate", text), ("calibrate", text, "--method", "temperature", "--out", tmp_path / "c.json"),
        ("inspect", text), ("inspect", fake), ("serve", fake, "--port", 0, "--workers", 1),
        ("serve", tmp_path / "none.onnx", "--workers", 1),
        ("predict", text, "--data", tmp_path), ("export", text, "--out", tmp_path / "m.onnx"),
    ):  # fmt: skip
        code, _, said = run(capsys, monkeypatch, *arguments)
        assert_one_line(code, said, Path(arguments[1]).name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fake.onnx", "notes.txt"]


def test_a_newer_format_is_refused_by_name_in_every_artifact(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    code, _, said = run(capsys, monkeypatch, *train_line(images, tmp_path / "run"))
    assert code == 0, said
    predictions = tmp_path / "run" / "predictions" / "val.parquet"
    calibrator = tmp_path / "c.json"
    code, _, said = run(capsys, monkeypatch, "calibrate", predictions, "--method", "temperature", "--out", calibrator)
    assert code == 0, said

    block = json.loads(calibrator.read_text())
    calibrator.write_text(json.dumps({**block, "format_version": 99}))
    code, _, said = run(capsys, monkeypatch, "evaluate", predictions, "--calibrator", calibrator)
    assert_one_line(code, said, "c.json", "99", "newer")

    table = pq.read_table(predictions)
    text = table.schema.metadata[b"calibrant"].replace(b'"format_version": 1', b'"format_version": 99')
    pq.write_table(table.replace_schema_metadata({b"calibrant": text}), tmp_path / "new.parquet")
    code, _, said = run(capsys, monkeypatch, "evaluate", tmp_path / "new.parquet")
    assert_one_line(code, said, "new.parquet", "99", "newer")

    model = tmp_path / "run" / "model.safetensors"
    model.write_bytes(model.read_bytes().replace(b'\\"format_version\\": 1', b'\\"format_version\\": 9'))
    code, _, said = run(capsys, monkeypatch, "export", tmp_path / "run", "--out", tmp_path / "m.onnx")
    assert_one_line(code, said, "newer")
    assert not (tmp_path / "m.onnx").exists()
