from __future__ import annotations

from pathlib import Path

import pytest
from kitchen import Kitchen


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kitchen:
    """Recipes and environments of this test alone."""
    kitchen = Kitchen(folder=tmp_path)
    kitchen.recipes.mkdir()
    for name, value in kitchen.variables.items():
        monkeypatch.setenv(name, value)
    return kitchen
