"""The contract of backends about layers by themselves: which passes there are, that each computes what its name says,
and that the network stays as it was. One real worker per backend is asked everything once; the tests look at what it
said.
"""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean

import pytest
from depth import unoptimized_programs
from frameworks import FURTHER, LEGACY, WITHOUT_GROUPS
from patience import shown
from shared_workers import shared_worker
from single_layers import graph_job
from workbench import Bench

from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Conv, Dense, Dropout, Flatten, Input
from deepstone.runner.conversation import Conversation
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

TIMEOUT_S = 1800.0
SUBJECTS = ("torch", "tensorflow", "jax", *FURTHER, *LEGACY)

every_backend = pytest.mark.parametrize("name", SUBJECTS, ids=lambda name: name.replace("@", "-"))
every_phase = pytest.mark.parametrize("phase", ["forward", "gradient"])  # alone, training is no other


@functools.cache
def varied(groups: int = 2) -> Graph:
    """Nearly every operation, a branch that meets itself again, and a layer before all weights."""
    b = Builder("varied")
    x = b.max_pool("before weights", b.input("data", (16, 16, 16)), kernel=2, stride=2)
    x = b.relu("relu1", b.conv("conv1", x, channels=32, kernel=3, pad=1))
    x = b.max_pool("pool", b.lrn("lrn", x, size=5), kernel=2, stride=2)
    beside = b.average_pool("mean", x, kernel=3, stride=1, pad=1)
    x = b.relu(
        "relu2", b.batch_norm("norm", b.conv("conv2", x, channels=32, kernel=3, pad=1, groups=groups, bias=False))
    )
    x = b.concat("concat", b.add("add", x, beside), beside)
    x = b.dropout("drop", b.flatten("flatten", b.global_pool("global", x)))
    b.softmax_cross_entropy("loss", b.dense("dense", x, features=10))
    return b.build()


@functools.cache
def fat() -> Graph:
    """A convolution that takes most of the step's time, behind another, so that its input has a gradient."""
    b = Builder("fat")
    x = b.conv("thin", b.input("data", (8, 27, 27)), channels=64, kernel=1)
    x = b.global_pool("global", b.conv("fat", x, channels=64, kernel=3, pad=1))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=10))
    return b.build()


@dataclass(kw_only=True)
class Life:
    """What one worker said from hello to close."""

    lone_s: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)  # phase, layer, program
    losses: list[float] = field(default_factory=list)  # before and after layers ran alone
    programs_with_image_gradient: tuple[str, ...] = ()
    programs_of_dropout: tuple[str, ...] = ()
    fat_s: dict[str, float] = field(default_factory=dict)  # the fat convolution, by program; forward taken off
    fat_steps_s: dict[str, float] = field(default_factory=dict)  # steps of its network, by phase


