"""Jobs whose code is written, and how a test runs it: as a process of the framework's own Python."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from deepstone.environments.find import find_environment
from deepstone.exchange.load import load_model
from deepstone.models.load import LoadedModel
from deepstone.runner.job import Job, Machine
from deepstone.runner.new_job import make_job
from deepstone.setups.request import expand, parse_words
from deepstone.tuner.emit import emit

EXAMPLES = Path(__file__).parents[2] / "examples"
FOUND = "Measured: 41.2 images/s (40.1 – 42.3), 1.42x (1.38 – 1.46) the default."

# Imports torch once, and runs each script in a fork of that: what a script sets for the whole process stays in it.
RUNNER = """
import os, runpy, sys
import torch, torch._dynamo
for path in sys.argv[1:]:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.argv = [path]
        runpy.run_path(path, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{path} failed")
"""


@cache
def _model(name: str) -> LoadedModel:
    return load_model(name)


@cache
def _machine() -> Machine:
    return Machine.here()


def job_of(model: str, words: str) -> Job:
    return make_job(_model(model), expand(parse_words(words.split()))[0], _machine(), ("deepstone", "tune", model))


def code_of(model: str, words: str) -> str:
    return emit(job_of(model, words), FOUND)


def run_in_torch(paths: list[Path]) -> list[str]:
    """What each script prints."""
    done = subprocess.run([sys.executable, "-c", RUNNER, *map(str, paths)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_alone(command: list[str], path: Path) -> str:
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python_of(framework: str) -> list[str]:
    return [*find_environment(framework).command]
