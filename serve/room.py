"""Room for connections and bodies: how much there is in all, and how much of it one address may have.

Bodies are charged as their bytes arrive and not as they are announced, since what was announced costs nothing yet: a
caller that claims much and sends little takes nothing from the others. Large ones are received at a pace.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence

from calibrant.serve.limits import Limits
from calibrant.serve.protocol.errors import Overloaded

BREATH, BESIDE_OTHERS = 1e-3, 0.05  # seconds: between two steps of a large body; since somebody's last request

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Room:
    """`trusted`: networks whose addresses stand for many callers, such as a proxy's; no share is theirs."""

    def __init__(self, limits: Limits, trusted: Sequence[_Network]) -> None:
        self.renew(limits, trusted)
        self.buffered = 0  # bytes of bodies that are being received or worked on
        self.connections = 0
        self.asked = 0.0  # when the last request was whole that had no large body
        self._of: dict[str, list[int]] = {}  # connections and bytes, by address

    def renew(self, limits: Limits, trusted: Sequence[_Network]) -> None:
        self.limits, self._trusted = limits, trusted
        self._most, self._share = limits.max_buffered, limits.peer_share * limits.max_buffered

    def whose(self, address: str) -> str:
        """Who has the share: the address, of IPv6 its /64, which one caller has as a whole. "" has none."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:  # a socket of the file system
            return ""
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if any(found.version == network.version and found in network for network in self._trusted):
            return ""
        if found.version == 4:
            return str(found)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))

    def enter(self, whose: str) -> None:
        """Counts a connection in any case; refuses one too many."""
        self.connections += 1
        own = self._of.setdefault(whose, [0, 0]) if whose else [0, 0]
        own[0] += 1
        if self.connections > self.limits.max_connections:
            raise Overloaded("too many connections; try again in a moment", retry_after=1)
        if own[0] > self.limits.peer_connections:
            most = self.limits.peer_connections
            raise Overloaded(f"your address has {most} connections, which is all that one may have", retry_after=1)

    def leave(self, whose: str) -> None:
        self.connections -= 1
        if whose:
            own = self._of[whose]
            own[0] -= 1
            if not own[0]:
                del self._of[whose]

    def pause(self) -> float:
        """Seconds between two steps of a large body. At full speed it would take a core from the others, where there
        are any."""
        return BREATH if time.monotonic() - self.asked < BESIDE_OTHERS else 0.0

    def take(self, whose: str, size: int) -> None:
        """Bytes of a body that have come."""
        if self.buffered + size > self._most:
            raise Overloaded("too many large requests at once; try again in a moment", retry_after=1)
        if whose:
            own = self._of[whose]
            if own[1] + size > self._share:
                raise Overloaded("too many large requests from your address at once; try again soon", retry_after=1)
            own[1] += size
        self.buffered += size

    def give_back(self, whose: str, size: int) -> None:
        self.buffered -= size
        if whose:
            self._of[whose][1] -= size
