"""Runs are made up by the same hand as for the tests of analysis."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "analysis"))
