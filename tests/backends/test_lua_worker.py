"""The worker in Lua speaks the protocol. Its backend is scripted, so LuaJIT alone is needed; Torch7 passes the whole
contract where it is adopted."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_jobs import tiny, tiny_job

from deepstone.absent import Absent
from deepstone.backends import registry
from deepstone.environments.environment import Environment
from deepstone.errors import MissingError
from deepstone.graph.batch import perturbed
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.launchers.local import SERVE_PATH
from deepstone.runner.conversation import BuildOptions, Conversation, JobFailed, Prepared, talking_to_worker
from deepstone.runner.job import Job
from deepstone.runner.replies import Hello
from deepstone.setups.axes import AXES, Value
from deepstone.worker.serve import ALONE, allocator_in_use

LUAJIT = shutil.which("luajit")
TIMEOUT_S = 300.0
PACKAGES = SERVE_PATH.parent.parent.parent
BATCH = 8

pytestmark = pytest.mark.skipif(LUAJIT is None, reason="there is no luajit; on Debian: apt install luajit")


def scripted_job(**axes: Value) -> Job:
    program = Path(str(LUAJIT))
    environment = Environment(framework="fake", version="1", program=program, lock={"lua": "LuaJIT"}, language="lua")
    return tiny_job("fake", environment=environment, batch=BATCH, **axes)


@contextmanager
def talking(fault: str = "", **axes: Value) -> Iterator[Conversation]:
    info = replace(registry.BACKENDS["fake"], module="tests.backends.scripted", language="lua")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.BACKENDS.own, "fake", info)
        patch.setenv("DEEPSTONE_SCRIPTED", fault)
        with talking_to_worker(scripted_job(**axes), timeout_s=TIMEOUT_S) as talk:
            yield talk


@pytest.fixture(scope="module")
def met() -> Iterator[tuple[Conversation, Hello, Prepared]]:
    """One worker that all tests ask for what does not change it."""
    with talking() as talk:
        yield talk, talk.hello(), talk.prepare()


@pytest.fixture
def talk(met: tuple[Conversation, Hello, Prepared]) -> Conversation:
    return met[0]


def total_of_a_step() -> float:
    """What a scripted step adds up: the same weights and batch as every other worker has."""
    weights = sum(float(a.sum()) for arrays in initial_parameters(tiny(), 0).values() for a in arrays.values())
    samples, labels = synthetic_batch(tiny(), BATCH, 0)
    return weights + float(samples.astype(np.float64).sum()) + float(labels.sum())


def test_hello_says_what_runs_it(met: tuple[Conversation, Hello, Prepared]) -> None:
    hello = met[1]
    assert hello.runtime.startswith("LuaJIT ")
    assert hello.python == ""
    assert hello.framework["name"] == "scripted"
    assert hello.pid > 0
    assert hello.import_s >= 0


def test_it_is_prepared_and_alone(met: tuple[Conversation, Hello, Prepared]) -> None:
    prepared = met[2]
    assert prepared.first_step_s > 0
    assert prepared.phases == ("data", "forward", "backward", "update")
    assert set(prepared.effective) == set(AXES)
    assert {axis: prepared.effective[axis].value for axis in ALONE} == ALONE  # it repeats what the other worker says
    assert prepared.effective["affinity"].source == "observed"
    assert prepared.effective["affinity"].value
    assert prepared.effective["allocator"].value == allocator_in_use()
    assert {prepared.effective[axis].value for axis in ("wait", "power_limit")} == {"not used", "the board's own"}


def test_every_step_that_is_asked_for_runs_once() -> None:
    with talking() as talk:
        talk.hello()
        talk.prepare()
        first, second = talk.block(samples=4, steps_per_sample=2), talk.block(samples=3, lead=5)
        assert len(talk.phases(2)["forward"]) == 2
        steps = 1 + 8 + 8 + 2 * 4
        assert talk.losses(0) == pytest.approx([total_of_a_step() * steps], rel=1e-6)
        assert talk.losses(2) == pytest.approx([total_of_a_step() * (steps + n) for n in (1, 2)], rel=1e-6)
        assert [len(block.step_s) for block in (first, second)] == [4, 3]
        for block in (first, second):
            assert all(step_s > 0 for step_s in block.step_s)
            assert sum(block.step_s) * block.steps_per_sample <= block.total_s * 1.001 + 1e-4
        assert second.start_s >= first.start_s + first.total_s
        assert talk.close().exit_code == 0


def test_weights_and_batch_of_another_start() -> None:
    """The controller writes them, as a worker in Python makes them itself."""
    with talking() as talk:
        talk.hello()
        talk.build(options=BuildOptions(data_seed=3, perturbation=0.25))
        values = {name: np.load(path) for name, path in talk.dump("parameters").items()}
        samples, labels = synthetic_batch(tiny(), BATCH, 3)
        for name, found in values.items():
            layer, _, kind = name.rpartition("/")
            given = initial_parameters(tiny(), 0)[layer][kind]
            np.testing.assert_array_equal(found, perturbed(given, 0.25, layer))
        total = sum(float(a.astype(np.float64).sum()) for a in (*values.values(), samples, labels))
        assert talk.losses(1) == pytest.approx([total], rel=1e-5)


def test_arrays_come_back_in_order(talk: Conversation) -> None:
    dumped = {name: np.load(path) for name, path in talk.dump("parameters").items()}
    parameters = initial_parameters(tiny(), 0)
    assert list(dumped) == [f"{layer.name}/{name}" for layer in tiny().layers for name in tiny().parameters(layer)]
    for name, array in dumped.items():
        layer, _, kind = name.rpartition("/")
        np.testing.assert_array_equal(array, parameters[layer][kind])


def test_samples_of_arrays_are_those_of_the_other_worker(talk: Conversation) -> None:
    found = talk.sample("parameters", most=7)
    for name, values in found.items():
        layer, _, kind = name.rpartition("/")
        flat = initial_parameters(tiny(), 0)[layer][kind].ravel()
        count = min(flat.size, 7)
        np.testing.assert_array_equal(values, flat[np.arange(count) * flat.size // count])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_layer_gets_and_gives_arrays(talk: Conversation, dtype: Any) -> None:
    array = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    found = talk.layer("conv1", {"data": array}, array[:1])
    np.testing.assert_array_equal(found["output", ""], 2 * array)
    np.testing.assert_array_equal(found["input", "data"], array[:1])
    assert found["input", "data"].dtype == dtype
    assert ("input", "data") not in talk.layer("conv1", {"data": array}, None)


def test_layers_in_place_and_isolated(talk: Conversation) -> None:
    found = talk.layers(2)
    assert list(found.total_s) == [10, 20]
    assert found.layers_s == {("conv1", "forward"): [1, 2], ("conv1", "backward"): [2, 4]}
    assert dict(found.other_s) == {"sums": [0.5, 0.5]}
    isolated = talk.isolated("conv 'é\n")
    assert isolated.names == ("forward", "backward")
    assert isolated.beside == "the name conv 'é\n"
    assert len(talk.isolated_block("backward", samples=2, steps_per_sample=3).step_s) == 2


def test_memory(talk: Conversation) -> None:
    memory = talk.memory()
    assert isinstance(memory["device_allocated_bytes"], Absent)
    peak = memory["host_peak_bytes"]
    assert isinstance(peak, int)
    assert 2**20 < peak < 2**32
    assert set(talk.memory_peak(1).memory) > {"host_growth_bytes", "host_peak_bytes"}


@pytest.mark.parametrize("request_name", ["trace", "ceiling", "memory_by_layer", "fly"])
def test_what_it_has_not_is_refused_and_survived(talk: Conversation, request_name: str) -> None:
    with pytest.raises(JobFailed) as refusal:
        talk._reply(request_name, steps=1, path="", wanted={})
    assert refusal.value.outcome == "unsupported"
    assert talk.memory()


@pytest.mark.parametrize(
    ("fault", "precision", "outcome", "reason"),
    [
        ("", "bf16", "unsupported", "plain numbers only"),
        ("crash", "fp32", "crashed", "it broke"),
        ("memory", "fp32", "oom", "not enough memory"),
        ("die", "fp32", "crashed", "exited with code 3"),
    ],
)
def test_what_goes_wrong_becomes_an_outcome(fault: str, precision: str, outcome: str, reason: str) -> None:
    with talking(fault, precision=precision) as talk:
        talk.hello()
        with pytest.raises(JobFailed, match=reason) as failure:
            talk.prepare()
        assert failure.value.outcome == outcome
        assert "\n" not in failure.value.reason


def test_what_is_missing_says_how_to_get_it() -> None:
    with talking(precision="tf32") as talk:
        talk.hello()
        with pytest.raises(MissingError, match="no such unit; plug one in"):
            talk.prepare()
    with talking("import") as talk, pytest.raises(MissingError, match=r"not import: .*module 'torch' not found"):
        talk.hello()


def test_another_protocol_is_refused_and_survived() -> None:
    with talking() as talk:
        with pytest.raises(JobFailed, match="protocol 99"):
            talk._reply("hello", protocol=99)
        assert talk.hello().pid > 0


def test_a_loss_that_is_no_number_is_told() -> None:
    with talking("nan") as talk:
        talk.hello()
        talk.prepare()
        assert math.isnan(talk.losses(0)[0])


def test_affinity_is_set_before_the_framework_is_loaded() -> None:
    cpu = str(max(os.sched_getaffinity(0)))
    with talking(affinity=cpu) as talk:
        talk.hello()
        assert talk.prepare().effective["affinity"].value == cpu


ECHO = """
local json = require 'deepstone.worker.json'
for line in io.lines() do
   print(json.encode(json.decode(line)))
end
"""
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def echo() -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, "LUA_PATH": f"{PACKAGES}/?.lua;;"}
    command = [str(LUAJIT), "-e", f"io.stdout:setvbuf 'line' {ECHO}"]
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@given(value=values, escaped=st.booleans())
def test_json_comes_back_as_it_went(echo: subprocess.Popen[str], value: Any, escaped: bool) -> None:
    assert echo.stdin is not None
    assert echo.stdout is not None
    echo.stdin.write(json.dumps(value, ensure_ascii=escaped) + "\n")
    echo.stdin.flush()
    assert json.loads(echo.stdout.readline()) == value


def test_what_is_no_json_is_refused() -> None:
    program = "print(pcall(require('deepstone.worker.json').decode, arg[1]))"
    for text in ("", "{", '{"a":}', "[1 2]", "nul", '"open', '"\\x"', "1 2", "--1", '{"a" 1}', '"\\ud800"'):
        done = subprocess.run(
            [str(LUAJIT), "-e", f"arg = {{[==[{text}]==]}} {program}"],
            env={**os.environ, "LUA_PATH": f"{PACKAGES}/?.lua;;"},
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        assert done.stdout.startswith("false\tnot JSON at"), text
