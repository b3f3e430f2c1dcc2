"""For all tests: no model hub is asked for anything, in this process and in those that it starts, and commands that are
called again and again with one --out replace what is there (tests/test_overwrite.py takes that back)."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CALIBRANT_OVERWRITE"] = "1"
os.environ["CALIBRANT_PROGRESS"] = "off"  # what is said must not hang on how busy the machine is
if "PYTEST_XDIST_WORKER" in os.environ:  # a worker for each core: more threads would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def example_plugin() -> Iterator[Path]:
    """tests/plugin_example.py, loaded for one test."""
    from calibrant import plugins

    source = Path(__file__).parent / "plugin_example.py"
    plugins.load(source)
    yield source
    plugins.forget(source)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """fsspec's storage in memory, which is one for the whole process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = pytest.importorskip("fsspec").filesystem("memory")
    yield found
    found.store.clear()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """boto3's client of an S3 server on this machine with a bucket `models`; every process that is started sees it."""
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("flask")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        server.start()
        host, port = server.get_host_and_port()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3fs.S3FileSystem.clear_instance_cache()  # which would go on with an earlier test's server
        import boto3

        boto3.setup_default_session()
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="models")
        yield client
        for kept in client.list_objects_v2(Bucket="models").get("Contents", []):
            client.delete_object(Bucket="models", Key=kept["Key"])
        server.stop()
