from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Cli, Result, script, without_torch


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Initial weights are the same for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cli(tmp_path: Path, cache: Path) -> Cli:
    """A user with an empty home and no store yet."""
    home = tmp_path / "home"
    home.mkdir()
    return Cli(store=tmp_path / "store", cache=cache, home=home)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """For commands that change nothing; its store is never made."""
    home = tmp_path_factory.mktemp("reader")
    return Cli(store=home / "no-store", cache=cache, home=home)


@pytest.fixture(autouse=True)
def readers_change_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Told of the test that made the store, not of a later one that finds it."""
    yield
    if "reader" in request.fixturenames:
        assert not request.getfixturevalue("reader").store.exists()


@pytest.fixture(scope="session")
def measurer(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """For commands that keep what they measured, in tests that do not look at what is kept."""
    home = tmp_path_factory.mktemp("measurer")
    return Cli(store=home / "store", cache=cache, home=home)


@pytest.fixture(scope="session")
def torchless(tmp_path_factory: pytest.TempPathFactory, reader: Cli) -> Cli:
    """The same with no framework installed."""
    start, variables = without_torch(tmp_path_factory.mktemp("torchless") / "packages")
    return replace(reader, start=start, more=variables)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Cli, Result]:
    """A store with four runs, two ok and two crashed, and what the command that made them did. Not to be changed."""
    home = tmp_path_factory.mktemp("measured")
    cli = Cli(store=home / "store", cache=cache, home=home)
    fault = {"at": "step", "step": 4, "kind": "error"}
    done = cli(
        "run",
        "cifarnet",
        "framework=fake",
        "batch=8,16",
        "layout=nchw,nhwc",
        "--budget",
        1,
        "--json",
        DEEPSTONE_FAKE=script(by={"layout=nhwc": {"fault": fault}}),
    )
    assert done.code == 1, done.err
    return cli, done


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a driver library in which nothing is real."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc to compile the stand-in for NVML")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(
        [
            gcc,
            "-shared",
            "-fPIC",
            "-o",
            folder / "libnvidia-ml.so.1",
            Path(__file__).parents[1] / "measure" / "fake_nvml.c",
        ],
        check=True,
    )
    return str(folder)
