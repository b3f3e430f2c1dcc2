"""Certificates: the server's own, and those that callers must show."""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.errors import ConfigError

log = logging.getLogger(__name__)

_SOON = 14  # days
_NOT_YET, _EXPIRED = 9, 10  # <openssl/x509_vfy.h>


def certificate(chain: Path, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext:
    """What HTTPS is served with. `client_ca`: callers show a certificate that one of these has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(chain, key, password=lambda: "")  # else OpenSSL asks at the terminal
    except (OSError, ssl.SSLError) as error:
        needed = "its key has to be there too, or given as --tls-key" if key is None else "the key has to be its own"
        fix = f"{needed}, without a password"
        raise ConfigError(f"the certificate cannot be used ({error})", where=chain, fix=fix) from None
    if (age := validity(context, chain)).wrong:
        log.warning("%s: the certificate %s", chain, age.said)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"holds no certificates to judge callers by ({error})", where=client_ca) from None
        context.verify_mode = ssl.CERT_REQUIRED
        # A session that is taken up again shows no certificate: one that is no longer good would go on.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


@dataclass(frozen=True)
class Validity:
    """`wrong`: callers refuse it, or soon will."""

    said: str
    wrong: bool


def validity(context: ssl.SSLContext, chain: Path) -> Validity:
    """Until when a certificate holds, by a handshake in memory with a caller who trusts just this one: Python tells
    the dates of a certificate to nobody else."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    asked, answered, shown = ssl.MemoryBIO(), ssl.MemoryBIO(), None
    try:  # what cannot be told this way must not keep a server from starting
        caller.load_verify_locations(chain)
        client, server = caller.wrap_bio(answered, asked), context.wrap_bio(asked, answered, server_side=True)
        for side in (client, server, client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            shown = shown or (client.getpeercert() if client.version() else None)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (_EXPIRED, _NOT_YET):
            return Validity("has EXPIRED" if error.verify_code == _EXPIRED else "is NOT VALID YET", True)
    except OSError:
        pass
    if not shown:
        return Validity("does not tell how long it holds", False)
    days = (ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()) / 86400
    return Validity(f"holds for {days:.0f} days", False) if days > _SOON else Validity(f"ENDS in {days:.1f} days", True)


class Renewable:
    """A context that every handshake takes anew, so that certificates and who is trusted can change while it serves."""

    def __init__(self, first: ssl.SSLContext, protocols: Sequence[str] = ()) -> None:
        """`protocols`: of ALPN."""
        self.begun = 0  # handshakes
        self._protocols = list(protocols)
        self._now = self._prepared(first)
        self.context = self._prepared(first)
        self.context.sni_callback = self._take

    def renew(self, context: ssl.SSLContext) -> None:
        self._now = self._prepared(context)
        # A handshake begins with these of the context that it was opened with, and goes on with the rest of the other.
        self.context.verify_mode, self.context.options = context.verify_mode, context.options
        self.context.num_tickets = context.num_tickets

    def _prepared(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context

    def _take(self, connection: ssl.SSLObject, name: str | None, old: ssl.SSLContext) -> None:
        self.begun += 1
        connection.context = self._now
