"""/proc/cpuinfo, as far as it is the same for all cores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cpuinfo(root: Path = Path("/")) -> dict[str, str]:
    """The first core's entries."""
    first, _, _ = (root / "proc/cpuinfo").read_text().partition("\n\n")
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def cpu_flags(info: Mapping[str, str]) -> frozenset[str]:
    return frozenset(info.get("flags", info.get("Features", "")).split())
