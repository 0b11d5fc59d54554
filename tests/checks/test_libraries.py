"""Horovod and DeepSpeed in place of torch's own schemes, where an environment has them; else that they are missed."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path

import pytest
from check_jobs import check_job
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks.parallel import check_scheme
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.errors import MissingError
from deepstone.results.sameness import SchemeSameness
from deepstone.setups.axes import Value

PLANTED = Path(__file__).with_name("planted_schemes")
TIMEOUT_S = 900.0
LIBRARIES: dict[str, dict[str, Value]] = {"horovod": {}, "deepspeed": {"scheme": "sharded"}}

every_library = pytest.mark.parametrize("library", LIBRARIES)
pytestmark = pytest.mark.timeout(1200)  # DeepSpeed compiles an operation in its first job


def environment_of(library: str) -> Environment:
    try:
        return find_environment(f"torch@2.13.0-{library}")
    except MissingError:
        pytest.skip(f"{library} is not installed: deepstone env add {library}")


@functools.cache
def checked(library: str, plant: str = "", **axes: Value) -> SchemeSameness:
    environment = environment_of(library)
    if plant:
        variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": plant}
        environment = replace(environment, variables={**environment.variables, **variables})
    given: dict[str, Value] = {"processes": 2, "batch": 4, "device": "cpu", "library": library, **LIBRARIES[library]}
    job = check_job("torch", environment=environment, **given, **axes)
    return check_scheme(job, timeout_s=TIMEOUT_S, beside=False)


@every_library
def test_a_library_trains_what_one_process_trains(library: str):
    found = checked(library)
    assert found.ok, found.why_not()
    assert found.precision == ("fp32" if library == "deepspeed" else "fp64")
    for distance in (found.gradient, found.update):
        assert not isinstance(distance, Absent)


@every_library
def test_a_library_adds_up_parts(library: str):
    found = checked(library, accumulate=2)
    assert found.ok, found.why_not()


@every_library
def test_a_part_that_is_given_twice_is_noticed(library: str, tmp_path: Path):
    plant = tmp_path / "plant"
    plant.write_text("shard twice")
    found = checked(library, str(plant))
    assert found.is_wrong
    assert "off by" in found.why_not()


@every_library
def test_a_library_that_is_not_installed_is_missing(library: str):
    if find_spec(library) is not None:
        pytest.skip(f"{library} is installed beside Deepstone")
    job = check_job("torch", processes=2, batch=4, library=library, **LIBRARIES[library])
    found = check_scheme(job, timeout_s=TIMEOUT_S, beside=False)
    assert found.is_missing
    assert f"deepstone env add {library}" in str(found.failure)
