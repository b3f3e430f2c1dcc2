"""The same eight pictures in every layout: `write[name](folder)` gives the path to read."""

from __future__ import annotations

import csv
import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

CLASSES = ("auk", "bittern")
SPLITS = ("train", "test")
EACH = 5  # pictures of a class and split


def colour(split: str, k: int, i: int) -> tuple[int, int, int]:
    return (10 + 100 * SPLITS.index(split), 20 + 100 * k, 30 + 20 * i)


def picture(split: str, k: int, i: int) -> Image.Image:
    return Image.new("RGB", (32, 32), colour(split, k, i))


def png(split: str, k: int, i: int) -> bytes:
    stream = io.BytesIO()
    picture(split, k, i).save(stream, "PNG")
    return stream.getvalue()


def pixels(split: str, k: int, i: int) -> np.ndarray:
    return np.asarray(picture(split, k, i))


def everyone(split: str) -> list[tuple[str, int, int]]:
    return [(split, k, i) for k in range(len(CLASSES)) for i in range(EACH)]


def _save(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def folder(root: Path) -> Path:
    for split in SPLITS:
        for s, k, i in everyone(split):
            _save(root / split / CLASSES[k] / f"{i}.png", png(s, k, i))
    return root


def csv_list(root: Path) -> Path:
    rows = [["path", "label", "split"]]
    for split in SPLITS:
        for s, k, i in everyone(split):
            _save(root / "pics" / f"{split}{k}{i}.png", png(s, k, i))
            rows.append([f"pics/{split}{k}{i}.png", CLASSES[k], split])
    with open(root / "list.csv", "w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return root / "list.csv"


def ufg(root: Path) -> Path:
    for split in SPLITS:
        lines = ["class_id,dir"]
        for s, k, i in everyone(split):
            _save(root / "images" / f"{split}{k}{i}.png", png(s, k, i))
            lines.append(f"{CLASSES[k]},{split}{k}{i}.png")
        (root / f"{split}.csv").write_text("\n".join(lines))
    return root


def ufg_packed(root: Path) -> Path:
    (root / "anno").mkdir(parents=True)
    for split in SPLITS:
        for s, k, i in everyone(split):
            _save(root / "images" / f"{split} {k}{i}.png", png(s, k, i))
        lines = [f"{split} {k}{i}.png {CLASSES[k]}" for _, k, i in everyone(split)]
        (root / "anno" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return root


def tar(root: Path) -> Path:
    for split in SPLITS:
        with tarfile.open(root / f"{split}-0.tar", "w") as archive:
            for s, k, i in everyone(split):
                for suffix, content in (("png", png(s, k, i)), ("cls", CLASSES[k].encode())):
                    member = tarfile.TarInfo(f"{k}{i}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return root


def parquet(root: Path) -> Path:
    for split in SPLITS:
        rows = everyone(split)
        table = pa.table({"image": [png(*row) for row in rows], "label": [CLASSES[k] for _, k, _ in rows]})
        pq.write_table(table, root / f"{split}-0.parquet", row_group_size=3)
    return root


def hub(root: Path) -> Path:
    (root / "data").mkdir()
    features = {"features": {"fine_label": {"names": list(CLASSES), "_type": "ClassLabel"}}}
    for split in SPLITS:
        rows = everyone(split)
        images = [{"bytes": png(*row), "path": f"{i}.png"} for i, row in enumerate(rows)]
        table = pa.table({"img": images, "fine_label": [k for _, k, _ in rows]})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": features})})
        pq.write_table(table, root / "data" / f"{split}-00000-of-00001.parquet", row_group_size=4)
    return root


def _planes(row: tuple[str, int, int]) -> bytes:
    return pixels(*row).transpose(2, 0, 1).tobytes()


def cifar_binary(root: Path) -> Path:
    inner = root / "cifar-100-binary"
    inner.mkdir()
    (inner / "fine_label_names.txt").write_text("\n".join(CLASSES))
    for split in SPLITS:
        rows = (bytes([0, row[1]]) + _planes(row) for row in everyone(split))
        (inner / f"{split}.bin").write_bytes(b"".join(rows))
    return root


def python2_array(shape: tuple[int, int], content: bytes) -> bytes:
    """The instructions with which Python 2 pickles a NumPy array of bytes."""
    size = len(content).to_bytes(4, "little")
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01(M"
        + shape[0].to_bytes(2, "little") + b"M" + shape[1].to_bytes(2, "little")
        + b"tcnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + size + content + b"tb"
    )  # fmt: skip


def cifar_python(root: Path) -> Path:
    inner = root / "cifar-100-python"
    inner.mkdir()
    (inner / "meta").write_bytes(pickle.dumps({"fine_label_names": list(CLASSES), "coarse_label_names": []}, 2))
    for split in SPLITS:
        rows = everyone(split)
        labels = b"".join(b"K" + bytes([k]) for _, k, _ in rows)
        array = python2_array((len(rows), 3072), b"".join(map(_planes, rows)))
        (inner / split).write_bytes(
            b"\x80\x02}q\x01(U\x0bfine_labelsq\x02]q\x03(" + labels + b"eU\x04data" + array + b"u."
        )
    return root


def cub(root: Path) -> Path:
    inner = root / "CUB_200_2011"
    inner.mkdir()
    texts = {"images": "", "image_class_labels": "", "train_test_split": ""}
    for n, (s, k, i) in enumerate([*everyone("train"), *everyone("test")], start=1):
        _save(inner / "images" / CLASSES[k] / f"{s}{i}.png", png(s, k, i))
        texts["images"] += f"{n} {CLASSES[k]}/{s}{i}.png\n"
        texts["image_class_labels"] += f"{n} {k + 1}\n"
        texts["train_test_split"] += f"{n} {int(s == 'train')}\n"
    for name, text in texts.items():
        (inner / f"{name}.txt").write_text(text)
    (inner / "classes.txt").write_text("".join(f"{k + 1} {name}\n" for k, name in enumerate(CLASSES)))
    return root


def aircraft(root: Path) -> Path:
    (root / "data").mkdir()
    (root / "data" / "variants.txt").write_text("\n".join(CLASSES))
    for split in ("train", "val", "test"):
        rows = everyone("train" if split == "val" else split)
        for s, k, i in rows:
            stem = root / "data" / "images" / f"{split}{k}{i}"
            _save(stem.with_suffix(".jpg"), png(s, k, i))
        lines = [f"{split}{k}{i} {CLASSES[k]}" for _, k, i in rows]
        (root / "data" / f"images_variant_{split}.txt").write_text("\n".join(lines))
    return root


def tiny_imagenet(root: Path) -> Path:
    (root / "wnids.txt").parent.mkdir(exist_ok=True)
    (root / "wnids.txt").write_text("\n".join(reversed(CLASSES)))
    for s, k, i in everyone("train"):
        _save(root / "train" / CLASSES[k] / "images" / f"{i}.JPEG", png(s, k, i))
    lines = []
    for s, k, i in everyone("test"):
        _save(root / "val" / "images" / f"{k}{i}.JPEG", png(s, k, i))
        lines.append(f"{k}{i}.JPEG\t{CLASSES[k]}\t0\t0\t31\t31")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return root


WRITERS: dict[str, Callable[[Path], Path]] = {
    "folder": folder, "csv": csv_list, "ufg": ufg, "ufg, as packed": ufg_packed, "tar": tar, "parquet": parquet,
    "parquet, from the Hub": hub, "cifar100": cifar_binary, "cifar100, Python": cifar_python, "cub": cub,
    "aircraft": aircraft, "tiny-imagenet": tiny_imagenet,
}  # fmt: skip


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    root = tmp_path / "data"
    root.mkdir()
    return request.param.partition(",")[0], WRITERS[request.param](root)
