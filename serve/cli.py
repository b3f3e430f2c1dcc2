"""`calibrant serve`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL.onnx ...")
@click.option("--name", help="Name of the model in the addresses. [default: from the file]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--provider", "providers", multiple=True, metavar="NAME", help="cpu, cuda, tensorrt, openvino, ...")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of one model. [default: the cores available]")
@click.option("--batch-cap", type=click.IntRange(1, 4096), help="Rows in one run. [default: measured at the start]")
@click.option("--token", envvar="CALIBRANT_TOKEN", help="Ask callers for this bearer token (or CALIBRANT_TOKEN).")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM certificate chain: serve HTTPS.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM key, where it is not in the certificate's file.")
@click.option("--max-body", default=64, show_default=True, type=click.IntRange(1, 4096), help="MiB of one request.")
@click.option("--max-wait", default=5.0, show_default=True, type=click.FloatRange(0.001), help="Seconds in the queue.")
@click.option("--ready-file", type=click.Path(path_type=Path), help="JSON with host, port, pid, written when ready.")
@click.option("--quiet", is_flag=True, help="Warnings and errors only on stderr.")
def serve(
    models: tuple[Path, ...],
    name: str | None,
    host: str,
    port: int,
    providers: tuple[str, ...],
    threads: int | None,
    batch_cap: int | None,
    token: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_body: int,
    max_wait: float,
    ready_file: Path | None,
    quiet: bool,
) -> None:
    """Serve deployed files over the Open Inference Protocol, with calibrated confidence.

    \b
    Example: calibrant serve model.onnx
             curl --data-binary @photo.jpg http://127.0.0.1:8000/predict
    """
    from calibrant.errors import ConfigError
    from calibrant.serve.config import ServeConfig
    from calibrant.serve.limits import Limits
    from calibrant.serve.server import Server

    if name is not None and len(models) > 1:
        raise ConfigError(f"--name is for one model, and there are {len(models)}", where="calibrant serve")
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )  # fmt: skip
    config = ServeConfig(
        models, name=name, host=host, port=port, providers=providers or None, threads=threads, batch_cap=batch_cap,
        ready_file=ready_file, token=token, tls_cert=tls_cert, tls_key=tls_key,
        limits=Limits(max_body=max_body << 20, max_wait=max_wait),
    )  # fmt: skip
    server = Server(config)

    def announce(address: str) -> None:
        names = ", ".join(m.name for m in server.repository.all())
        example = f"curl --data-binary @photo.jpg {address}/predict"
        click.echo(f"Serving {names} at {address}   try: {example}")
        sys.stdout.flush()

    server.run(announce=announce)
