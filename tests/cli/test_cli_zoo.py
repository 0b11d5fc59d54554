"""Every network of the zoo as a user would run it, on every framework that is there: `make test-zoo`.

Without that, the one that takes least; tests/runner/test_zoo_runs.py trains some on torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, Result

from deepstone.environments.find import installed
from deepstone.environments.places import environments_root
from deepstone.models.zoo import ZOO

LONGEST_S = 1800.0
QUICK = ("resnet110",)
# So deep that the other frameworks take hours to compile them.
TORCH_ONLY = ("resnet1001", "resnet5000")
ELSEWHERE = [name for name, environment in installed().items() if environment is not None and name != "torch"]
LOOKED_INTO = [
    (framework, name)
    for framework in ("torch", *ELSEWHERE)
    for name in ZOO
    if framework == "torch" or name not in TORCH_ONLY
]


@pytest.fixture
def user(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """Initial weights are half a gigabyte for some, so they are not kept for the next."""
    cache = tmp_path / "cache"
    environments = {"DEEPSTONE_ENVIRONMENTS": str(environments_root())}
    yield replace(cli, cache=cache, longest_s=LONGEST_S, more=environments)
    shutil.rmtree(cache, ignore_errors=True)


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.zoo) for name in ZOO])
def test_it_runs_on_torch(user: Cli, name: str) -> None:
    # Tests run two at a time: threads that wait for each other would be many times slower than one.
    one_thread = {"OMP_NUM_THREADS": "1"} if name in QUICK else {}
    record = user("run", name, "batch=2", "--budget", 0.05, "--json", **one_thread).assert_ok().json
    assert record["outcome"] == "ok"
    assert user("results", "show", record["id"]).assert_ok().out


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.slow
@pytest.mark.zoo
class TestEverywhere:
    @pytest.mark.parametrize("name", [name for name in ZOO if name not in TORCH_ONLY])
    @pytest.mark.parametrize("framework", ELSEWHERE)
    def test_it_runs(self, user: Cli, framework: str, name: str) -> None:
        assert measured(user("run", name, "batch=2", f"framework={framework}", "--budget", 0.05, "--json"))["summary"]

    @pytest.mark.parametrize(("framework", "name"), LOOKED_INTO)
    def test_its_layers(self, user: Cli, framework: str, name: str) -> None:
        assert measured(user("layers", name, "batch=2", f"framework={framework}", "--budget", 0.5, "--json"))["layers"]

    @pytest.mark.parametrize(("framework", "name"), LOOKED_INTO)
    def test_its_memory(self, user: Cli, framework: str, name: str) -> None:
        assert measured(user("memory", name, "batch=2", f"framework={framework}", "--json"))["layers"]


def measured(done: Result) -> dict[str, Any]:
    """What was found. A framework may lack an operation; then it must say so, and nothing else may go wrong."""
    assert done.out, done.err
    found = done.json
    if found["outcome"] == "unsupported":
        pytest.skip(found["failure"]["reason"])
    assert found["outcome"] == "ok", found["failure"]
    done.assert_ok()
    return found
