"""`calibrant compact-log`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command("compact-log")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def compact_log(log: Path, as_json: bool) -> None:
    """Turn the closed parts of a feedback log into Parquet, which takes about half the room.

    A server may be writing the log: the part that it appends to stays as it is, labels for answers that are in a table
    by now find them, and all that read the log read both. Whenever this is stopped, nothing is lost or there twice. For
    a timer or cron.

    \b
    Example: calibrant compact-log log/
    """
    from calibrant.artifacts.feedback_compaction import compact

    found = compact(log)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    if found.segments:
        share = found.bytes_after / max(1, found.bytes_before)
        click.echo(
            f"{found.segments} part(s) to Parquet: {found.bytes_before / 2**20:.1f} MiB are now "
            f"{found.bytes_after / 2**20:.1f} ({100 * share:.0f} %)"
        )
    else:
        click.echo("Nothing to do: no closed part is left as lines")
    if found.still_open:
        click.echo(f"{found.still_open} part(s) may still be written to, or lie where files cannot be locked")
    if found.kept:
        click.echo(f"{found.kept} part(s) stay as they are: what is in them fits into no table")
