"""Jobs for the scripted backend, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked_workers import MARK_VARIABLE

from deepstone.backends.before_import import FAKE_SCRIPT
from deepstone.environments.find import find_environment
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.load import LoadedModel
from deepstone.runner.job import Job, Machine
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

SOON_S = 60.0  # on however busy a machine; what was forgotten stays for ten minutes and more

Script = Callable[..., None]


def one_convolution(name: str, image: tuple[int, int, int], *, channels: int, classes: int) -> Graph:
    b = Builder(name)
    x = b.relu("relu", b.conv("conv", b.input("data", image), channels=channels, kernel=3, pad=1))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=classes))
    return b.build()


@cache
def small() -> Graph:
    return one_convolution("small", (3, 8, 8), channels=4, classes=10)


@cache
def machine() -> Machine:
    return Machine.here()


def fake_job(**axes: Value) -> Job:
    graph = small()
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"framework": "fake", "batch": 8, **axes}),
        environment=find_environment("fake"),
        machine=machine(),
        command=("deepstone", "run", "small", "framework=fake"),
    )


def set_script(patch: pytest.MonkeyPatch, **script: Any) -> None:
    """The same noise in every run of a test."""
    patch.setenv(FAKE_SCRIPT, json.dumps({"seed": 1, **script}))


def carrying(mark: str) -> list[int]:
    """The living processes that were started with the mark in their environment; zombies have none."""
    wanted = f"\0{MARK_VARIABLE}={mark}\0".encode()
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if wanted in b"\0" + (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


def seconds_until_gone(mark: str, *, timeout_s: float = SOON_S) -> float:
    start_s = time.monotonic()
    while carrying(mark) and time.monotonic() - start_s < timeout_s:
        time.sleep(0.02)
    return time.monotonic() - start_s


def end_all(mark: str) -> Iterator[None]:
    """What a failed test left must not disturb the next one."""
    yield
    for pid in carrying(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
