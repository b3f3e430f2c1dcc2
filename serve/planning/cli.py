"""`calibrant plan`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.serve.planning.plan import Demand, Fleet


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.onnx")
@click.option("--rate", required=True, type=click.FloatRange(0, min_open=True), help="Requests a second, in the mean.")
@click.option("--p99", required=True, metavar="TIME", help="99 of 100 answers come within it: 50ms, 0.2s.")
@click.option("--peak", default=2.0, show_default=True, type=click.FloatRange(1), help="Busiest hour / mean.")
@click.option("--cores", default=8, show_default=True, type=click.IntRange(1), help="Of a machine; a worker on each.")
@click.option("--spare", default=1, show_default=True, type=click.IntRange(0), help="Machines that may fail then.")
@click.option("--price", default=0.0, type=click.FloatRange(0), help="Of a machine an hour, in any currency.")
@click.option(
    "--front-us", type=click.FloatRange(0), help="Microseconds of a request beside its run. [default: measured, Linux]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    model: Path,
    rate: float,
    p99: str,
    peak: float,
    cores: int,
    spare: int,
    price: float,
    front_us: float | None,
    as_json: bool,
) -> None:
    """How many machines like this one a rate of requests takes, and what they cost.

    Measures the batch curve of the file on one core and what a request costs the server, and simulates its queue.
    Requests are of one row and come at random.

    \b
    Example: calibrant plan model.onnx --rate 11574 --p99 50ms --cores 16 --price 0.60
    """
    from calibrant.serve.planning.measure import measured_curve, measured_front
    from calibrant.serve.planning.plan import plan as make
    from calibrant.serve.planning.simulator import Besides, Worker

    demand = Demand(rate, seconds(p99), peak, cores, spare, price)
    click.echo(f"measuring on one core: about {3 if front_us is not None else 15} s", err=True)
    session, curve = measured_curve(model)
    front = Besides(front_us / 1e6) if front_us is not None else measured_front(session, curve)
    found = make(Worker.of(curve, front), demand)
    if as_json:
        measured = {
            "curve": [[p.rows, p.seconds] for p in curve.points],
            "cap": curve.cap,
            "front_us": 1e6 * front.request,
            "wake_us": 1e6 * front.wake,
        }
        click.echo(json.dumps({"measured": measured, **found.to_dict()}, indent=2))
        return
    beside = f"{1e6 * front.request:.0f} us a request beside its run, {1e6 * front.wake:.0f} us to wake"
    click.echo(f"measured: {curve.said()}; cap {curve.cap}; {beside}")
    click.echo(_text(found, demand))


def seconds(text: str) -> float:
    """Of "50ms", "0.2s" or "0.2"."""
    from calibrant.errors import ConfigError

    number, scale = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        value = float(number) * scale
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise ConfigError(f'"{text}" is no time like 50ms or 0.2s', where="--p99")
    return value


def _text(found: Fleet, demand: Demand) -> str:
    from calibrant.progress import table

    rows = [
        ("one worker can", f"{found.capacity:,.0f} requests/s, and {found.worker_rate:,.0f} within {demand.p99:g} s"),
        ("at the peak", f"{demand.rate * demand.peak:,.0f} requests/s"),
        (
            "workers, machines",
            f"{found.workers:,}, {found.machines:,} of {demand.cores} cores, {demand.spare} spare",
        ),
        ("each worker's load", f"{100 * found.load:.0f} %, {found.rows:.1f} rows a run"),
        ("p50, p95, p99", f"{found.p50_ms:.1f}, {found.p95_ms:.1f}, {found.p99_ms:.1f} ms"),
    ]
    if demand.price:
        rows.append(("cost", f"{found.cost_day:,.2f} a day, {found.cost_million:.3g} for a million answers"))
    return table(("plan", ""), rows, left=2)
