"""`calibrant bench-serve`: what a server gives to callers, beside what onnxruntime alone could."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click


@click.command("bench-serve")
@click.argument("target", metavar="URL|MODEL.onnx")
@click.option("--model", help="Name of the model at URL. [default: the only one]")
@click.option("--clients", default=64, show_default=True, type=click.IntRange(1, 4096), help="Connections.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Of measuring.")
@click.option("--rate", type=click.FloatRange(0.01), help="Open loop: requests a second. [default: closed loop]")
@click.option("--rows", default=1, show_default=True, type=click.IntRange(1), help="Rows of one request.")
@click.option("--json-tensors", is_flag=True, help="Send tensors as JSON, not binary.")
@click.option("--raw", type=click.Path(path_type=Path), metavar="MODEL.onnx", help="Compare with onnxruntime on it.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Sent with each request to URL.")
@click.option("--pin", is_flag=True, help="Keep the server (of MODEL.onnx) on one core and the callers off it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_serve(
    target: str,
    model: str | None,
    clients: int,
    seconds: float,
    rate: float | None,
    rows: int,
    json_tensors: bool,
    raw: Path | None,
    headers: tuple[str, ...],
    pin: bool,
    as_json: bool,
) -> None:
    """Put load on a server at URL, or on one started for MODEL.onnx, and show what came back.

    Closed loop: every client sends its next request when it has its answer. Open loop (--rate): requests fall due at
    even steps whatever the server does, and latency counts from when one was due.

    \b
    Examples: calibrant bench-serve model.onnx --pin
              calibrant bench-serve http://127.0.0.1:8000 --rate 200 --seconds 30
              calibrant bench-serve http://other:8000 --model m --header 'Authorization: Bearer TOKEN'
    """
    from calibrant.errors import ConfigError
    from calibrant.serve.callers.generator import Load, request_bytes, run
    from calibrant.serve.processes.background import running

    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if pin and (target.startswith("http") or len(cores) < 2):
        raise ConfigError("needs a MODEL.onnx to serve and two cores", where="--pin")
    extra = dict(_header(text) for text in headers)
    load = Load(clients=clients, seconds=seconds, rate=rate, rows=rows, binary=not json_tensors)
    report: dict[str, Any] = {"target": target, "clients": clients, "rate": rate, "rows": rows, "binary": load.binary}
    with ExitStack() as stack:
        url = target
        if not target.startswith("http"):
            raw = raw or Path(target)
            if pin:
                os.sched_setaffinity(0, cores[:1])
            report["raw_rows_per_second"] = _raw(raw, rows, threads=1 if pin else None)
            arguments = ["--quiet", *(["--threads", "1"] if pin else [])]
            url = stack.enter_context(running(target, arguments=arguments)).url
            if pin:
                os.sched_setaffinity(0, cores[1:])
        elif raw is not None:
            report["raw_rows_per_second"] = _raw(raw, rows, threads=None)
        name, inputs = _describe(url, model, extra)
        request = request_bytes(url, name, inputs, rows=rows, binary=load.binary, headers=extra)
        report["model"], report["request_bytes"] = name, len(request)
        outcome = asyncio.run(run(url, request, load))
    report.update(outcome.to_dict())
    if report.get("raw_rows_per_second"):
        report["share_of_raw"] = outcome.rate * rows / report["raw_rows_per_second"]
    click.echo(json.dumps(report, indent=2) if as_json else _text(report))
    if outcome.failed or not outcome.ok:
        sys.exit(1)


def _raw(path: Path, rows: int, *, threads: int | None) -> float:
    """Rows a second of onnxruntime alone at its best batch size, best of several rounds."""
    from calibrant.serve.engine.session import Session

    session = Session(path, threads=threads)
    best = 0.0
    for size in sorted({rows, 1, 8, 32}) if session.batched else [session.fixed_rows or 1]:
        feeds = session.blank(size)
        if feeds is None:
            continue
        session.run(feeds)
        for _ in range(4):
            start, n = time.perf_counter(), 0
            while time.perf_counter() - start < 0.15 or n == 0:
                session.run(feeds)
                n += size
            best = max(best, n / (time.perf_counter() - start))
    return best


def _header(text: str) -> tuple[str, str]:
    from calibrant.errors import ConfigError

    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n"):
        raise ConfigError(f'"{text[:60]}" is not NAME: VALUE', where="--header")
    return name.strip(), value.strip()


def _describe(url: str, model: str | None, headers: dict[str, str]) -> tuple[str, list[dict[str, Any]]]:
    from calibrant.errors import DataError

    def get(path: str, data: bytes | None = None) -> Any:
        asked = urllib.request.Request(url.rstrip("/") + path, data, headers)
        try:
            with urllib.request.urlopen(asked, timeout=10) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            fix = {401: "give --header 'Authorization: Bearer TOKEN'"}.get(error.code)
            if fix is None and data is not None:
                fix = "not every server lists its models: name one with --model"
            raise DataError(f"{path} answers {error.code}", where=url, fix=fix) from None
        except (OSError, ValueError) as error:
            raise DataError(f"no server answers ({getattr(error, 'reason', error)})", where=url) from None

    if model is None:
        names = sorted({row["name"] for row in get("/v2/repository/index", b"")})
        if len(names) != 1:
            raise DataError(f"there are {len(names)} models", where=url, fix=f"choose with --model: {', '.join(names)}")
        model = names[0]
    inputs: list[dict[str, Any]] = get(f"/v2/models/{quote(model)}")["inputs"]
    return str(model), inputs


def _text(report: dict[str, Any]) -> str:
    from calibrant.progress import table

    loop = "closed loop" if report["rate"] is None else f"{report['rate']:g} requests/s"
    rows: list[tuple[str, str]] = [
        ("load", f"{report['clients']} clients, {loop}, {report['rows']} row(s), {report['request_bytes']:,} bytes"),
        ("answered", f"{report['ok']} in {report['seconds']:g} s = {report['requests_per_second']:.1f}/s"),
        ("failed, unanswered", f"{report['failed']}, {report['unanswered']}"),
    ]
    for key in ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms"):
        if report[key] is not None:
            rows.append((key.removesuffix("_ms"), f"{report[key]:.2f} ms"))
    if "share_of_raw" in report:
        raw = report["raw_rows_per_second"]
        rows.append(
            ("onnxruntime alone", f"{raw:.1f} rows/s; the server gives {100 * report['share_of_raw']:.0f} % of it")
        )
    lines = [table((f"{report['model']}", ""), rows, left=2)]
    lines += [f"{count} x {what}" for what, count in report["errors"].items()]
    return "\n".join(lines)
