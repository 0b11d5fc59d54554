"""Opening a page in a real browser, and noting what it says and asks for."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS = (1400, 390)


@dataclass
class Visit:
    """A page that was opened, and what it said and asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    dialogs: list[str] = field(default_factory=list[str])

    def assert_quiet(self) -> None:
        assert self.complaints == []
        assert self.dialogs == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []

    def assert_drawn(self) -> None:
        """Every plot has marks and names."""
        plots = self.page.query_selector_all(".plot")
        assert plots
        for plot in plots:
            assert plot.query_selector_all(".box, .dot"), plot.get_attribute("id")
            assert plot.query_selector_all(".ytick")


def visit(browser: Any, path: Path, *, width: int = 1400, scheme: str = "light", fragment: str = "") -> Visit:
    """Until everything is drawn."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    seen = Visit(page)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri() + fragment)
    until(page, "document.documentElement.dataset.drawn === 'all'")
    return seen


def until(page: Any, condition: str) -> None:
    """Asked from outside: within the page the policy forbids the eval with which playwright would wait."""
    for _ in range(4000):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")
