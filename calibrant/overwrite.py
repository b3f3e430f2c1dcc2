"""One rule of all commands: what took work to make is replaced only with --overwrite.

CALIBRANT_OVERWRITE=1 in the environment says it for all of them, for scripts that are run again and again.
"""

from __future__ import annotations

from pathlib import Path

import click

from calibrant.errors import ConfigError
from calibrant.remote.storage import is_address, reached

OVERWRITE = click.option(
    "--overwrite", is_flag=True, envvar="CALIBRANT_OVERWRITE", help="Replace what is in --out already."
)


def refuse_to_replace(out: Path | str | None, *, overwrite: bool, marker: str | None = None) -> None:
    """`marker`: the file by which a folder is known to hold a result; without it `out` is a file, or its address."""
    if not overwrite and out is not None and _there(out, marker):
        raise ConfigError(
            "is there already" if marker is None else "holds a result already",
            where=out,
            fix="pass --overwrite, or another --out",
        )


def _there(out: Path | str, marker: str | None) -> bool:
    if is_address(out):
        return reached(str(out))
    return (Path(out) if marker is None else Path(out) / marker).exists()
