"""The checks of these tests share their workers; what one is told does not depend on what it was told before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_workers import checks_sharing_workers, end_shared_workers


@pytest.fixture(autouse=True, scope="package")
def shared_workers_of_checks() -> Iterator[None]:
    with checks_sharing_workers():
        yield
        end_shared_workers()
