"""Where the store is when nobody names another folder."""

from __future__ import annotations

import os
from pathlib import Path


def default_folder() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "deepstone"
