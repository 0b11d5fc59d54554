"""The contract of backends: whatever framework is behind it, a worker answers like this. Each runs in a real process.

A worker takes seconds to start, so two whole lives of workers are recorded, and each test looks at one of them. They
use one thread: where others want the cores too, a step that waits for a second one may take a hundred times longer.

    busy    every request there is, phase after phase, with noise on stdout and its modules listed at the end
    quiet   the same training with nothing but `losses`: what the other requests must not disturb; then another seed;
            from a working directory full of false modules
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frameworks import FORWARD_ONLY, FURTHER, LEGACY, environment_of
from msgspec.structs import replace
from tiny_jobs import tiny, tiny_job
from workbench import every_phase

from deepstone.absent import Absent
from deepstone.backends import registry
from deepstone.backends.base import LEARNING_RATE, STEP_PHASES
from deepstone.environments.environment import Environment
from deepstone.graph.weights import initial_parameters
from deepstone.launchers.local import SERVE_PATH
from deepstone.runner.conversation import BlockTimes, Conversation, Hello, JobFailed, Prepared, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.axes import AXES, Value
from deepstone.setups.effective import contradiction

TIMEOUT_S = 1800.0
LITTLE_CPU_S = 0.05  # in half a second


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A backend under test. One that `computes` trains for real, so its losses and arrays mean something."""

    name: str
    computes: bool

    @property
    def trains(self) -> bool:
        return self.computes and self.name not in FORWARD_ONLY

    def __str__(self) -> str:
        return self.name.replace("@", "-")  # which `pytest -k` can be given


SUBJECTS = (
    Subject(name="fake", computes=False),
    Subject(name="torch", computes=True),
    Subject(name="tensorflow", computes=True),
    Subject(name="jax", computes=True),
    *(Subject(name=name, computes=True) for name in (*FURTHER, *LEGACY, *FORWARD_ONLY)),
)

WORKER_SIDE = {
    f"deepstone.{room}"
    for room in (
        "backends",
        "trace",
        "models",
        "plugins",
        "algorithms",
        "graph",
        "setups",
        "errors",
        "absent",
        "units",
    )
}

every_backend = pytest.mark.parametrize("subject", SUBJECTS, ids=str)
every_training_backend = pytest.mark.parametrize("subject", [each for each in SUBJECTS if each.trains], ids=str)


@dataclass(kw_only=True)
class Life:
    """What one worker said of one job, from hello to close."""

    hello: Hello
    prepared: Prepared
    blocks: list[BlockTimes] = field(default_factory=list)
    phase_s: dict[str, list[float]] = field(default_factory=dict)
    last_loss: float = math.nan
    losses: list[float] = field(default_factory=list)
    losses_of_another_seed: list[float] = field(default_factory=list)
    arrays: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    refusals: list[JobFailed] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    idle_cpu_s: float = math.nan
    exit_code: int | None = None


# In the worker before anything else: talks on stdout all the time, and lists what was imported when all is over.
# Modules without a file are left out: compiled ones make such for their own use. So are those that Theano compiles.
MEDDLER = """
import atexit, json, os, sys, threading, time

def talk():
    while True:
        os.write(1, b'{"event": "hello"}\\n' * 3)
        time.sleep(0.02)

def list_modules():
    with open(os.environ["DEEPSTONE_TEST_MODULES"], "w") as file:
        files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
        json.dump(sorted(name for name, path in files.items() if path and "/compiledir_" not in path), file)
    print("goodbye")

threading.Thread(target=talk, daemon=True).start()
atexit.register(list_modules)
"""

