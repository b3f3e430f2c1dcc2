"""Whose share a caller takes of, and how much there is."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from calibrant.serve.limits import THIS_MACHINE, Limits
from calibrant.serve.protocol.errors import Overloaded
from calibrant.serve.room import Room

LIMITS = Limits(max_connections=5, peer_connections=3, max_buffered=1000, peer_share=0.25)


def _room(*trusted: str) -> Room:
    return Room(LIMITS, [ip_network(text) for text in trusted])


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("127.0.0.1", ""), ("::1", ""),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"), ("fe80::1%eth0", "fe80::/64"), ("10.1.2.3", ""), ("", ""),
    ],
)  # fmt: skip
def test_an_address_has_a_share_and_of_ipv6_its_network(address: str, whose: str) -> None:
    assert _room(*THIS_MACHINE, "10.0.0.0/8").whose(address) == whose


def test_an_address_has_at_most_its_connections_and_all_have_at_most_theirs() -> None:
    room = _room()
    for _ in range(3):
        room.enter("a")
    with pytest.raises(Overloaded, match="your address has 3"):
        room.enter("a")
    room.leave("a")  # the refused one
    room.enter("b")
    room.enter("")
    with pytest.raises(Overloaded, match="too many connections"):
        room.enter("")
    room.leave("")
    room.leave("a")
    room.enter("a")


def test_an_address_has_a_quarter_of_the_bytes_and_all_have_the_whole() -> None:
    room = _room()
    for whose in ("a", "b", ""):
        room.enter(whose)
    room.take("a", 250)
    with pytest.raises(Overloaded, match="from your address"):
        room.take("a", 1)
    room.take("b", 250)
    room.take("", 500)  # many callers behind it
    with pytest.raises(Overloaded, match="too many large requests at once"):
        room.take("", 1)
    room.give_back("a", 100)
    room.take("a", 100)
    assert room.buffered == 1000


def test_an_address_that_has_left_is_forgotten() -> None:
    room = _room()
    room.enter("a")
    room.take("a", 10)
    room.give_back("a", 10)
    room.leave("a")
    assert (room.buffered, room.connections, room._of) == (0, 0, {})
