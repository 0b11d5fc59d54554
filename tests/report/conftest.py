from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import CHROMIUM, FLAGS

PATIENCE_MS = 200_000  # on however busy a machine


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """For all pages, which keep nothing. One that stays open keeps the process that draws them, and halves the time."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed; on Debian: apt install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser's driver is missing: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS, timeout=PATIENCE_MS)
        context = launched.new_context()
        context.set_default_timeout(PATIENCE_MS)
        empty = tmp_path_factory.mktemp("browser") / "empty.html"
        empty.write_text("")
        context.new_page().goto(empty.as_uri())
        yield context
        launched.close()
