from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import DataError
from calibrant.serve.batch import order
from calibrant.serve.batch.predict import predict_model

CLASSES = ("auk", "bittern", "crane", "dunlin")


def _png(seed: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (20 + seed % 5, 24, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def _tar(path: Path, entries: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def _labelled(keys: list[int]) -> dict[str, bytes]:
    entries = {}
    for n in keys:
        entries[f"{n:04d}.png"] = _png(n)
        entries[f"{n:04d}.cls"] = (CLASSES[n % 4] if n % 2 else str(n % 4)).encode()
    return entries


def _wanted(tiny: ModuleType, pictures: list[bytes]) -> Any:
    opened = [tiny.PREPROCESSING.pixels(Image.open(io.BytesIO(p)).convert("RGB")) for p in pictures]
    return tiny.raw_logits(np.stack(opened))


def test_tar_shards_are_read_in_order_with_labels_by_name_or_number(
    tmp_path: Path, model_file: Path, tiny: ModuleType
) -> None:
    (tmp_path / "data").mkdir()
    _tar(tmp_path / "data" / "b.tar", _labelled([5, 4]))
    _tar(tmp_path / "data" / "a.tar", _labelled([3, 0, 1]) | {"deep/bare.v2.jpg.txt": b"", "deep/bare.PNG": _png(9)})
    got = read_predictions(predict_model(model_file, tmp_path / "data", tmp_path / "p.parquet", batch_size=2, part=4))
    assert got.ids == ("a.tar/0003", "a.tar/0000", "a.tar/0001", "a.tar/deep/bare", "b.tar/0005", "b.tar/0004")
    assert got.labels.tolist() == [3, 0, 1, -1, 1, 0]
    wanted = _wanted(tiny, [_png(n) for n in (3, 0, 1, 9, 5, 4)])
    np.testing.assert_allclose(got.logits, wanted, atol=2e-5)


@pytest.mark.parametrize("layout", ["bytes", "struct"])
def test_parquet_shards_give_what_the_folder_gives(
    tmp_path: Path, model_file: Path, tiny: ModuleType, layout: str
) -> None:
    pictures = [_png(n) for n in range(11)]
    column: Any = pictures
    if layout == "struct":
        column = [{"bytes": p, "path": f"{n}.png"} for n, p in enumerate(pictures)]
    table = {"image": column, "label": [n % 4 for n in range(11)]}
    if layout == "bytes":
        table["key"] = [f"{n}.png" for n in range(11)]
    (tmp_path / "data").mkdir()
    for part in (0, 1):  # row groups of two rows, so that a chunk begins in the middle of one
        rows = {name: values[6 * part : 6 + 6 * part] for name, values in table.items()}
        pq.write_table(pa.table(rows), tmp_path / "data" / f"{part}.parquet", row_group_size=2)
    got = read_predictions(predict_model(model_file, tmp_path / "data", tmp_path / "p.parquet", batch_size=2, part=3))
    assert got.ids == tuple(f"{n // 6}.parquet/{n}.png" for n in range(11))
    assert got.labels.tolist() == [n % 4 for n in range(11)]
    np.testing.assert_allclose(got.logits, _wanted(tiny, pictures), atol=2e-5)


def test_shards_named_after_a_split_are_chosen_by_it(tmp_path: Path, model_file: Path) -> None:
    for name, n in (("train-0.tar", 1), ("test-0.tar", 2), ("test-1.tar", 3), ("validation-0.tar", 4)):
        _tar(tmp_path / name, _labelled([n]))

    def ids(split: str) -> tuple[str, ...]:
        return read_predictions(predict_model(model_file, tmp_path, tmp_path / "p.out", split=split)).ids

    assert ids("test") == ("test-0.tar/0002", "test-1.tar/0003")
    assert ids("val") == ("validation-0.tar/0004",)
    (tmp_path / "validation-0.tar").unlink()
    with pytest.raises(DataError, match='no split "val"; choose with --split: test, train'):
        predict_model(model_file, tmp_path, tmp_path / "p.out", split="val")


def test_bad_images_in_shards_are_named_or_listed(tmp_path: Path, model_file: Path) -> None:
    shard = _tar(tmp_path / "a.tar", {"x.png": b"no picture", "y.png": _png(1)})
    out = tmp_path / "p.parquet"
    with pytest.raises(DataError, match=r"a\.tar/x: not a JPEG"):
        predict_model(model_file, shard, out)
    assert read_predictions(predict_model(model_file, shard, out, on_bad_image="skip")).ids == ("a.tar/y",)
    assert (tmp_path / "p.parquet.bad-images.txt").read_text().startswith("a.tar/x\tnot a JPEG")
    pq.write_table(pa.table({"image": [{"bytes": None, "path": "far/away.jpg"}, {"bytes": _png(2), "path": "b"}]},
                            schema=pa.schema({"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})})),
                   tmp_path / "b.parquet")  # fmt: skip
    predict_model(model_file, tmp_path / "b.parquet", out, on_bad_image="skip")
    listed = (tmp_path / "p.parquet.bad-images.txt").read_text()
    assert listed == "b.parquet/far/away.jpg\thas no bytes in its row\n"


def test_an_interrupted_run_over_shards_goes_on_where_it_was(
    tmp_path: Path, model_file: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = [_png(n) for n in range(12)]
    shard, out = tmp_path / "a.parquet", tmp_path / "p.out"
    pq.write_table(pa.table({"image": pictures}), shard, row_group_size=5)
    decode, seen = order._decode, []

    def interrupted(*arguments: Any) -> Any:
        seen.append(arguments[1].args[0])
        if len(seen) > 9:
            raise KeyboardInterrupt
        return decode(*arguments)

    monkeypatch.setattr(order, "_decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_model(model_file, shard, out, part=4, batch_size=1, workers=1)
    seen.clear()
    monkeypatch.setattr(order, "_decode", lambda *a: (seen.append(a[1].args[0]), decode(*a))[1])
    predict_model(model_file, shard, out, part=4, batch_size=1, workers=1)
    assert seen == [8, 9, 10, 11]
    np.testing.assert_allclose(read_predictions(out).logits, _wanted(tiny, pictures), atol=2e-5)