@functools.cache
def life_of(name: str) -> Life:
    life = Life()
    with quickly_compiled(name), shared_worker(varied_job(name), timeout_s=TIMEOUT_S) as talk:
        bench = Bench(talk, functools.partial(varied_job, name))
        for phase in ("forward", "gradient"):
            bench.prepare(phase=phase)
            before = talk.losses(1)
            life.lone_s[phase] = {
                layer.name: {
                    program: talk.isolated_block(program, samples=2, steps_per_sample=2, lead=1).step_s
                    for program in talk.isolated(layer.name).names
                }
                for layer in varied().layers
            }
            life.losses = before + talk.losses(2)
        bench.prepare(phase="gradient", input_grad="on")
        life.programs_with_image_gradient = talk.isolated("before weights").names
        bench.prepare(phase="gradient", dropout="on")
        life.programs_of_dropout = talk.isolated("drop").names
    with shared_worker(varied_job(name), timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        shown(functools.partial(look_at_fat, life, talk, name))
    return life


def quickly_compiled(name: str) -> AbstractContextManager[None]:
    """Where each layer is a program of XLA's, and its speed does not matter."""
    return unoptimized_programs() if name == "jax" else nullcontext()


def look_at_fat(life: Life, talk: Conversation, name: str) -> bool:
    """Whether all that the tests below look for was seen; they tell what the last of some looks found."""
    for phase in ("forward", "gradient"):
        talk.prepare(job_of(name, fat(), phase=phase))
        life.fat_steps_s[phase] = min(talk.block(samples=10, lead=1).step_s)
    life.fat_s = shortest_alone(talk, "fat")
    return has_both_gradients(life.fat_s) and life.fat_steps_s["gradient"] > 1.5 * life.fat_steps_s["forward"]


def has_both_gradients(fat_s: dict[str, float]) -> bool:
    """Each as much work as forward."""
    backward_s = fat_s["backward"]
    if backward_s <= 0.7 * fat_s["forward"]:
        return False
    return all(0.1 * backward_s < fat_s[part] < 0.92 * backward_s for part in ("data", "weight"))


def shortest_alone(talk: Conversation, layer: str) -> dict[str, float]:
    """By program, what forward takes taken off; in turns, so that others on the machine disturb all of them alike."""
    programs = talk.isolated(layer).names
    shortest_s = dict.fromkeys(programs, math.inf)
    for _ in range(8):
        for program in programs:
            shortest_s[program] = min(shortest_s[program], fmean(talk.isolated_block(program, samples=3).step_s))
    taken_off_s = {program: shortest_s["forward"] if program.startswith("forward+") else 0.0 for program in programs}
    return {program.removeprefix("forward+"): shortest_s[program] - taken_off_s[program] for program in programs}


def varied_job(name: str, **axes: Value) -> Job:
    return job_of(name, varied(1 if name in WITHOUT_GROUPS else 2), **axes)


def job_of(name: str, graph: Graph, **axes: Value) -> Job:
    return graph_job(name, graph, **{"device": "auto", "batch": 8, **axes})


@every_backend
@every_phase
def test_every_layer_that_works_runs_by_itself(name: str, phase: str):
    lone_s = life_of(name).lone_s[phase]
    for layer in varied().layers:
        programs = {program.removeprefix("forward+") for program in lone_s[layer.name]}
        assert programs == expected_programs(layer, phase), layer.name


@every_backend
@every_phase
def test_every_program_takes_time(name: str, phase: str):
    for layer, programs in life_of(name).lone_s[phase].items():
        for program, times in programs.items():
            assert len(times) == 2, (layer, program)
            assert all(math.isfinite(step_s) and step_s > 0 for step_s in times), (layer, program)


@every_backend
def test_a_convolution_s_gradients_are_computed_each_by_itself(name: str):
    """Two of them. What nobody reads, some frameworks leave out."""
    fat_s = life_of(name).fat_s
    assert has_both_gradients(fat_s), fat_s


@every_backend
def test_a_step_computes_gradients_that_nobody_reads(name: str):
    steps_s = life_of(name).fat_steps_s
    assert steps_s["gradient"] > 1.5 * steps_s["forward"]


@every_backend
def test_gradients_are_run_all_from_a_kept_forward_or_all_with_one(name: str):
    """What is subtracted must be in all of them."""
    programs = {program for found in life_of(name).lone_s["gradient"].values() for program in found}
    backward = programs - {"forward"}
    assert backward in ({"backward", "data", "weight"}, {"forward+backward", "forward+data", "forward+weight"})


@every_backend
def test_the_image_has_a_gradient_if_asked_for(name: str):
    assert [program.removeprefix("forward+") for program in life_of(name).programs_with_image_gradient] == [
        "forward",
        "backward",
    ]


@every_backend
def test_a_layer_that_drops_works_if_asked_for(name: str):
    assert [program.removeprefix("forward+") for program in life_of(name).programs_of_dropout] == [
        "forward",
        "backward",
    ]


@every_backend
def test_what_runs_alone_leaves_the_network_as_it_was(name: str):
    """Without an update the loss stays."""
    losses = life_of(name).losses
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def expected_programs(layer: Layer, phase: str) -> set[str]:
    if isinstance(layer.op, Input | Dropout | Flatten):  # one pixel per channel is flat already, and dropout is off
        return set()
    programs = {"forward"}
    if phase != "forward" and layer.name != "before weights":
        programs |= {"backward"}
        if isinstance(layer.op, Conv | Dense):
            programs |= {"weight", "data"} if layer.name in varied().after_parameters else {"weight"}
    return programs
