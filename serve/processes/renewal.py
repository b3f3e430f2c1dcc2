"""SIGHUP: certificates, tokens and the configuration file are read again, and what can change while serving does."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from calibrant.errors import ConfigError

if TYPE_CHECKING:
    from calibrant.serve.processes.server import Server

log = logging.getLogger(__name__)

# Fields of ServeConfig that hold from then on; limits on rows for models that are loaded from then on.
LIVE = (
    "token", "token_file", "tls_cert", "tls_key", "tls_client_ca", "allowed_hosts", "trusted_proxies", "limits",
    "canary_auto", "canary_rules", "reload_seconds", "grace_seconds", "accept_changes", "admin",
)  # fmt: skip


def renew(server: Server) -> None:
    """Raises before anything is changed where something cannot be read, or makes no sense."""
    old, new = server.config, server.told_now()
    if (old.tls_cert is None) != (new.tls_cert is None):
        raise ConfigError("HTTPS cannot begin or end while it serves", where="--tls-cert", fix="start it again")
    if server.control.canaries is None and new.canaries:
        new = dataclasses.replace(new, canary_auto=False)
    config = dataclasses.replace(old, **{name: getattr(new, name) for name in LIVE})  # refuses misfits
    tokens = new.tokens()
    contexts = [context for _ in server.tls if (context := new.tls()) is not None]
    for held, context in zip(server.tls, contexts, strict=True):
        held.renew(context)
    server.access.tokens, server.access.hosts = tokens, new.allowed_hosts
    server.inference.limits = new.limits
    server.connections.renew(new.limits, new.trusted_proxies)
    if server.grpc is not None:
        server.grpc.limits = new.limits
    server.control.admin = new.admin
    if server.control.canaries is not None:
        server.control.canaries.rules = new.canary_rules if new.canary_auto else None
    server.config = config
    changed = [f.name for f in dataclasses.fields(old) if getattr(old, f.name) != getattr(new, f.name)]
    now, later = [n for n in changed if n in LIVE], [n for n in changed if n not in LIVE]
    log.info("SIGHUP: certificates and tokens were read again%s", f"; changed: {', '.join(now)}" if now else "")
    if later:
        log.warning("SIGHUP: these change at the next start only: %s", ", ".join(later))
