"""The Ray cluster that work is handed to: one rule for all that does."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from calibrant.errors import CalibrantError, ConfigError, MissingExtra, ModelError

log = logging.getLogger(__name__)

REACH_SECONDS = 10.0
_ANSWER_SECONDS = 3.0
_MODE = "RAY_AUTH_MODE"
LOCAL = "local"  # the address that always means a cluster of one's own
RAY_ADDRESS = click.option(  # of every command that has --engine ray
    "--ray-address",
    metavar="HOST:PORT",
    help="With --engine ray: the cluster to join, or local for one of its own.  [default: RAY_ADDRESS, or one that "
    "runs here, or one of its own]",
)


@dataclass(frozen=True)
class Cluster:
    ray: Any  # the module
    own: bool  # started for this program on this machine, and ended with it

    @property
    def nodes(self) -> list[float]:
        """CPUs of each machine that is there now."""
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return [found.get("CPU", 0.0) for found in alive]

    def resource(self, name: str) -> float:
        return float(self.ray.cluster_resources().get(name, 0.0))


@contextlib.contextmanager
def session(command: str, cores: int | None = None, address: str | None = None) -> Iterator[Cluster]:
    """The cluster that this program has joined already; else the one at `address`, else at RAY_ADDRESS; else one that
    runs on this machine; else one of this machine, with so many cores if they are given, that ends with the block.

    `command`: what needs it. An address of "local" is always one of its own.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra(command, "ray", "ray") from None
    if ray.is_initialized():
        if address is not None:
            raise ConfigError("this program has joined a cluster of Ray already", where="--ray-address")
        yield Cluster(ray, own=False)
        return
    own = _join(ray, address or os.environ.get("RAY_ADDRESS") or None, cores)
    try:
        yield Cluster(ray, own)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def joined(address: str | None, *, engine: str) -> Iterator[None]:
    """What runs within uses the cluster at an address that a command was given; without one it finds its own."""
    refuse_address(address, engine=engine)
    if address is None:
        yield
        return
    with session("--engine ray", address=address):
        yield


def refuse_address(address: str | None, *, engine: str) -> None:
    if address is not None and engine != "ray":
        raise ConfigError("is for --engine ray", where="--ray-address", fix="add --engine ray, or leave it out")


def failed(error: Exception, *, where: Any, fix: str | None = None) -> NoReturn:
    """What Ray raised as one of our errors; what we raised over there is raised here as it was."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CalibrantError):
        raise type(cause)(cause.what, where=cause.where, fix=cause.fix) from None
    raise ModelError(f"what Ray was given failed ({said(error)})", where=where, fix=fix) from None


def said(error: Exception) -> str:
    """One line of what Ray raised; what we raised over there is said as it is."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CalibrantError):
        return str(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def _join(ray: Any, address: str | None, cores: int | None) -> bool:
    """True where it is our own."""
    quiet = {"log_to_driver": False, "configure_logging": False, "include_dashboard": False}
    own = {} if cores is None else {"num_cpus": cores}  # which Ray refuses for a cluster that exists

    def start(place: str, **more: int) -> None:
        ray.init(address=place, logging_level=logging.WARNING, **quiet, **more)

    here = address is None
    if here:
        address = _running_here()
    if address is None or address == LOCAL:
        try:
            start(LOCAL, **own)
        except Exception as error:  # a plain one where its daemons take too long
            raise ModelError(
                f"Ray did not start on this machine ({said(error)})",
                where="--engine ray",
                fix="try again where less runs, or join a cluster with --ray-address",
            ) from None
        log.info("started a cluster of Ray on this machine for this command")
        return True
    try:
        _reach(address)
        if _refused(address) and not (here and _token_sent() and not _refused(address)):
            sent = os.environ.get(_MODE, "").lower() == "token"
            raise ModelError(
                "the cluster of Ray asks for a token, and " + ("takes another than ours" if sent else "none was sent"),
                where=address,
                fix=("" if sent else f"set {_MODE}=token, and ")
                + "put what ray get-auth-token prints there into ~/.ray/auth_token or RAY_AUTH_TOKEN",
            )
        start(address)
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"no cluster of Ray could be joined ({said(error)})",
            where=address,
            fix="ray status says what runs; --ray-address local starts one of its own",
        ) from None
    if here:
        log.warning("joined the cluster of Ray that runs here (%s); --ray-address local starts another", address)
    else:
        log.info("joined the cluster of Ray at %s", address)
    return False


def _running_here() -> str | None:
    """The address that Ray means by "auto". What a cluster left behind that was killed is none: Ray would try to join
    it for minutes."""
    from ray._private.services import get_ray_address_from_environment

    try:
        found: str = get_ray_address_from_environment("auto", None)
        _reach(found)
    except OSError:  # ConnectionError among them, which says that nothing runs
        return None
    return found


def _refused(address: str) -> bool:
    """Whether it wants a token that it was not sent (Ray 2.60 asks for one where the head has one, and tells a driver
    without it after 20 s that nothing was there). Another Ray, or no Ray at all, says no such thing."""
    if not _is_host_and_port(address):
        return False
    found: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            from ray.exceptions import AuthenticationError

            try:
                importlib.import_module("ray._raylet").GcsClient(address=address)  # which has no types
            except AuthenticationError:
                found.append(True)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ANSWER_SECONDS)  # where something else listens, Ray would ask for 40 s
    return bool(found)


def _token_sent() -> bool:
    """Sends this user's own token to the cluster that runs here, as ray.init("auto") does; False without one."""
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    except ImportError:
        return False
    return bool(maybe_enable_token_auth_if_token_available(warn_if_disabled=False))


def _is_host_and_port(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(colon and port.isdecimal() and "/" not in host)


def _reach(address: str) -> None:
    """OSError where nobody listens. Of what is no HOST:PORT Ray says itself what it thinks."""
    if _is_host_and_port(address):
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