# The same for a worker in Lua, which has no threads: a shell talks on its stdout until it is gone.
MEDDLER_IN_LUA = """
require('ffi').cdef 'int getpid(void);'
local talk = [[while kill -0 %d 2>/dev/null; do echo '{"event": "hello"}'; sleep 0.02; done &]]
os.execute(talk:format(require('ffi').C.getpid()))

local at_exit = newproxy(true)
getmetatable(at_exit).__gc = function()
   local names = {}
   for name in pairs(package.loaded) do
      names[#names + 1] = '"' .. name .. '"'
   end
   io.open(os.getenv 'DEEPSTONE_TEST_MODULES', 'w'):write('[' .. table.concat(names, ', ') .. ']')
   print 'goodbye'
end
package.loaded.at_exit = at_exit
"""


def meddling(name: str, folder: Path) -> dict[str, str]:
    """The variables with which the worker of a framework runs the meddler in this folder."""
    if registry.BACKENDS[name.partition("@")[0]].language == "lua":
        (folder / "meddler.lua").write_text(MEDDLER_IN_LUA)
        return {"LUA_INIT": f"@{folder / 'meddler.lua'}"}
    (folder / "sitecustomize.py").write_text(MEDDLER)
    return {"PYTHONPATH": str(folder)}


def busy_life(name: str, phase: str = "") -> Life:
    """Every request once, and some twice. A test of a phase that the backend has not is skipped, if it says so."""
    if phase not in ("", "forward") and name in FORWARD_ONLY:
        assert_refuses_to_train(name, phase)
        pytest.skip("it runs networks and does not train them, and says so")
    return record_busy_lives(name)[phase or most_of_a_step(name)]


def most_of_a_step(name: str) -> str:
    return "forward" if name in FORWARD_ONLY else "train"


@functools.cache
def assert_refuses_to_train(name: str, phase: str) -> None:
    """By the worker itself, and before there is one."""
    job = contract_job(name, phase=phase)
    with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
        talk.hello()
        with pytest.raises(JobFailed, match="does not train") as refusal:
            talk.prepare()
    assert refusal.value.outcome == "unsupported"
    assert job.broken_rule == refusal.value.reason


def contract_job(name: str, *, variables: Mapping[str, str] = {}, **axes: Value) -> Job:
    """`variables` as if the environment needed them."""
    environment = environment_of(name)
    environment = replace(environment, variables={**environment.variables, **variables})
    return tiny_job(name, environment=environment, **{"threads": 1, "phase": most_of_a_step(name), **axes})


@functools.cache
def record_busy_lives(name: str) -> dict[str, Life]:
    """By phase: one worker is given job after job."""
    phases = ("forward",) if name in FORWARD_ONLY else ("forward", "gradient", "train")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        modules = Path(folder) / "modules.json"
        patch.setenv("DEEPSTONE_TEST_MODULES", str(modules))
        job_of = functools.partial(contract_job, name, variables=meddling(name, Path(folder)))
        with talking_to_worker(job_of(), timeout_s=TIMEOUT_S) as talk:
            hello = talk.hello()
            lives = {phase: busy_with(talk, hello, job_of(phase=phase)) for phase in phases}
            exit_code = talk.close().exit_code
        for life in lives.values():
            life.exit_code, life.modules = exit_code, json.loads(modules.read_text())
    return lives


def busy_with(talk: Conversation, hello: Hello, job: Job) -> Life:
    life = Life(hello=hello, prepared=talk.prepare(job))
    life.refusals.append(refused(talk, "fly"))
    life.arrays["parameters"] = load(talk.dump("parameters"))
    if job.phase != "forward":
        life.arrays["gradients"] = load(talk.dump("gradients"))
    life.arrays["buffers"] = load(talk.dump("buffers"))
    life.blocks.append(talk.block(samples=4, steps_per_sample=2))
    life.blocks.append(talk.block(samples=3, lead=5))
    if life.prepared.phases is not None:
        life.phase_s = talk.phases(3)
    life.last_loss = talk.losses(0)[0]
    life.losses = talk.losses(3)
    life.memory = talk.memory()
    life.refusals.append(refused(talk, "jump"))
    life.blocks.append(talk.block(samples=1))
    return life


