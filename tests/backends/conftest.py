"""Workers of these tests keep their initial weights in a folder of the tests' own, and no script is left over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepstone.backends.fake.launch import SCRIPT_VARIABLE


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv(SCRIPT_VARIABLE, raising=False)
        yield
