"""Operations between processes, in real ones: they give what they must, and a wrong result is seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from deepstone.backends.torch.communicator import Buffers
from deepstone.backends.torch.transfers import Transfers
from deepstone.backends.transfers import UNTIL_DONE, run_beside
from deepstone.environments.find import find_environment
from deepstone.runner.examine import probe_job
from deepstone.runner.job import Machine
from deepstone.runner.replies import Transferred
from deepstone.runner.team import Team, talking_to_team
from deepstone.setups.transfers import TRANSFERS

TEAMS = [("torch", "gloo", 3), ("torch", "mpi", 2), ("tensorflow", "grpc", 2), ("jax", "gloo", 3)]
LACKING = {"tensorflow": {"p2p", "broadcast", "reducescatter"}, "jax": {"broadcast"}}
SIZES = (24, 1_200_000)  # for two and for three processes: a few numbers, and more than one message


def teams(framework: str, transport: str, processes: int) -> Iterator[Team]:
    request: dict[str, Any] = {"framework": framework, "device": "cpu", "threads": 1, "overlap": "off"}
    asked = {**request, "transport": transport, "processes": processes, "batch": 16 * processes}
    job = probe_job(find_environment(framework), Machine.here(), asked)
    with talking_to_team(job, timeout_s=120.0) as team:
        team.hello()
        team.prepare()
        yield team
        team.close()


@pytest.fixture(scope="module", params=TEAMS, ids=str)
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    yield from teams(*request.param)


def transferred(team: Team, operation: str, size: int) -> list[Transferred]:
    return team.ask(lambda rank: rank.transfer(operation, size))


def test_every_operation_gives_what_it_must_before_and_after_it_is_timed(team: Team) -> None:
    for operation in TRANSFERS:
        if operation in LACKING.get(str(team.job.request["framework"]), ()):
            assert {bool(reply.unsupported) for reply in transferred(team, operation, SIZES[0])} == {True}
            continue
        for size in SIZES:
            (program,) = {reply.program for reply in transferred(team, operation, size)}
            found = team.block(samples=2, steps_per_sample=2, program=program)
            assert all(step_s > 0 for step_s in found.step_s)
            assert [reply.wrong for reply in transferred(team, operation, size)] == [""] * len(team.ranks)


def test_computing_and_communication_run_at_the_same_time(team: Team) -> None:
    (program,) = {reply.program for reply in transferred(team, "allreduce", SIZES[-1])}
    both = team.ask(lambda rank: rank.beside(program, 20, "local", UNTIL_DONE))
    alone = team.ask(lambda rank: rank.beside(program, 0, "local", 3))
    assert all(len(reply.transfer_s) == 20 for reply in both)
    assert all((len(reply.transfer_s), len(reply.step_s)) == (0, 3) for reply in alone)


class OneOfTwo:
    """Rank 1 of two processes whose library forgets its work, does half of it, or does it right."""

    rank, world = 1, 2

    def __init__(self, does: Callable[[Buffers], None]) -> None:
        self._does = does

    def transfers(self, buffers: Buffers) -> dict[str, Callable[[], None]]:
        return dict.fromkeys(TRANSFERS, lambda: self._does(buffers))


def added(buffers: Buffers) -> None:
    buffers.whole.add_(buffers.whole - 1)  # what rank 0 has


def half_added(buffers: Buffers) -> None:
    half = buffers.whole[: buffers.whole.numel() // 2]
    half.add_(half - 1)


@pytest.mark.parametrize("operation", TRANSFERS)
def test_a_library_that_does_nothing_is_seen(operation: str) -> None:
    found = Transfers(OneOfTwo(lambda buffers: None), torch.device("cpu")).prepare(operation, 8192)  # pyright: ignore[reportArgumentType]
    assert found["wrong"]


def test_half_a_sum_is_seen_and_a_whole_one_is_right() -> None:
    wrong = Transfers(OneOfTwo(half_added), torch.device("cpu")).prepare("allreduce", 8192)["wrong"]  # pyright: ignore[reportArgumentType]
    assert wrong == "1,024 of 2,048 numbers; number 1024 is 1025 and must be 2049"
    assert not Transfers(OneOfTwo(added), torch.device("cpu")).prepare("allreduce", 8192)["wrong"]  # pyright: ignore[reportArgumentType]


class TestBeside:
    def test_steps_that_outlast_the_transfers_do_not_count(self) -> None:
        found = run_beside(
            lambda: time.sleep(0.02), 5, lambda: time.sleep(0.005), UNTIL_DONE, lambda: None, nullcontext()
        )
        assert len(found["transfer_s"]) == 5
        assert sum(found["step_s"]) <= sum(found["transfer_s"]) + 1e-3

    def test_a_transfer_that_waits_by_itself_waits_for_no_step(self) -> None:
        waited_in: list[str] = []
        run_beside(
            lambda: None,
            3,
            lambda: None,
            3,
            lambda: waited_in.append(threading.current_thread().name),
            nullcontext(),
            transfer_waits=True,
        )
        assert waited_in == [threading.current_thread().name] * 3

    def test_either_can_run_by_itself(self) -> None:
        def never() -> None:
            raise AssertionError

        alone = run_beside(never, 0, lambda: None, 4, lambda: None, nullcontext())
        assert (len(alone["transfer_s"]), len(alone["step_s"])) == (0, 4)
        alone = run_beside(lambda: None, 4, never, 0, lambda: None, nullcontext())
        assert (len(alone["transfer_s"]), len(alone["step_s"])) == (4, 0)

    def test_what_fails_in_the_thread_fails(self) -> None:
        def fail() -> None:
            raise RuntimeError("the network is gone")

        with pytest.raises(RuntimeError, match="the network is gone"):
            run_beside(fail, 1, lambda: None, UNTIL_DONE, lambda: None, nullcontext())
