"""A port for a server that opens later in this process, kept from all others until then.

A socket that is bound and does not listen keeps the port: the system gives it to nobody else. A server that allows
addresses to be reused, as gRPC's do, may still open it. So no port is taken between the moment in which its number is
told to the other processes and the one in which the server opens.
"""

from __future__ import annotations

import os
import socket
from typing import Final

# gRPC asks these for a way to other hosts. What processes of one job exchange must go straight.
_PROXIES: Final = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


class ReservedPort:
    """A free port of one address. Close it once the server has opened."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()


def go_straight() -> None:
    """Have this process reach its peers without a proxy."""
    for name in [name for name in os.environ if name.lower() in _PROXIES]:
        del os.environ[name]