STEPS_IN_BLOCKS = 4 * 2 + (5 + 3)
STEPS_IN_PHASES = 3


def steps_before_losses(life: Life) -> int:
    """Where the busy life reads its losses: after the first step, two blocks and, where they are marked, the phases."""
    return 1 + STEPS_IN_BLOCKS + (0 if life.prepared.phases is None else STEPS_IN_PHASES)


@functools.cache
def quiet_life(name: str) -> Life:
    """The losses of as many steps as the busy life runs, a nap, and some losses of another seed.

    Whoever imported a module from the controller's working directory would end there.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in ("torch", "tensorflow", "jax", "numpy", "json", "deepstone"):
            (Path(folder) / module).mkdir()
            (Path(folder) / module / "__init__.py").write_text("raise SystemExit('the wrong module')")
        for module in ("torch", "nn", "ffi"):
            (Path(folder) / f"{module}.lua").write_text("os.exit(1)")
        patch.chdir(folder)
        with talking_to_worker(contract_job(name), timeout_s=TIMEOUT_S) as talk:
            life = Life(hello=talk.hello(), prepared=talk.prepare())
            life.losses = talk.losses(0) + talk.losses(steps_before_losses(life) + 2)
            life.idle_cpu_s = idle_cpu_s(life.hello.pid)
            talk.prepare(contract_job(name, seed=1))
            life.losses_of_another_seed = talk.losses(0) + talk.losses(3)
            life.exit_code = talk.close().exit_code
    return life


def refused(talk: Conversation, request: str) -> JobFailed:
    with pytest.raises(JobFailed) as refusal:
        talk._reply(request)
    return refusal.value


def load(files: dict[str, Path]) -> dict[str, np.ndarray]:
    return {name: np.load(path) for name, path in files.items()}


def timed_s(block: BlockTimes) -> float:
    return sum(block.step_s) * block.steps_per_sample


def idle_cpu_s(pid: int) -> float:
    """CPU time that a worker uses in half a second without a request, once its thread pools have gone to sleep."""
    used_s = math.inf
    for _ in range(10):  # on a busy machine that takes a while
        time.sleep(0.5)
        before_s = cpu_s(pid)
        time.sleep(0.5)
        used_s = min(used_s, cpu_s(pid) - before_s)
        if used_s <= LITTLE_CPU_S:
            break
    return used_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@every_backend
class TestAnswers:
    def test_hello_tells_who_speaks(self, subject: Subject):
        hello = busy_life(subject.name).hello
        assert hello.pid > 0
        assert (hello.python or hello.runtime).count(".") == 2
        assert hello.framework["name"] == subject.name.partition("@")[0]
        assert hello.framework["version"]
        assert hello.import_s >= 0

    @every_phase
    def test_every_phase_is_prepared(self, subject: Subject, phase: str):
        prepared = busy_life(subject.name, phase).prepared
        assert prepared.build_s >= 0
        assert prepared.first_step_s > 0
        assert prepared.effective["phase"].value == phase

    @every_phase
    def test_effective_names_every_axis_and_contradicts_nothing(self, subject: Subject, phase: str):
        effective = busy_life(subject.name, phase).prepared.effective
        assert set(effective) == set(AXES)
        for value in effective.values():
            assert value.source in ("observed", "set")
            assert isinstance(value.value, str | int)
        assert contradiction(contract_job(subject.name, phase=phase).request, effective) is None

    def test_effective_leaves_nothing_to_auto(self, subject: Subject):
        effective = busy_life(subject.name).prepared.effective
        assert {name for name, value in effective.items() if value.value == "auto"} == set()

    @every_phase
    def test_a_block_has_the_samples_that_were_asked_for(self, subject: Subject, phase: str):
        first, second, third = busy_life(subject.name, phase).blocks
        assert [len(block.step_s) for block in (first, second, third)] == [4, 3, 1]
        assert [block.steps_per_sample for block in (first, second, third)] == [2, 1, 1]
        assert (first.steps, second.steps) == (8, 3)
        for block in (first, second, third):
            assert all(math.isfinite(step_s) and step_s > 0 for step_s in block.step_s)
            assert timed_s(block) <= block.total_s * 1.001 + 1e-4
            assert 0 <= block.enqueue_s <= block.total_s

    def test_the_samples_fill_the_block(self, subject: Subject):
        """No step was left out of them, and none was counted twice. Others on the machine may come between two."""
        busy_life(subject.name)
        for blocks in zip(*(life.blocks for life in record_busy_lives(subject.name).values()), strict=True):
            # A step may take microseconds.
            assert any(0.5 * block.total_s < timed_s(block) + 1e-3 for block in blocks)

    def test_blocks_follow_each_other_on_one_clock(self, subject: Subject):
        first, second, third = busy_life(subject.name).blocks
        assert second.start_s >= first.start_s + first.total_s
        assert third.start_s >= second.start_s + second.total_s

    def test_lead_steps_run_and_are_not_timed(self, subject: Subject):
        first, second, _ = busy_life(subject.name).blocks
        between_s = second.start_s - (first.start_s + first.total_s)
        assert between_s > 5 * 0.3 * min(first.step_s + second.step_s)

    @every_phase
    def test_phases_are_marked_in_order_or_come_by_difference(self, subject: Subject, phase: str):
        life = busy_life(subject.name, phase)
        if life.prepared.phases is None:
            assert life.phase_s == {}
            return
        expected = {"forward": STEP_PHASES[:2], "gradient": STEP_PHASES[:3], "train": STEP_PHASES}[phase]
        assert life.prepared.phases == tuple(life.phase_s) == expected
        assert all(len(times) == 3 and min(times) >= 0 for times in life.phase_s.values())

    @every_phase
    def test_phases_add_up_to_about_a_step(self, subject: Subject, phase: str):
        life = busy_life(subject.name, phase)
        if life.prepared.phases is None:
            pytest.skip("a step is one program")
        step_s = min(life.blocks[0].step_s + life.blocks[1].step_s)
        whole_s = min(sum(parts) for parts in zip(*life.phase_s.values(), strict=True))
        assert step_s / 4 < whole_s < step_s * 4

    def test_losses_are_numbers(self, subject: Subject):
        life = busy_life(subject.name)
        assert len(life.losses) == 3
        assert all(map(math.isfinite, [life.last_loss, *life.losses]))

    @every_phase
    def test_memory_says_what_it_knows_and_why_not_the_rest(self, subject: Subject, phase: str):
        memory = busy_life(subject.name, phase).memory
        assert set(memory) == {"host_peak_bytes", "device_allocated_bytes", "device_reserved_bytes"}
        for value in memory.values():
            assert value.reason if isinstance(value, Absent) else value > 0
        assert 2**23 < memory["host_peak_bytes"] < 2**35

    def test_an_unknown_request_is_refused_and_survived(self, subject: Subject):
        life = busy_life(subject.name)
        for refusal, name in zip(life.refusals, ("fly", "jump"), strict=True):
            assert refusal.outcome == "unsupported"
            assert name in refusal.reason
            assert refusal.stage == name
        assert len(life.blocks[-1].step_s) == 1

    @every_phase
    def test_asked_to_close_it_goes(self, subject: Subject, phase: str):
        assert busy_life(subject.name, phase).exit_code == 0


@every_backend
class TestArrays:
    @every_phase
    def test_parameters_are_all_there(self, subject: Subject, phase: str):
        assert_like_the_graph(busy_life(subject.name, phase).arrays["parameters"])

    def test_gradients_are_all_there(self, subject: Subject):
        assert_like_the_graph(busy_life(subject.name, "gradient").arrays["gradients"])

    def test_a_whole_step_that_is_one_program_keeps_no_gradients(self, subject: Subject):
        life = busy_life(subject.name, "train")
        if life.prepared.phases is None:
            assert life.arrays["gradients"] == {}
        else:
            assert_like_the_graph(life.arrays["gradients"])

    @pytest.mark.parametrize("phase", ["forward", "gradient"])
    def test_without_an_update_the_parameters_are_the_initial_ones(self, subject: Subject, phase: str):
        dumped = busy_life(subject.name, phase).arrays["parameters"]
        for name, initial in flat(initial_parameters(tiny(), 0)).items():
            np.testing.assert_array_equal(dumped[name], initial, err_msg=name)


@every_training_backend
class TestTraining:
    def test_the_first_update_is_the_learning_rate_times_the_gradient(self, subject: Subject):
        after = busy_life(subject.name, "train").arrays["parameters"]
        gradients = busy_life(subject.name, "gradient").arrays["gradients"]
        for name, initial in flat(initial_parameters(tiny(), 0)).items():
            moved, expected = after[name] - initial, -LEARNING_RATE * gradients[name]
            np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=2e-7 * np.abs(initial).max(), err_msg=name)
            assert np.any(moved != 0), name

    def test_every_gradient_has_something_to_say(self, subject: Subject):
        for name, gradient in busy_life(subject.name, "gradient").arrays["gradients"].items():
            assert np.linalg.norm(gradient) > 0, name

    def test_buffers_are_all_there(self, subject: Subject):
        buffers = busy_life(subject.name).arrays["buffers"]
        graph = tiny()
        expected = {f"{layer.name}/{name}": s for layer in graph.layers for name, s in graph.buffers(layer).items()}
        assert {name: array.shape for name, array in buffers.items()} == expected != {}
        assert np.any(buffers["norm/running_mean"] != 0)

    def test_the_same_seed_gives_the_same_losses_whatever_else_is_asked(self, subject: Subject):
        """Two processes; and a step too many or too few in any request would shift the losses against each other."""
        busy, quiet = busy_life(subject.name), quiet_life(subject.name)
        steps = steps_before_losses(busy)
        assert busy.last_loss == pytest.approx(quiet.losses[steps - 1], rel=1e-5)
        assert busy.losses == pytest.approx(quiet.losses[steps : steps + 3], rel=1e-5)
        falling = quiet.losses[steps - 2 :]
        assert all(before > after * (1 + 1e-4) for before, after in itertools.pairwise(falling))

    def test_another_seed_gives_other_losses(self, subject: Subject):
        first, other = quiet_life(subject.name).losses, quiet_life(subject.name).losses_of_another_seed
        assert all(abs(a - b) > 1e-4 for a, b in zip(first, other, strict=False))

    def test_without_an_update_the_loss_stays(self, subject: Subject):
        life = busy_life(subject.name, "gradient")
        assert life.losses == pytest.approx([life.last_loss] * 3, rel=1e-5)
        assert life.last_loss == pytest.approx(quiet_life(subject.name).losses[0], rel=1e-5)


def assert_like_the_graph(arrays: dict[str, np.ndarray]) -> None:
    graph = tiny()
    expected = {f"{layer.name}/{name}": s for layer in graph.layers for name, s in graph.parameters(layer).items()}
    assert {name: array.shape for name, array in arrays.items()} == expected
    assert all(np.isfinite(array).all() and array.dtype == np.float32 for array in arrays.values())


def flat(parameters: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {f"{layer}/{name}": array for layer, arrays in parameters.items() for name, array in arrays.items()}


@every_backend
class TestTheProcess:
    def test_it_holds_the_standard_library_numpy_and_the_framework_alone(self, subject: Subject):
        modules = set(busy_life(subject.name).modules)
        tops = {name.partition(".")[0] for name in modules}
        ours = {name for name in modules if name.startswith("deepstone.")}
        homes = {".".join(name.split(".")[:2]) for name in ours}
        in_lua = registry.BACKENDS[subject.name.partition("@")[0]].language == "lua"
        assert homes <= WORKER_SIDE | ({"deepstone.worker"} if in_lua else set())
        home = "deepstone.backends.legacy" if subject.name in LEGACY else f"deepstone.backends.{subject.name}"
        assert any(name == home or name.startswith(f"{home}.") for name in ours)
        allowed = {"deepstone", "sitecustomize", "numpy", "at_exit"} | framework_modules(subject.name)
        allowed |= {"pynvml"} if subject.name == "torch" else set()  # torch imports it where it is installed
        foreign = {top for top in tops - allowed if not is_builtin_like(top)}
        assert foreign == set()
        assert (tops - framework_modules(subject.name)).isdisjoint({"psutil", "typer", "rich", "archspec", "click"})

    def test_what_is_printed_does_not_disturb_the_protocol(self, subject: Subject):
        """The busy worker says a false hello on stdout fifty times a second."""
        assert '{"event": "hello"}' in busy_life(subject.name).refusals[-1].details.stderr_tail

    def test_between_requests_it_sleeps(self, subject: Subject):
        assert quiet_life(subject.name).idle_cpu_s <= LITTLE_CPU_S

    def test_a_folder_in_the_working_directory_does_not_shadow_anything(self, subject: Subject):
        quiet = quiet_life(subject.name)
        assert quiet.hello.framework == busy_life(subject.name).hello.framework
        assert len(quiet.losses_of_another_seed) == 4
        assert quiet.exit_code == 0


# In the framework's own interpreter: the standard library, and the top-level modules of whatever distribution holds the
# package named, and of everything that one requires.
LIST_MODULES = """
import importlib.metadata, json, re, sys

