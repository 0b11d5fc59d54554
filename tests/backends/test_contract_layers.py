"""The contract of backends about layers in place and traced; isolated ones are in test_contract_isolated.py.

One worker per backend is given job after job and asked everything once; the tests look at what it said. Like the other
contract, on one thread and a network that takes milliseconds.
"""

from __future__ import annotations

import functools
import json
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from frameworks import environment_of
from shared_workers import shared_worker
from tiny_jobs import tiny, tiny_job
from workbench import Bench, every_phase

from deepstone.graph.graph import Layer
from deepstone.graph.ops import Dropout, Flatten, Input
from deepstone.runner.conversation import InPlaceTimes
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

TIMEOUT_S = 1800.0
STEPS = 3
TRACED_STEPS = 2
PLAIN_STEPS = 30
LARGE_BATCH = 1024
COPYING_STEPS = 12  # a framework that runs ahead copies the batches of its next steps during the one before them

TRACED = ("torch", "tensorflow", "jax")
SUBJECTS = (*TRACED, "caffe", "neon", "torch7")
WRITES_ITS_OWN_TRACE = ("torch",)  # which shows what called a kernel, too
STAMPS_ITS_DATA = (
    "torch",
    "caffe",
    "neon",
    "torch7",
)  # and so sees that handing on a batch that is there takes microseconds

every_backend = pytest.mark.parametrize("name", SUBJECTS)
every_traced = pytest.mark.parametrize("name", TRACED)


@dataclass(kw_only=True)
class Told:
    """What a worker said about one job."""

    in_place: InPlaceTimes
    again: InPlaceTimes
    losses: list[float] = field(default_factory=list)


@dataclass(kw_only=True)
class Life:
    """What one worker said from hello to close."""

    told: dict[str, Told] = field(default_factory=dict)  # by phase
    trace: dict[str, Any] = field(default_factory=dict)
    chrome: dict[str, Any] = field(default_factory=dict)
    plain_losses: list[float] = field(default_factory=list)  # of training that is asked for nothing else
    resident: InPlaceTimes | None = None  # of a batch so large that a copy of it takes much longer than a timestamp
    copying: InPlaceTimes | None = None  # the same batch, copied in every step


@functools.cache
def life_of(name: str) -> Life:
    life = Life()
    with tempfile.TemporaryDirectory() as folder, shared_worker(layers_job(name), timeout_s=TIMEOUT_S) as talk:
        bench = Bench(talk, functools.partial(layers_job, name))
        for phase in ("forward", "gradient", "train"):
            bench.prepare(phase=phase)
            told = life.told[phase] = Told(in_place=talk.layers(STEPS), again=talk.layers(1))
            if phase == "train" and name in TRACED:
                path = Path(folder) / "trace.json"
                life.trace = talk.trace(TRACED_STEPS, str(path)).to_json()
                life.chrome = json.loads(path.read_text())
            told.losses = talk.losses(3)
        life.plain_losses = bench.losses(PLAIN_STEPS, phase="train")
        bench.prepare(phase="forward", batch=LARGE_BATCH)
        life.resident = talk.layers(STEPS)
        bench.prepare(phase="forward", batch=LARGE_BATCH, input="host")
        life.copying = talk.layers(COPYING_STEPS)
    return life


def layers_job(name: str, **axes: Value) -> Job:
    return tiny_job(name, environment=environment_of(name), threads=1, **axes)


def told(name: str, phase: str) -> Told:
    return life_of(name).told[phase]


def does_work(layer: Layer) -> bool:
    """One pixel per channel is flat already, and dropout is off."""
    return not isinstance(layer.op, Input | Dropout | Flatten)


WORKING = [layer for layer in tiny().layers if does_work(layer)]


