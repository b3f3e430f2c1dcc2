"""What `calibrant serve` is told, resolved once."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from calibrant.calibration.monitoring.canary_rules import CanaryRules
from calibrant.errors import ConfigError
from calibrant.remote.storage import is_address
from calibrant.serve.access import Token, read_tokens
from calibrant.serve.limits import THIS_MACHINE, Limits
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.tls import certificate

_SPEC = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(@(?P<version>[A-Za-z0-9._-]+))?=(?P<path>.+)")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_SHARE = re.compile(r"(?P<name>[^@=]+)@(?P<version>[^@=]+)=(?P<share>[0-9.]+)")


@dataclass(frozen=True)
class ModelSpec:
    """A file to serve, and under what name and version."""

    path: Path
    name: str | None = None
    version: str = "1"

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """PATH, NAME=PATH or NAME@VERSION=PATH; a path that exists is taken as one even with = in it."""
        match = None if Path(text).exists() else _SPEC.fullmatch(text)
        if match is None:
            return cls(Path(text))
        return cls(Path(match["path"]), match["name"], match["version"] or "1")


@dataclass(frozen=True)
class Share:
    """NAME@VERSION=0.1: a tenth of the requests that name no version."""

    name: str
    version: str
    share: float

    @classmethod
    def parse(cls, text: str, option: str) -> Share:
        match = _SHARE.fullmatch(text)
        try:
            share = float(match["share"]) if match else -1.0
        except ValueError:
            share = -1.0
        if match is None or not 0 < share <= 1:
            raise ConfigError(f'"{text}" is not NAME@VERSION=SHARE with a share above 0 and up to 1', where=option)
        return cls(match["name"], match["version"], share)


@dataclass(frozen=True)
class ServeConfig:
    models: Sequence[ModelSpec] = ()
    folders: tuple[Path, ...] = ()  # in which models lie
    remote: tuple[str, ...] = ()  # folders of object storage
    model_control: Literal["poll", "explicit"] = "poll"  # of the folders: all that comes, or what is asked for
    load: tuple[str, ...] = ()  # at the start, where that is explicit
    model_memory: int | None = None  # MiB of the files that are loaded from folders at once
    accept_changes: bool = False  # of inputs and classes, when a file takes the place of another
    host: str = "127.0.0.1"
    port: int = 8000  # 0 is a free one
    grpc_port: int | None = None  # None is off, 0 a free one
    providers: tuple[str, ...] | None = None
    threads: int | None = None
    batch_cap: int | None = None  # None is measured
    huge_pages: bool = True  # ask Linux for them
    ready_file: Path | None = None
    token: str | None = None
    token_file: Path | None = None  # read again at SIGHUP
    admin: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # callers show a certificate that one of these has signed
    allowed_hosts: tuple[str, ...] = ()  # names that callers may call it by; any where there is none
    access_log: bool = False
    trace_share: float = 0.0  # of the requests, of which OpenTelemetry traces are sent
    reload_seconds: float = 2.0  # between looks at the files; 0 is never
    grace_seconds: float = 0.0  # between not ready and no new connections, for a load balancer to notice
    monitor: bool = False
    feedback_log: Path | None = None  # implies monitor
    log_to: str | None = None  # object storage, where its closed parts go
    baseline: Path | None = None  # labelled predictions: what calibration counts as normal
    canaries: tuple[Share, ...] = ()
    canary_auto: bool = False  # promoted or rolled back by `canary_rules`
    canary_rules: CanaryRules = field(default_factory=CanaryRules)
    shadows: tuple[Share, ...] = ()
    trusted_proxies: tuple[str, ...] = THIS_MACHINE  # networks whose addresses stand for many callers
    limits: Limits = field(default_factory=Limits)
    watch: MonitorConfig = field(default_factory=MonitorConfig)

    def __post_init__(self) -> None:
        """Refuses what would be accepted and do nothing, or not what it seems to."""
        for option, given in (
            ("--model-control", self.model_control != "poll"),
            ("--model-memory", self.model_memory is not None),
        ):
            if given and not (self.folders or self.remote):
                raise ConfigError("is about a folder of models, and none is given", where=option)
        if self.load and self.model_control != "explicit":
            raise ConfigError("all models are loaded unless --model-control is explicit", where="--load")
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigError("needs the certificate that it belongs to", where="--tls-key", fix="give --tls-cert too")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("needs a certificate of its own", where="--tls-client-ca", fix="give --tls-cert too")
        object.__setattr__(self, "allowed_hosts", tuple(text.lower().removesuffix(".") for text in self.allowed_hosts))
        for text in self.allowed_hosts:
            if not _HOST.fullmatch(text):
                raise ConfigError(
                    f'"{text}" is no name such as birds.example.org',
                    where="--allowed-host",
                    fix="give names or addresses without a port, of IPv6 as [::1]; *.example.org is all below it",
                )
        if self.canary_auto and not self.canaries:
            raise ConfigError("decides nothing without --canary", where="--canary-auto")
        if self.canary_auto and self.canary_rules.labels and not (self.monitor or self.feedback_log):
            raise ConfigError(
                "goes by labels, which need --monitor or --feedback-log",
                where="--canary-auto",
                fix="or say labels = 0 in [canary_rules] of the --config file",
            )
        if self.token == "":
            raise ConfigError("is empty, which would guard nothing", where="--token")
        if self.token is not None and not all("!" <= c <= "~" for c in self.token):
            raise ConfigError("may hold printable ASCII without spaces only, as headers do", where="--token")
        if self.token is not None and self.token_file is not None:
            raise ConfigError("and --token are two ways to say it; give one", where="--token-file")
        if self.port and self.grpc_port == self.port:
            raise ConfigError(f"is the port of HTTP, {self.port}", where="--grpc-port", fix="choose another")
        for text in self.trusted_proxies:
            try:
                ip_network(text)
            except ValueError as error:
                raise ConfigError(f"no address or network ({error})", where="--trusted-proxy") from None
        if self.watch.sample != 1.0 and not (self.monitor or self.feedback_log):
            raise ConfigError("samples nothing without --monitor or --feedback-log", where="--sample")
        if self.watch.features and not (self.monitor or self.feedback_log):
            raise ConfigError("watches nothing without --monitor or --feedback-log", where="--feature-drift")
        if self.baseline is not None and not (self.monitor or self.feedback_log):
            raise ConfigError("is a baseline of nothing without --monitor or --feedback-log", where="--baseline")
        for option, given in (
            ("--keep-days", self.watch.keep_days is not None),
            ("--log-float16", self.watch.half),
            ("--log-top", self.watch.top is not None),
            ("--log-to", self.log_to is not None),
            ("--segment-hours", self.watch.segment_hours is not None),
        ):
            if given and self.feedback_log is None:
                raise ConfigError("keeps nothing without --feedback-log", where=option)
        if self.log_to is not None and not is_address(self.log_to):
            raise ConfigError(f'"{self.log_to}" is no address such as s3://bucket/log', where="--log-to")

    def tls(self) -> ssl.SSLContext | None:
        """What HTTPS is served with."""
        return None if self.tls_cert is None else certificate(self.tls_cert, self.tls_key, self.tls_client_ca)

    def tokens(self) -> tuple[Token, ...]:
        """That callers have to show one of."""
        if self.token_file is not None:
            return read_tokens(self.token_file)
        return () if self.token is None else (Token.of_all_rights(self.token),)
