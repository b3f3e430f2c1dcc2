"""`calibrant dashboard`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from calibrant.errors import ConfigError, DataError, MissingExtra


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 is any free one.  [default: 8501, or any free one]"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--allow-host", multiple=True, help="A further name under which the page may be asked for; repeatable.")
@click.option(
    "--images",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Images that may be shown, in any layout; repeatable.",
)
@click.option("--browser/--no-browser", default=None, help="Open the page.  [default: on a terminal]")
def dashboard(
    runs: Path, port: int | None, host: str, allow_host: tuple[str, ...], images: tuple[Path, ...], browser: bool | None
) -> None:
    """Open the reliability dashboard on the folder RUNS.

    Reads only what lies below RUNS (and below each --images folder) and is reachable from this machine only, unless
    --host says otherwise: there is no log-in, so put it behind something that has one.

    \b
    Examples:
      calibrant dashboard calibrant-demo
      calibrant dashboard runs --images data/leaves --port 8600
    """
    for folder, what in [(runs, "RUNS"), *((f, "--images") for f in images)]:
        if not (folder.is_dir() or (what == "--images" and folder.is_file())):
            kind = "is not a folder" if folder.exists() else "no such folder"
            raise DataError(f"{what} {kind}", where=folder, fix="make runs with calibrant train or calibrant demo")
    try:
        import altair  # noqa: F401
        import streamlit  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("calibrant dashboard", "dashboard", error.name or "streamlit") from None
    from calibrant.dashboard import server
    from calibrant.dashboard.settings import Settings, find_demo

    hosts = [*server.LOOPBACK, *allow_host]
    if host not in server.LOOPBACK:
        if host in ("0.0.0.0", "::") and not allow_host:  # noqa: S104
            raise ConfigError(
                f"--host {host} needs --allow-host with the name or address under which people will open it",
                fix="for example --allow-host lab-7.example.org",
            )
        hosts += [] if host in ("0.0.0.0", "::") else [host]  # noqa: S104
        click.echo("Warning: anyone who can reach this address can read these runs; there is no log-in.", err=True)
    root = runs.resolve()
    settings = Settings(root, tuple(folder.resolve() for folder in images), find_demo(Path.cwd(), root))
    chosen = server.choose_port(host, port)
    url = server.address(host, chosen)
    opens = browser if browser is not None else sys.stdout.isatty()

    def ready() -> None:
        click.echo(f"Dashboard of {runs}: {url}  (Ctrl-C stops it)")
        if opens:
            server.open_browser(url)

    server.run(settings, host=host, port=chosen, allowed_hosts=hosts, when_ready=ready)
