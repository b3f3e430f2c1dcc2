"""Who may ask, and the line that says who did."""

from __future__ import annotations

import hmac
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from calibrant.errors import ConfigError, did_you_mean
from calibrant.serve.protocol.errors import Forbidden, Misdirected, Unauthorized

log = logging.getLogger(__name__)


RIGHTS = ("infer", "feedback", "admin")


@dataclass(frozen=True)
class Token:
    name: str
    rights: frozenset[str]
    secret: str

    @classmethod
    def of_all_rights(cls, secret: str) -> Token:
        return cls("token", frozenset(RIGHTS), secret)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Lines `NAME RIGHTS TOKEN`, the rights with commas between them; a line of a token alone has all of them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read ({error})", where=path) from None
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(words) not in (1, 3):
            raise ConfigError("is neither NAME RIGHTS TOKEN nor a token", where=where)
        name, rights = ("token", RIGHTS) if len(words) == 1 else (words[0], tuple(words[1].split(",")))
        for right in rights:
            if right not in RIGHTS:
                raise ConfigError(f'no right "{right}"', where=where, fix=did_you_mean(right, RIGHTS))
        if not all("!" <= c <= "~" for c in words[-1]):
            raise ConfigError("a token may hold printable ASCII only, as headers do", where=where)
        if words[-1] in (token.secret for token in tokens):
            raise ConfigError("holds the token of a line before again, so nobody could tell the two apart", where=where)
        tokens.append(Token(name, frozenset(rights), words[-1]))
    if not tokens:
        raise ConfigError("holds no token, which would guard nothing", where=path)
    return tuple(tokens)


class Access:
    """`tokens` that callers have to show one of, if there are any; `hosts`, the names that they may call this server
    by, if there are any; `logged`: a JSON line for every request."""

    def __init__(self, tokens: Sequence[Token] = (), *, hosts: Sequence[str] = (), logged: bool = False) -> None:
        self.tokens, self.hosts, self.logged = tuple(tokens), tuple(hosts), logged

    def check_host(self, given: bytes, *, or_address: bool = False) -> None:
        """`given`: the name of this server as the caller has it, with the port or without. A web page that has its own
        name point here (DNS rebinding) reaches nothing. `or_address`: nor does it where any address will do, as who
        calls a machine of many by its own has no other name for it."""
        name = given.decode("latin-1").lower()
        name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0].removesuffix(".")
        if or_address and _is_address(name):
            return
        if not any(name == host or (host[:2] == "*." and name.endswith(host[1:])) for host in self.hosts):
            raise Misdirected(f'this server is not called "{name[:100]}"')

    def authorise(self, authorization: bytes, *, send: str, right: str = "infer") -> str:
        """The name of the token that the caller shows. `send`: where the transport carries it."""
        if not self.tokens:
            return ""
        scheme, _, given = authorization.partition(b" ")
        known = [t for t in self.tokens if hmac.compare_digest(given.strip(), t.secret.encode())]
        if scheme.lower() != b"bearer" or not known:
            raise Unauthorized(f"a token is needed: send the {send}: Bearer TOKEN")
        if right not in known[0].rights:
            raise Forbidden(f'the token "{known[0].name}" has no right to this: it needs {right}')
        return known[0].name

    def note(self, peer: str, method: str, path: str, status: int | str, size: int, start: float, **more: str) -> None:
        """`start`: time.monotonic when the request was whole. `more`: request id, model, version."""
        if self.logged:
            took = round(1e3 * (time.monotonic() - start), 3)
            line = {
                "time": round(time.time(), 3),
                "peer": peer,
                "method": method,
                "path": path,
                "status": status,
                "bytes": size,
                "ms": took,
                **more,
            }
            log.info(json.dumps(line))


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def request_id(given: bytes) -> bytes:
    """The caller's, where it is one that headers and logs can hold; else one of ours."""
    fits = 0 < len(given) <= 128 and all(33 <= sign <= 126 for sign in given)
    return given if fits else os.urandom(8).hex().encode()
