"""A disk that takes its time, so that a kill in the middle of a write needs no luck. Python imports this first."""

from __future__ import annotations

import os
import time

LONGER_S = 0.05
_fsync = os.fsync


def _slow_fsync(file: int) -> None:
    time.sleep(LONGER_S)
    _fsync(file)


os.fsync = _slow_fsync
