"""Axes of the process itself: which library serves malloc, and what OpenMP threads do while they wait."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from tiny_jobs import tiny_job

from deepstone.errors import MissingError
from deepstone.launchers import allocators
from deepstone.launchers.allocators import preloaded
from deepstone.runner.conversation import Prepared, talking_to_worker, variables_of
from deepstone.setups.axes import Value

TIMEOUT_S = 300.0
# An allocator in name and symbol: what it gives comes from the C library.
STUB = """
#include <stddef.h>
extern void *__libc_malloc(size_t size);
void *malloc(size_t size) { return __libc_malloc(size); }
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("allocators")
    (folder / "stub.c").write_text(STUB)
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "stub.c"], check=True, timeout=200)
    (folder / "libempty.so").write_bytes((folder / "libjemalloc.so.2").read_bytes())
    return folder


@pytest.fixture
def installed(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return libraries


def prepared(framework: str, **axes: Value) -> tuple[Prepared, str | None]:
    job = tiny_job(framework, device="cpu", threads=1, **axes)
    with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        found = talk.prepare()
    return found, found.contradiction(job.request)


@pytest.mark.parametrize("allocator", ["jemalloc", "tcmalloc", "glibc"])
def test_what_serves_malloc_is_read_back(installed: Path, allocator: str):
    found, contradiction = prepared("fake", allocator=allocator)
    assert found.effective["allocator"].to_json() == {"value": allocator, "source": "observed"}
    assert contradiction is None


def test_torch_runs_on_another_allocator(installed: Path):
    found, contradiction = prepared("torch", allocator="jemalloc", wait="passive")
    assert found.effective["allocator"].value == "jemalloc"
    assert found.effective["wait"].to_json() == {"value": "passive", "source": "set"}
    assert contradiction is None


def test_a_library_that_cannot_be_preloaded_is_noticed(installed: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "libjemalloc.so.2").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found, contradiction = prepared("fake", allocator="jemalloc")
    assert found.effective["allocator"].value == "glibc"
    assert contradiction == "asked for allocator=jemalloc, but got glibc"


def test_a_missing_library_is_missing_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocators, "_FOLDERS", ())
    with pytest.raises(MissingError, match=r"allocator=jemalloc: .* not installed; .*libjemalloc2"):
        preloaded("jemalloc", {})
    assert MissingError.exit_code == 4


class TestVariables:
    def test_auto_leaves_what_the_user_preloads(self, installed: Path):
        assert preloaded("auto", {"LD_PRELOAD": "/x/libjemalloc.so.2"}) == {}

    def test_another_allocator_gives_way_and_the_rest_stays(self, installed: Path):
        given = {
            "LD_PRELOAD": "/x/libjemalloc.so.2:/x/libother.so /x/libmimalloc.so",
            "LD_LIBRARY_PATH": str(installed),
        }
        tcmalloc = f"{installed}/libtcmalloc_minimal.so.4"
        assert preloaded("tcmalloc", given) == {"LD_PRELOAD": f"{tcmalloc}:/x/libother.so"}
        assert preloaded("glibc", given) == {"LD_PRELOAD": "/x/libother.so"}
        assert preloaded("glibc", {}) == {}

    @pytest.mark.parametrize(("wait", "spins"), [("active", True), ("passive", False)])
    def test_all_openmp_libraries_are_told(self, wait: str, spins: bool):
        variables = variables_of(tiny_job("torch", wait=wait))
        assert variables["OMP_WAIT_POLICY"] == wait
        assert (int(variables["GOMP_SPINCOUNT"]) > 0) is spins
        assert (int(variables["KMP_BLOCKTIME"]) > 0) is spins

    def test_auto_is_as_before(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        plain = tiny_job("torch")
        assert not {"LD_PRELOAD", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & set(
            variables_of(plain).keys() - set(plain.environment.variables)
        )
        assert replace(plain, request={**plain.request}).id == plain.id
