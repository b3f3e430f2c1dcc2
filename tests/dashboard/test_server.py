"""Where the dashboard listens, and the options that keep it to this machine."""

from __future__ import annotations

import socket

import pytest

from calibrant.dashboard.server import address, choose_port, options
from calibrant.errors import ConfigError


def test_a_port_that_is_taken_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}: cannot listen"):
            choose_port("127.0.0.1", port)


def test_port_zero_is_any_free_one() -> None:
    assert choose_port("127.0.0.1", 0) > 0


def test_an_address_can_be_typed_into_a_browser() -> None:
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::1", 80) == "http://[::1]:80"
    assert address("example.org", 8501) == "http://example.org:8501"


def test_what_keeps_strangers_out_is_set_whatever_a_config_file_says() -> None:
    found = options("127.0.0.1", 8501, ["localhost"])
    assert found["server_allowedHosts"] == ["localhost"]
    assert found["server_enableCORS"] is found["server_enableXsrfProtection"] is True
    assert found["server_enableStaticServing"] is found["browser_gatherUsageStats"] is False
    assert found["client_showErrorDetails"] == "type"
