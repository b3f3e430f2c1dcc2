"""Starts Streamlit on the app with every option that matters for safety set here, not by a file found somewhere."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from calibrant.dashboard import guard
from calibrant.dashboard.settings import Settings
from calibrant.dashboard.theme import streamlit_options
from calibrant.errors import ConfigError
from calibrant.serve.processes.listener import probe

LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 8501
UPLOAD_MEGABYTES = 20


def options(host: str, port: int, allowed_hosts: Sequence[str]) -> dict[str, object]:
    """As flags of `streamlit run`, with "_" for the dots; flags win over any config.toml."""
    return {
        "server_address": host,
        "server_port": port,
        # Without this list a page of another site could reach the server under a name of its own (DNS rebinding).
        "server_allowedHosts": list(allowed_hosts),
        "server_headless": True,
        "server_enableCORS": True,
        "server_enableXsrfProtection": True,
        "server_corsAllowedOrigins": [],
        "server_enableStaticServing": False,
        "server_baseUrlPath": "",
        "server_fileWatcherType": "none",
        "server_runOnSave": False,
        "server_maxUploadSize": UPLOAD_MEGABYTES,
        "server_showEmailPrompt": False,
        "browser_gatherUsageStats": False,
        "client_toolbarMode": "minimal",
        "client_showErrorDetails": "type",  # the traceback goes to the terminal
        "client_showErrorLinks": False,
        "client_showSidebarNavigation": True,
        "runner_magicEnabled": False,
        "logger_level": "warning",
        "logger_hideWelcomeMessage": True,
        **streamlit_options(),
    }


_UNGUARDED = (
    "Error: this version of Streamlit serves in a way that Calibrant cannot guard; install another, such as 1.67, with "
    "pip install 'streamlit==1.67.*'"
)


def choose_port(host: str, wanted: int | None) -> int:
    """The wanted port if it is free, a clear error if not; without a wish the usual one, or any other free one."""
    if wanted is not None:
        return probe(host, wanted)
    try:
        return probe(host, DEFAULT_PORT)
    except ConfigError:
        return probe(host, 0)


def address(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"


def run(
    settings: Settings, *, host: str, port: int, allowed_hosts: Sequence[str], when_ready: Callable[[], None]
) -> None:
    """Serves until SIGINT or SIGTERM. Calls `when_ready` once, from another thread, when pages can be asked for."""
    _give_memory_back()
    # Imported now and not by the first visitor, whose first chart comes up to a second sooner for it.
    for module in ("pandas", "altair", "pyarrow.parquet", "scipy.special", "scipy.fft", "calibrant.dashboard.pages"):
        importlib.import_module(module)
    from streamlit.web import bootstrap

    flags = options(host, port, allowed_hosts)
    script = Path(__file__).resolve().parent / "app.py"
    # Streamlit also reads .streamlit/config.toml of the working directory: let that be our own folder.
    os.chdir(script.parent)
    bootstrap.load_config_options(flag_options=flags)
    guard.stand_before_streamlit(allowed_hosts)
    threading.Thread(target=_watch, args=(address(host, port), when_ready), daemon=True).start()
    bootstrap.run(str(script), False, settings.to_arguments(), flags)
    _leave()


def _leave() -> None:
    """At once: pages that are being worked out go on in threads, and C++ in them would end the process by abort()."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _give_memory_back() -> None:
    """Lets freed arrays of a megabyte and more go back to the system, and keeps threads to two heaps.

    glibc would raise that limit to 32 MB by itself, and give each of Streamlit's threads a heap of its own.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
        library.mallopt(-8, 2)  # M_ARENA_MAX
    except (AttributeError, OSError, TypeError):  # another C library
        return


def _watch(url: str, when_ready: Callable[[], None]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        try:
            with opener.open(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status != 200:
                    continue
                if not guard.is_guarded(answer.headers.get("content-security-policy")):
                    click.echo(_UNGUARDED, err=True)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                when_ready()
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)


def open_browser(url: str) -> None:
    webbrowser.open(url)
