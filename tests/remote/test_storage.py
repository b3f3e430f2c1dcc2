"""Files of object storage on this machine: on fsspec's own storage in memory, and on an S3 server of this machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from calibrant.errors import ConfigError, DataError
from calibrant.overwrite import refuse_to_replace
from calibrant.remote.storage import Storage, here, is_address, local_copy, outgoing

pytest.importorskip("fsspec")


def test_an_address_has_a_scheme() -> None:
    assert all(map(is_address, ("s3://bucket/models", "gs://b", "memory://x")))
    assert not any(map(is_address, ("models", "birds=model.onnx", "birds@2=a://b", "./s3/x", Path("s3:/x"))))


def test_a_storage_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"calibrant\[storage\]"):
        Storage("nowhere://models")


def _read(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_is_copied_and_kept_as_it_is_in_the_storage(storage: Any) -> None:
    storage.pipe({"/pictures/crane/a.jpg": b"a", "/pictures/crane/b.jpg": b"b", "/pictures/list.csv": b"x"})
    folder = local_copy("memory://pictures/")
    assert folder.name == "pictures"
    assert _read(folder) == {"crane/a.jpg": b"a", "crane/b.jpg": b"b", "list.csv": b"x"}
    (folder / "own.stats.npz").write_bytes(b"of this machine")
    times = {p.name: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    storage.pipe({"/pictures/crane/b.jpg": b"B", "/pictures/crane/c.jpg": b"c"})
    storage.rm("/pictures/list.csv")
    assert local_copy("memory://pictures") == folder
    assert _read(folder) == {
        "crane/a.jpg": b"a", "crane/b.jpg": b"B", "crane/c.jpg": b"c", "own.stats.npz": b"of this machine",
    }  # fmt: skip
    assert (folder / "crane/a.jpg").stat().st_mtime_ns == times["a.jpg"]  # not copied again
    (folder / "crane/a.jpg").unlink()
    assert _read(local_copy("memory://pictures"))["crane/a.jpg"] == b"a"


def test_a_file_alone_keeps_its_name(storage: Any) -> None:
    storage.pipe("/models/birds.onnx", b"one")
    assert here("memory://models/birds.onnx").name == "birds.onnx"
    assert here("memory://models/birds.onnx").read_bytes() == b"one"
    assert here("birds.onnx") == Path("birds.onnx")


def test_a_copy_that_was_cut_off_is_made_again(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.pipe({f"/many/{n:03d}": b"%d" % n for n in range(100)})
    get, calls = type(storage).get, list[int]()

    def one_round(self: Any, *arguments: Any) -> None:
        calls.append(len(arguments[0]))
        if len(calls) == 2:
            raise OSError("the line is down\nand more")
        get(self, *arguments)

    monkeypatch.setattr(type(storage), "get", one_round)
    with pytest.raises(DataError, match=r"memory://many: cannot be read \(the line is down\)$"):
        local_copy("memory://many")
    assert len(_read(local_copy("memory://many"))) == 100
    assert calls == [64, 36, 64, 36]


def test_what_is_not_there_is_said(storage: Any) -> None:
    with pytest.raises(DataError, match="memory://nothing: cannot be read"):
        local_copy("memory://nothing")


def test_a_result_takes_its_place_when_it_is_done_and_its_listing_before_it(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.pipe("/out/june.parquet", b"may")
    sent = list[str]()
    put = type(storage).put_file
    monkeypatch.setattr(type(storage), "put_file", lambda s, p, r: [sent.append(Path(r).name), put(s, p, r)])
    with outgoing("memory://out/june.parquet") as path:
        (path.parent / "june.parquet.parts").mkdir()
        path.with_name("june.parquet.bad-images.txt").write_text("x")
        path.write_bytes(b"june")
        assert storage.cat("/out/june.parquet") == b"may"
    assert storage.cat("/out/june.parquet") == b"june"
    assert storage.cat("/out/june.parquet.bad-images.txt") == b"x"
    assert sent == ["june.parquet.bad-images.txt", "june.parquet"]
    assert not path.exists()
    with contextlib.suppress(KeyError), outgoing("memory://out/june.parquet") as again:
        again.write_bytes(b"half")
        raise KeyError
    assert storage.cat("/out/june.parquet") == b"june"
    assert again == path  # where an interrupted run finds its parts


def test_a_result_that_cannot_be_sent_is_kept(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise OSError("403")

    monkeypatch.setattr(type(storage), "put_file", gone)
    with pytest.raises(DataError, match="cannot be written \\(403\\).*copy it from"), outgoing("memory://o/x") as path:
        path.write_bytes(b"x")
    assert path.read_bytes() == b"x"


def test_what_lies_at_an_address_is_not_replaced_unasked(storage: Any) -> None:
    storage.pipe("/out/x.parquet", b"")
    with pytest.raises(ConfigError, match="memory://out/x.parquet: is there already"):
        refuse_to_replace("memory://out/x.parquet", overwrite=False)
    refuse_to_replace("memory://out/x.parquet", overwrite=True)
    refuse_to_replace("memory://out/y.parquet", overwrite=False)


def test_an_s3_server_is_read_and_written(bucket: Any, tmp_path: Path) -> None:
    for n in range(3):
        bucket.put_object(Bucket="models", Key=f"in/{n}/a.txt", Body=str(n).encode())
    folder = local_copy("s3://models/in")
    assert _read(folder) == {f"{n}/a.txt": str(n).encode() for n in range(3)}
    bucket.put_object(Bucket="models", Key="in/1/a.txt", Body=b"x")
    assert _read(local_copy("s3://models/in"))["1/a.txt"] == b"x"
    with outgoing("s3://models/out/r.json") as path:
        path.write_text(json.dumps(7))
    assert bucket.get_object(Bucket="models", Key="out/r.json")["Body"].read() == b"7"
    assert Storage("s3://models/out/r.json").exists()
    assert not Storage("s3://models/out/s.json").exists()


def test_names_do_not_lead_out_of_the_copy(bucket: Any) -> None:
    for key in ("in/a.txt", "in/../../../out.txt"):
        bucket.put_object(Bucket="models", Key=key, Body=b"x")
    folder = local_copy("s3://models/in")
    assert set(_read(folder.parents[2])) >= {f"copies/{folder.parent.name}/in/a.txt"}
    assert not list(folder.parents[2].rglob("out.txt"))
