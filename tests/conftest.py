"""For all tests: signals as a terminal would give them, though the tests may run under nohup or in the background; the
frameworks that `make test` put into the tests' own environments; and who tests what, how deep.

`make test` runs three processes of pytest. A file's tests stay together, as they share what it measured; those of one
framework stay together over files, as they share its workers (shared_workers.py). What takes long comes first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from forked_workers import forked_workers
from frameworks import FORWARD_ONLY, FURTHER, LEGACY
from hypothesis import HealthCheck, settings
from unsynced_files import leave_files_unsynced

for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start a thousand interpreters: what one of them compiles, the next ones read.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Processes of pytest share the cores: threads that spin while they wait would take most of them.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("DEEPSTONE_ENVIRONMENTS", str(Path(sys.prefix, "environments")))

# The noise of the scripted backend is the same every time, also where a test does not ask for any.
os.environ["DEEPSTONE_FAKE"] = '{"seed": 1}'

leave_files_unsynced()

# To collect thousands of tests makes a million objects, none of which is garbage.
gc.disable()

# Examples of a property; one that names a number of its own draws more or fewer in proportion (depth.py).
# The quick ones are the same every time, so that a change is never refused for what it did not break; the deep ones are
# new every time. Neither fails because the machine is slow.
_AT_ANY_SPEED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=30, derandomize=True, **_AT_ANY_SPEED)
settings.register_profile("deep", max_examples=500, **_AT_ANY_SPEED)
settings.load_profile("quick")

SHARE_WORKERS = ("tensorflow", "jax", "mxnet", "chainer")
ALWAYS = ("fake", "torch", *SHARE_WORKERS)  # of the frameworks; `make test-all` has the others
# Folders with long files. Short ones come last, so that all processes end at about the same time.
LONG = ("runner", "faults", "backends", "cli", "tuner", "studies", "report", "checks")


@pytest.fixture(autouse=True, scope="module")
def _forked_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of backends are about the processes themselves."""
    with nullcontext() if request.path.parent.name == "backends" else forked_workers():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order in which tests are handed out, and what is left to `make test-all`.

    Whoever asks for a framework by its name, with `-k`, gets it.
    """
    for item in items:
        framework = _framework(item)
        if framework and framework not in ALWAYS and not config.option.keyword:
            item.add_marker(pytest.mark.deep)
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups of tests, by their names alone: pytest-xdist 3.8 forgets its own group marks under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            if Path(path).parent.name != "backends":
                return path
            words = (*Path(path).stem.split("_"), *test.partition("[")[2].rstrip("]").split("-"))
            return next((name for name in SHARE_WORKERS if name in words), path)

    return GroupScheduling(config, log)


def _framework(item: pytest.Item) -> str:
    """Of a test of a backend, by its parameters or its file; empty where no framework is named."""
    if item.path.parent.name != "backends":
        return ""
    known = (*ALWAYS, *LEGACY, *FURTHER, *FORWARD_ONLY)
    given = [getattr(value, "name", value) for value in getattr(getattr(item, "callspec", None), "params", {}).values()]
    named = item.path.stem.removeprefix("test_").partition("_")[0]
    return next((name for name in (*given, named) if isinstance(name, str) and name in known), "")


def _turn(item: pytest.Item) -> int:
    """Where nothing else says so, items stay in the order of their files."""
    framework, folder = _framework(item), item.path.parent.name
    if framework in SHARE_WORKERS:
        return SHARE_WORKERS.index(framework)
    return len(SHARE_WORKERS) + (LONG.index(folder) if folder in LONG else len(LONG))
