"""Workers of these tests keep their initial weights and JAX's programs in folders of the tests' own, and no script is
left over."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from depth import is_quick, unoptimized_programs
from shared_workers import end_shared_workers
from workbench import Bench, bench_of

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.runner.conversation import Prepared


@pytest.fixture(autouse=True, scope="session")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.mktemp("cache")))
        # What XLA has compiled for one test is read by the next that needs the same program, however small.
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        if is_quick():
            # Without vector instructions what torch's compiler writes is compiled in half the time.
            patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")
        patch.setenv(FAKE_SCRIPT, '{"seed": 1}')
        yield
        end_shared_workers()


@pytest.fixture(scope="session")
def cpu() -> int:
    """The one that workers with an affinity may run on."""
    return max(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A worker for the jobs that `job` of the test's own file makes."""
    with bench_of(request.module.job) as bench:
        yield bench


@pytest.fixture(scope="module")
def limited(request: pytest.FixtureRequest, cpu: int) -> Iterator[tuple[Bench, Prepared]]:
    """A worker that the test's own file limits in every way at once, to one CPU too."""
    axes = {**request.module.LIMITED, "affinity": str(cpu)}
    with request.module.worker(**axes) as bench:
        yield bench, bench.prepare(**axes)


@pytest.fixture(scope="module")
def unoptimized_xla() -> Iterator[None]:
    """For tests that hold what programs compute against a reference: that is a matter of our lowering."""
    with unoptimized_programs():
        yield
