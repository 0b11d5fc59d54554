"""Timelines of two real processes of torch: what is planted is found, in the part where it belongs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from patience import shown
from tiny_jobs import tiny, tiny_job

from deepstone.absent import Absent
from deepstone.environments.find import find_environment
from deepstone.measure.effort import Effort
from deepstone.results.parallel import Account, Logged, Timeline
from deepstone.results.quantity import Quantity
from deepstone.runner.team import Team, talking_to_team
from deepstone.runner.timeline import Traced, trace_steps
from deepstone.setups.axes import Value

PLANTED = Path(__file__).with_name("planted_delays")
QUICK = Effort(budget_s=2.0)
SLOW_RANK_S = 0.03
SLOW_REDUCTION_S = 0.04


@contextmanager
def team_of(delays: dict[str, float], **axes: Value) -> Iterator[Team]:
    """Two processes that have run some steps."""
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_DELAYS": json.dumps(delays)}
    environment = replace(find_environment("torch"), variables=variables)
    job = tiny_job("torch", environment=environment, **{"device": "cpu", "processes": 2, "threads": 1, **axes})
    with talking_to_team(job, timeout_s=250.0) as team:
        team.hello()
        team.prepare()
        team.block(samples=3)
        yield team


class Traces:
    """Traces of one team: the first ones serve all tests, and more are made where these do not show something."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._made: list[Traced] = []

    def number(self, at: int) -> Traced:
        if at == len(self._made):
            self._made.append(trace_steps(self.team, self.team.block(samples=5).step_s[-1], QUICK))
        return self._made[at]

    def show(self, is_so: Callable[[Account, Traced], bool]) -> bool:
        numbers = count()

        def look() -> bool:
            found = self.number(next(numbers))
            assert not isinstance(found.account, Absent)
            return is_so(found.account, found)

        return shown(look)


def holds(part: Quantity, planted_s: float) -> bool:
    """A busy machine lengthens every sleep, and shortens none."""
    return 0.9 * planted_s <= part.median <= 1.4 * planted_s


def gradient_bytes() -> int:
    graph = tiny()
    return 4 * sum(math.prod(shape) for layer in graph.layers for shape in graph.parameters(layer).values())


def kinds_of(timeline: Timeline) -> list[set[str]]:
    return [{span.kind for span in lane.spans} - {"waiting"} for lane in timeline.lanes]


class TestOverlap:
    @pytest.fixture(scope="class")
    @classmethod
    def traces(cls) -> Iterator[Traces]:
        with team_of({"rank 1": SLOW_RANK_S, "reduce": SLOW_REDUCTION_S}) as team:
            yield Traces(team)

    def test_a_slow_rank_is_waiting_of_the_other(self, traces: Traces):
        assert traces.show(lambda account, _: holds(account.ranks[0].waiting_s, SLOW_RANK_S))

    def test_a_slow_reduction_is_tail(self, traces: Traces):
        assert traces.show(lambda account, _: holds(account.tail_s, SLOW_REDUCTION_S))

    def test_nothing_is_left_over(self, traces: Traces):
        """Half of the slow rank is waiting of the other one; its own half is computing."""
        planted_s = SLOW_REDUCTION_S + SLOW_RANK_S / 2
        assert traces.show(lambda account, _: holds(account.total_s, planted_s))
        assert traces.show(lambda account, _: abs(account.residual_s.median) < 0.15 * planted_s)

    def test_torch_says_the_same_of_plain_steps(self, traces: Traces):
        def agrees(account: Account, found: Traced) -> bool:
            assert isinstance(found.logged, Logged)
            return holds(found.logged.communication_s, account.in_flight_s.median)

        assert traces.show(agrees)

    def test_what_a_step_tells(self, traces: Traces):
        timeline = traces.number(0).timeline
        assert isinstance(timeline, Timeline)
        expected = {"data", "buffers", "forward", "backward", "reduce", "unpack", "update"}
        assert kinds_of(timeline) == [expected] * 2
        for lane in timeline.lanes:
            in_order = [span for span in lane.spans if span.kind not in ("reduce", "waiting")]
            assert all(a.end_s <= b.begin_s for a, b in pairwise(in_order))
            assert all(0 <= span.begin_s <= span.end_s <= timeline.step_s for span in lane.spans)
            assert sum(span.bytes for span in lane.spans if span.kind == "reduce") == gradient_bytes()

    def test_the_replicas_are_equal_and_train_on(self, traces: Traces):
        traces.number(0)
        traces.team.block(samples=2)
        traces.team.sample("parameters", most=128)
        assert traces.team.differing == []


def test_one_packed_buffer():
    with team_of({"reduce": SLOW_REDUCTION_S}, overlap="off") as team:
        traces = Traces(team)
        assert traces.show(lambda account, _: holds(account.tail_s, SLOW_REDUCTION_S))
        assert traces.show(lambda account, _: account.packing_s.median > 0)
        found = traces.number(0)
        assert isinstance(found.timeline, Timeline)
        assert kinds_of(found.timeline) == [{"data", "forward", "backward", "pack", "reduce", "unpack", "update"}] * 2
        assert isinstance(found.logged, Absent)


@pytest.mark.deep
def test_what_only_plain_steps_have_is_left_over():
    with team_of({"plain": SLOW_REDUCTION_S}) as team:
        traces = Traces(team)
        assert traces.show(lambda account, _: holds(account.residual_s, SLOW_REDUCTION_S))
        assert traces.show(lambda account, _: account.tail_s.median < SLOW_REDUCTION_S / 4)


@pytest.mark.deep
@pytest.mark.parametrize("compression", ["fp16", "powersgd", "onebit"])
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_compressed_gradients_and_parts_of_a_batch(compression: str, overlap: str):
    with team_of({}, compression=compression, overlap=overlap, accumulate=2) as team:
        found = Traces(team).number(0)
        assert isinstance(found.timeline, Timeline)
        assert [span.kind for span in found.timeline.lanes[0].spans].count("forward") == 2
        assert isinstance(found.account, Account)
        assert found.account.in_flight_s.median > 0
        team.sample("parameters", most=128)
        assert team.differing == []