def plain(name):
    return name.lower().replace("_", "-")

owners = importlib.metadata.packages_distributions()
wanted, found = list(owners.get(sys.argv[1], [])), set()
while wanted:
    name = plain(wanted.pop())
    if name in found:
        continue
    found.add(name)
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    needed = [text for text in requirements if "extra ==" not in text]
    wanted += [match[0] for text in needed if (match := re.match(r"[A-Za-z0-9._-]+", text))]
modules = {top for top, names in owners.items() if {plain(name) for name in names} & found}
print(json.dumps(sorted(modules | set(sys.stdlib_module_names))))
"""


# The same in an old Python, which cannot tell who owns a module: all that lies in the environment, which holds nothing
# but the framework and what that needs.
LIST_OLD_MODULES = """
import json, os, sys, sysconfig
paths = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
paths += [os.path.join(paths[0], "lib-dynload")] + [path for path in sys.path if path.endswith("dist-packages")]
print(json.dumps(sorted({name.split(".")[0] for path in paths if os.path.isdir(path) for name in os.listdir(path)})))
"""


# The standard library, LuaJIT's own, torch and nn, and what these load: paths, libraries by the names of their files.
LUA_MODULES = """
    _G package string table math io os debug coroutine bit jit jit.opt ffi torch libtorch paths libpaths nn libnn libsys
    sys xlua cwrap moses argcheck env sundown optim threads
