"""Workers of these tests keep their initial weights in a folder of the tests' own, and no script is left over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_workers import end_shared_workers

from deepstone.backends.before_import import FAKE_SCRIPT


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv(FAKE_SCRIPT, raising=False)
        yield
        end_shared_workers()