@every_backend
class TestInPlace:
    @every_phase
    def test_every_layer_that_works_is_there_in_every_direction(self, name: str, phase: str):
        directions = ["forward"] if phase == "forward" else ["forward", "backward"]
        expected = {(layer.name, direction) for layer in WORKING for direction in directions}
        found = told(name, phase).in_place.layers_s
        assert expected <= set(found)
        assert {layer for layer, _ in found} <= {layer.name for layer in tiny().layers}
        assert {direction for _, direction in found} == set(directions)

    @every_phase
    def test_the_parts_are_the_whole(self, name: str, phase: str):
        times = told(name, phase).in_place
        assert len(times.total_s) == STEPS
        lists = [times.data_s, times.update_s, times.gaps_s, *times.other_s.values(), *times.layers_s.values()]
        for step, total_s in enumerate(times.total_s):
            parts = [values[step] for values in lists]
            assert all(math.isfinite(part) and part >= 0 for part in parts)
            assert sum(parts) == pytest.approx(total_s, rel=1e-6)
            assert total_s > 0

    @every_phase
    def test_convolutions_take_time_both_ways(self, name: str, phase: str):
        times = told(name, phase).in_place.layers_s
        for direction in ["forward"] if phase == "forward" else ["forward", "backward"]:
            assert min(times["conv2", direction]) > 0

    def test_the_update_is_there_where_there_is_one(self, name: str):
        assert min(told(name, "train").in_place.update_s) > 0
        assert told(name, "gradient").in_place.update_s == [0.0] * STEPS

    @every_phase
    def test_it_tells_how_it_knows(self, name: str, phase: str):
        times = told(name, phase).in_place
        assert times.method
        assert "shared" in times.rule or "share" in times.rule

    @every_phase
    def test_asked_again_it_tells_of_new_steps(self, name: str, phase: str):
        first, again = told(name, phase).in_place, told(name, phase).again
        assert len(again.total_s) == 1
        assert again.total_s[0] not in first.total_s
        assert set(again.layers_s) == set(first.layers_s)

    def test_a_batch_that_is_copied_is_data(self, name: str):
        resident, copying = life_of(name).resident, life_of(name).copying
        assert resident is not None
        assert copying is not None
        assert min(resident.data_s) < fmean(copying.data_s)
        assert name in STAMPS_ITS_DATA or resident.data_s == [0.0] * STEPS


@every_traced
class TestTraced:
    def test_kernels_are_counted_and_know_their_layers(self, name: str):
        kernels = life_of(name).trace["kernels"]
        for kernel in kernels:
            assert kernel["name"]
            assert kernel["kind"]
            assert kernel["count"] >= TRACED_STEPS / 2
            assert kernel["total_s"] >= 0
        served = {layer for kernel in kernels for layer in kernel.get("layers", ())}
        assert {"conv1", "conv2", "dense"} <= served <= {layer.name for layer in tiny().layers}

    def test_the_device_is_busy_part_of_the_time(self, name: str):
        trace = life_of(name).trace
        assert 0 < trace["busy_s"] <= trace["span_s"] * (1 + 1e-9)
        assert sum(kernel["total_s"] for kernel in trace["kernels"]) >= trace["busy_s"] * (1 - 1e-6)

    def test_what_a_cpu_has_none_of_is_absent_with_the_reason(self, name: str):
        trace = life_of(name).trace
        assert trace["calls"]["absent"]
        assert trace["idle"]["absent"]

    def test_the_chrome_trace_holds_the_same_kernels(self, name: str):
        life = life_of(name)
        events = [event for event in life.chrome["traceEvents"] if event["ph"] == "X"]
        kernels, shown = {kernel["name"] for kernel in life.trace["kernels"]}, {event["name"] for event in events}
        assert kernels <= shown
        if name not in WRITES_ITS_OWN_TRACE:
            assert kernels == shown
            assert min(event["ts"] for event in events) == 0
        assert len(events) >= sum(kernel["count"] for kernel in life.trace["kernels"])
        whole_us = sum(kernel["total_s"] for kernel in life.trace["kernels"]) * 1e6
        assert whole_us * (1 - 1e-6) <= sum(event["dur"] for event in events)


@every_backend
def test_training_goes_on_as_if_nothing_had_been_asked(name: str):
    """What is traced are steps like any other, and how many ran besides is of no account."""
    losses, plain = told(name, "train").losses, life_of(name).plain_losses
    starts = [number for number in range(len(plain) - 2) if plain[number] == pytest.approx(losses[0], rel=1e-6)]
    assert len(starts) == 1
    assert losses == pytest.approx(plain[starts[0] : starts[0] + 3], rel=1e-5)
    assert starts[0] >= 1 + STEPS + 1 + (TRACED_STEPS if name in TRACED else 0)