"""


@functools.cache
def framework_modules(name: str) -> set[str]:
    if registry.BACKENDS[name.partition("@")[0]].language == "lua":
        return set(LUA_MODULES.split())
    command: list[Any] = [*environment_of(name).command, "-c", LIST_OLD_MODULES]
    if name not in (*LEGACY, *FORWARD_ONLY):  # the latter has beside it what its networks are written with
        command = [environment_of(name).program, "-c", LIST_MODULES, registry.BACKENDS[name].package]
    return set(json.loads(subprocess.run(command, capture_output=True, timeout=200, check=True).stdout))


def is_builtin_like(top: str) -> bool:
    """What an interpreter or a compiler of extensions adds without a package of its own."""
    # The latter ones of NumPy before 1.17 and SciPy 1.6, whose extensions have forgotten their package.
    return top.startswith("_") or top in ("cython_runtime", "mtrand", "constants", "highs_wrapper")


class TestAWorkerThatIsAskedWrongly:
    def test_another_protocol_is_refused(self):
        with talking_to_worker(tiny_job("fake"), timeout_s=TIMEOUT_S) as talk:
            with pytest.raises(JobFailed, match="protocol 99") as refusal:
                talk._reply("hello", protocol=99)
            assert refusal.value.outcome == "crashed"
            assert talk.hello().pid > 0

    def test_a_request_before_hello_fails_and_is_survived(self):
        with talking_to_worker(tiny_job("fake"), timeout_s=TIMEOUT_S) as talk:
            assert refused(talk, "memory").outcome == "crashed"
            talk.hello()
            talk.prepare()
            assert talk.memory()["host_peak_bytes"] > 0


def pythons() -> list[Path]:
    """Interpreters of pyenv from 3.6 on, and those that DEEPSTONE_TEST_PYTHONS names, separated by colons."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"))
    newer = [path for path in found if int(path.parts[-3].split(".")[1]) >= 6]
    return newer + [Path(name) for name in os.environ.get("DEEPSTONE_TEST_PYTHONS", "").split(":") if name]


