"""`calibrant serve`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrant.artifacts.feedback_logits import FEWEST
from calibrant.remote.ray_session import RAY_ADDRESS, refuse_address
from calibrant.words import Words

if TYPE_CHECKING:
    from calibrant.serve.config import ServeConfig

log = logging.getLogger(__name__)


def _provider_names() -> tuple[str, ...]:
    from calibrant.serve.engine.providers import SHORT

    return tuple(SHORT)


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from calibrant.serve.config_file import read_config_file

        found = read_config_file(path, context.command.params)
        context.default_map = {**found.options, **(context.default_map or {})}
        context.meta[_TABLES] = found.tables


_TABLES = "calibrant.serve.tables"


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="[NAME[@VERSION]=]MODEL.onnx|FOLDER|s3://BUCKET/FOLDER ...")
@click.option("--name", help="Name of the model in the addresses. [default: from the file]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Also serve gRPC there; needs hpack. 0: a free one.")
@click.option(
    "--provider",
    "providers",
    type=Words(_provider_names),
    multiple=True,
    metavar="NAME",
    help="cpu, cuda, tensorrt, openvino, ...",
)
@click.option(
    "--engine",
    type=click.Choice(["calibrant", "ray"]),
    default="calibrant",
    show_default=True,
    help="What takes connections and scales: our own server, or Ray Serve.",
)
@RAY_ADDRESS
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Processes that share the port; each has its own copy of the models. [default: by cores and memory; 1 with "
    "--threads]",
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads of one model. [default: the cores available / workers]"
)
@click.option("--batch-cap", type=click.IntRange(1, 4096), help="Rows in one run. [default: measured at the start]")
@click.option("--huge-pages/--no-huge-pages", default=True, show_default=True, help="Ask Linux for huge pages.")
@click.option("--monitor", is_flag=True, help="Watch confidence, drift and, with labels, calibration.")
@click.option("--feedback-log", type=click.Path(path_type=Path), metavar="DIR", help="Also keep every answer there.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="PREDICTIONS.parquet",
    help="Labelled held-out rows: what is normal. [default: the first labels]",
)
@click.option(
    "--sample",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Share to watch and log.",
)
@click.option("--keep-days", type=click.FloatRange(0.01), help="Drop parts of the feedback log older than that.")
@click.option(
    "--feature-drift",
    is_flag=True,
    help="Also watch the features of files that put them out (export --features), against those of --baseline or the "
    "first rows.",
)
@click.option(
    "--keep-gib",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="GIB",
    help="Drop the oldest parts of a larger feedback log.",
)
@click.option(
    "--segment-mib",
    default=64,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="Of one file of the feedback log.",
)
@click.option(
    "--segment-hours",
    type=click.FloatRange(0.001),
    help="Also close a file of the feedback log at that age.  [default: never; 1 with --log-to]",
)
@click.option(
    "--log-to",
    metavar="s3://BUCKET/LOG",
    help="Copy each file of the feedback log that is closed to object storage.",
)
@click.option("--log-float16", is_flag=True, help="Keep logits as float16 in the log: half the room.")
@click.option(
    "--log-top",
    type=click.IntRange(FEWEST),
    metavar="K",
    help="Keep the K largest logits of a row in the log, and the sum of the others. No calibrator is fitted on that.",
)
@click.option(
    "--canary",
    "canaries",
    multiple=True,
    metavar="NAME@VERSION=SHARE",
    help="Send a share of the requests; NAME@newest: to each version that comes.",
)
@click.option(
    "--canary-auto",
    is_flag=True,
    help="Promote or roll back canaries by calibration, latency and errors; [canary_rules] of --config says when.",
)
@click.option(
    "--shadow", "shadows", multiple=True, metavar="NAME@VERSION=SHARE", help="Send copies, answer from others."
)
@click.option("--token", envvar="CALIBRANT_TOKEN", help="Ask callers for this bearer token (or CALIBRANT_TOKEN).")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Lines NAME RIGHTS TOKEN with rights of infer, feedback, admin; read again at SIGHUP.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM certificate chain: serve HTTPS.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM key, where it is not in the certificate's file.")
@click.option(
    "--tls-client-ca",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="PEM certificates: callers must show one that these have signed (mutual TLS).",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME|*.NAME",
    help="Answer only callers who call this server so. [default: any name]",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS|NETWORK",
    help="Has many callers behind it, so no limit of one address. [default: this machine]",
)
@click.option("--admin", is_flag=True, help="Let callers load and unload the models.")
@click.option(
    "--model-control",
    type=click.Choice(["poll", "explicit"]),
    default="poll",
    show_default=True,
    help="Of a FOLDER: load what lies there and what comes, or only what --load and callers ask for.",
)
@click.option("--load", "load", multiple=True, metavar="NAME", help="Load at the start, with explicit control.")
@click.option(
    "--model-memory",
    type=click.IntRange(1),
    metavar="MIB",
    help="Of a FOLDER: keep so much of the files loaded, the rest when asked for.",
)
@click.option(
    "--accept-changes", is_flag=True, help="Let a changed file have other inputs or classes than the one before."
)
@click.option(
    "--reload",
    "reload_seconds",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds between looks for changed files; 0 never looks.",
)
@click.option("--max-body", default=64, show_default=True, type=click.IntRange(1, 4096), help="MiB of one request.")
@click.option("--max-wait", default=5.0, show_default=True, type=click.FloatRange(0.001), help="Seconds in the queue.")
@click.option(
    "--grace",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="From SIGTERM (not ready) to taking no new connections.",
)
@click.option("--ready-file", type=click.Path(path_type=Path), help="JSON with host, port, pid, written when ready.")
@click.option(
    "--access-log", is_flag=True, help="A JSON line on stderr for every request: its id, model, version, milliseconds."
)
@click.option(
    "--trace-share",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0.0, 1.0),
    help="Send OpenTelemetry traces of a share of the requests; OTEL_EXPORTER_OTLP_ENDPOINT says where to.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of all other lines."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    metavar="FILE.toml",
    help="Options by their names, tables [limits], [watch] and [canary_rules]; the command line comes first.",
)
@click.option("--check", is_flag=True, help="Load and check everything, say what is there, and end.")
@click.option("--quiet", is_flag=True, help="Warnings and errors only on stderr.")
def serve(
    engine: str,
    ray_address: str | None,
    workers: int | None,
    quiet: bool,
    check: bool,
    log_format: str,
    **options: Any,
) -> None:
    """Serve deployed files over the Open Inference Protocol, with calibrated confidence.

    \b
    Example: calibrant serve model.onnx
             calibrant serve models/ --admin
             calibrant serve --config serve.toml --check
             curl --data-binary @photo.jpg http://127.0.0.1:8000/predict
    """
    from calibrant.serve.processes.workers import Seat, Supervisor

    refuse_address(ray_address, engine=engine)
    seat = Seat.from_environment()
    _log_to_stderr(
        quiet=quiet, access=options["access_log"], worker=None if seat is None else seat.number, form=log_format
    )
    config = _resolved(click.get_current_context().meta.get(_TABLES, {}), **options)
    if check:
        from calibrant.serve.config_check import checked

        if engine == "ray":
            from calibrant.serve.processes.ray import refuse_what_ray_does_not_do

            refuse_what_ray_does_not_do(config)
        for line in checked(config):
            click.echo(line)
        click.echo("This would start.")
        return
    if engine == "ray":
        from calibrant.serve.processes import ray

        def told(url: str, names: list[str]) -> None:
            _announce(url, names, None, workers or 1)

        ray.run(config, workers or 1, announce=told, address=ray_address)
        return
    if seat is None and workers is None:
        from calibrant.serve.processes.layout import chosen

        layout, why = chosen(config)
        workers = layout.workers
        log.info("%d worker(s) of %d thread(s): %s (else --workers, --threads)", workers, layout.threads, why)
    if seat is None and workers is not None and workers > 1:
        found = Supervisor(config, workers)
        count = workers
        sys.exit(found.run(announce=lambda f: _announce(f["url"], f["models"], f["grpc_port"], count)))
    from calibrant.serve.processes.server import Server

    server = Server(config, seat, again=_again if sys.argv[1:2] == ["serve"] else None)
    server.run(announce=lambda url: _announce(url, sorted(server.repository.models), server.grpc_port, 1))


_NOT_OF_CONFIG = ("engine", "ray_address", "workers", "quiet", "check", "log_format")


def _again() -> ServeConfig:
    """What the same command line means by now."""
    context = serve.make_context("serve", sys.argv[2:])
    options = {name: value for name, value in context.params.items() if name not in _NOT_OF_CONFIG}
    return _resolved(context.meta.get(_TABLES, {}), **options)


def _resolved(
    tables: Mapping[str, Mapping[str, Any]],
    *,
    models: tuple[str, ...],
    name: str | None,
    canaries: tuple[str, ...],
    shadows: tuple[str, ...],
    max_body: int,
    max_wait: float,
    sample: float,
    keep_days: float | None,
    keep_gib: float,
    grace: float,
    segment_mib: int,
    segment_hours: float | None,
    log_float16: bool,
    log_top: int | None,
    feature_drift: bool,
    providers: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    **options: Any,
) -> ServeConfig:
    """`tables`: of the configuration file."""
    import dataclasses

    from calibrant.calibration.monitoring.canary_rules import CanaryRules
    from calibrant.errors import ConfigError
    from calibrant.remote.storage import is_address
    from calibrant.serve.config import ModelSpec, ServeConfig, Share
    from calibrant.serve.limits import THIS_MACHINE, Limits
    from calibrant.serve.monitor.config import MonitorConfig

    if os.environ.get("CALIBRANT_TOKEN") == "" and options["token"] is None and options["token_file"] is None:
        raise ConfigError(
            "is set and empty, which would guard nothing", where="CALIBRANT_TOKEN", fix="unset it, or put a token there"
        )
    remote = tuple(text for text in models if is_address(text))
    here = [text for text in models if text not in remote]
    folders = tuple(Path(text) for text in here if Path(text).is_dir())
    specs = [ModelSpec.parse(text) for text in here if not Path(text).is_dir()]
    if name is not None:
        if len(specs) != 1 or folders or remote:
            raise ConfigError(f"--name is for one model, and there are {len(models)}", where="calibrant serve")
        specs = [dataclasses.replace(specs[0], name=name)]
    return ServeConfig(
        specs,
        folders=folders,
        remote=remote,
        providers=providers or None,
        trusted_proxies=trusted_proxies or THIS_MACHINE,
        grace_seconds=grace,
        canaries=tuple(Share.parse(text, "--canary") for text in canaries),
        shadows=tuple(Share.parse(text, "--shadow") for text in shadows),
        limits=Limits(max_body=max_body << 20, max_wait=max_wait, **tables.get("limits", {})),
        watch=MonitorConfig(
            sample=sample,
            keep_days=keep_days,
            keep_gib=keep_gib,
            segment_bytes=segment_mib << 20,
            segment_hours=1.0 if segment_hours is None and options["log_to"] is not None else segment_hours,
            half=log_float16,
            top=log_top,
            features=feature_drift,
            **tables.get("watch", {}),
        ),
        canary_rules=CanaryRules(**tables.get("canary_rules", {})),
        **options,
    )


def _announce(url: str, names: list[str], grpc_port: int | None, workers: int) -> None:
    example = f"curl --data-binary @photo.jpg {url}/predict"
    grpc = f" and gRPC at port {grpc_port}" if grpc_port is not None else ""
    several = f" with {workers} workers" if workers > 1 else ""
    click.echo(f"Serving {', '.join(names)} at {url}{grpc}{several}   try: {example}")
    sys.stdout.flush()


def _log_to_stderr(*, quiet: bool, access: bool, worker: int | None, form: str = "text") -> None:
    who = "" if worker is None else f"worker {worker} "
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s {who}%(levelname)s %(name)s: %(message)s",
    )
    if form == "json":
        from calibrant.serve.json_log import JsonLines

        logging.getLogger().handlers[0].setFormatter(JsonLines(worker))
    if access:  # bare JSON lines, also when the rest is quiet
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger("calibrant.serve.access")
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO)
