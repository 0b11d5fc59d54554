"""For all tests: signals as a terminal would give them, though the tests may run under nohup or in the background; and
the frameworks that `make test` put into the tests' own environments."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("DEEPSTONE_ENVIRONMENTS", str(Path(sys.prefix, "environments")))