every_python = pytest.mark.parametrize("python", pythons(), ids=lambda path: f"{path.parts[-3]}")


class TestOldPythons:
    @every_python
    def test_what_workers_share_compiles_and_runs(self, python: Path):
        """Annotations are evaluated when a module is run, so compiling alone would not tell."""
        package = SERVE_PATH.parent.parent
        backends = package / "backends"
        shared = [SERVE_PATH, package / "graph" / "batch.py", package / "setups" / "honoured.py"]
        shared += [*sorted((backends / "legacy").glob("*.py"))]
        shared += [backends / f"{name}.py" for name in ("base", "cpu_backend", "effective", "isolated")]
        shared += [backends / "onednn_log.py", backends / "wire_graph.py"]
        program = """
            import sys
            absent = ("numpy", "deepstone", "torch", "tensorflow", "mxnet", "chainer", "theano", "cntk", "caffe",
                      "neon")
            for path in sys.argv[1:]:
                code = compile(open(path, encoding="utf-8").read(), path, "exec")
                try:
                    exec(code, {"__name__": "shared", "__file__": path})
                except ImportError as error:
                    assert any(name in str(error) for name in absent), error
        """
        command = [python, "-I", "-W", "error", "-c", textwrap.dedent(program), *shared]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr

    @every_python
    def test_a_worker_serves(self, python: Path, monkeypatch: pytest.MonkeyPatch):
        probe = subprocess.run([python, "-c", "import numpy"], capture_output=True, timeout=200, check=False)
        if probe.returncode != 0:
            pytest.skip("this interpreter has no NumPy")
        info = dataclasses.replace(registry.BACKENDS["fake"], module="plain_backend")
        monkeypatch.setitem(registry.BACKENDS.own, "fake", info)
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
        environment = Environment(framework="fake", version="1", program=python, lock={})
        with talking_to_worker(tiny_job("fake", environment=environment), timeout_s=TIMEOUT_S) as talk:
            assert talk.hello().framework["name"] == "plain"
            assert tuple(talk.prepare().phases or ()) == STEP_PHASES
            assert talk.block(samples=3, steps_per_sample=2).steps == 6
            assert set(talk.phases(2)) == set(STEP_PHASES)
            assert_like_the_graph(load(talk.dump("parameters")))
            total = sum(float(array.sum()) for array in flat(initial_parameters(tiny(), 0)).values())
            steps = 1 + 6 + 2 * 4
            assert talk.losses(0) == pytest.approx([total * steps], rel=1e-4)
            assert talk.close().exit_code == 0
        job = tiny_job("fake", environment=environment, precision="bf16")
        with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk:
            talk.hello()
            with pytest.raises(JobFailed, match="plain numbers only"):
                talk.prepare()
