"""What a framework's profiler saw, whoever read its file: events on lines (threads, streams) of host and device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DEVICE_PLANE = "/device:GPU"
_STREAM = re.compile(r"Stream\b")  # the other lines of a device's plane are drawn from these
_COPY = re.compile(r"Mem(cpy|set)|memcpy|memset")


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """One event of a profile. Its clock is the profile's own."""

    plane: str
    line: str
    name: str
    start_s: float
    end_s: float
    stats: Mapping[str, Any]

    @property
    def on_device(self) -> bool:
        return self.plane.startswith(_DEVICE_PLANE) and _STREAM.match(self.line) is not None

    @property
    def is_copy(self) -> bool:
        return _COPY.search(self.name) is not None
