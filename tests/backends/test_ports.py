"""A reserved port: nobody else gets it, and a server of this process may open it."""

from __future__ import annotations

import os
import socket

import pytest

from deepstone.backends.ports import ReservedPort, go_straight


def test_a_server_may_open_it_and_others_do_not_get_it():
    reserved = ReservedPort("127.0.0.1")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", reserved.number))
    with socket.create_server(("127.0.0.1", reserved.number)) as server:  # which reuses addresses, as gRPC does
        reserved.close()
        with socket.create_connection(("127.0.0.1", reserved.number)):
            connection, (host, _) = server.accept()
            connection.close()
            assert host == "127.0.0.1"


def test_peers_are_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTPS_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    go_straight()
    assert [name for name in ("http_proxy", "HTTPS_PROXY", "no_proxy") if name in os.environ] == ["no_proxy"]
