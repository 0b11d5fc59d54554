"""Steps of all ranks with a timestamp at both ends of every part: where the time between processes goes.

    rank 0   forward ──┼── backward ──┤·········waiting·········├── tail ──┤ update ┤
    rank 1   forward ────────┼─────────── backward ─────────────┤── tail ──┤ update ┤
    reduce                        ├───── in flight ────────────────────────┤

They follow all timed steps, in the same processes: launches of one job differ by per cents, and an account of what a
step of one launch takes by the trace of another one would not close. They take turns with plain steps, with steps
without communication and with steps that only pack gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, TypeAlias

from msgspec import Struct, field

from deepstone.absent import Absent
from deepstone.measure.accounting import StepParts, account_of, mean_of_ranks
from deepstone.measure.effort import Effort
from deepstone.measure.statistics import median_of
from deepstone.results.parallel import Account, Lane, Logged, RankAccount, Span, Timeline
from deepstone.runner.replies import TracedStep
from deepstone.runner.team import Team
from deepstone.runner.turns import ALWAYS_S, in_turn, turns_within
from deepstone.trace.events import Event
from deepstone.units import seconds

_BUDGET_SHARE: Final = 0.25  # of the budget, if steps are short
_LIMIT_SHARE: Final = 0.5
_MOST_STEPS: Final = 50  # of a program in a round
_LOGGED_STEPS: Final = 12
_LOGGED_SHARE: Final = 0.25  # of what traced steps may take
_UNLOGGED_STEPS: Final = 2  # run before them
_PLAIN: Final = ""
_COMPUTES: Final = ("data", "forward", "backward", "pack")  # what a rank does before it can only wait
_PACKS: Final = ("pack", "unpack")
_BUFFERS: Final = "buffers"
_NOT_LOGGED: Final = Absent("steps are long, and this takes steps of its own")
_COMPUTING: Final = "1 computing"
_CATEGORIES: Final = {
    "waiting": "waiting",
    "buffers": "communication",
    "pack": "communication",
    "reduce": "communication",
    "unpack": "communication",
}
METHOD: Final = "timestamps in steps of their own, in turns with plain steps"

StepOfJob: TypeAlias = Sequence[TracedStep]  # one step, by rank, all by one clock
WorkerSpan: TypeAlias = tuple[str, float, float, int]  # kind, begin, end, bytes


class Traced(Struct, frozen=True, kw_only=True):
    """`steps`: every traced step of the job. `ended_workers`: it failed, and all workers were ended."""

    account: Account | Absent
    logged: Logged | Absent
    timeline: Timeline | Absent
    steps: list[StepOfJob] = field(default_factory=list[StepOfJob])
    ended_workers: bool = False

    @staticmethod
    def not_done(why: str, *, ended_workers: bool = False) -> Traced:
        absent = Absent(why)
        return Traced(account=absent, logged=absent, timeline=absent, ended_workers=ended_workers)


def trace_steps(team: Team, step_s: float, effort: Effort) -> Traced:
    """The replicas are made equal again after it."""
    programs = team.open_timeline()
    if isinstance(programs, Absent):
        return Traced.not_done(programs.reason)
    if "local" not in programs:
        return Traced.not_done("the account of communication needs steps without it, traced in the same way")
    share_s, limit_s = _BUDGET_SHARE * effort.budget_s, max(ALWAYS_S, _LIMIT_SHARE * effort.budget_s)
    turns = turns_within(step_s, programs=1 + len(programs), share_s=share_s, limit_s=limit_s)
    if turns.over_limit_s:
        return _one_step(team, _beyond_budget(turns.seconds(step_s, 1 + len(programs)), turns.over_limit_s))
    steps, untimed = min(turns.steps, _MOST_STEPS), turns.untimed
    plain: list[list[float]] = []
    found: dict[str, list[list[StepOfJob]]] = {program: [] for program in programs}
    for turn in range(turns.rounds):
        for program in in_turn((_PLAIN, *programs), turn):
            if program == _PLAIN:
                team.block(samples=steps, untimed=untimed)
                of_ranks = (block.step_s for block in team.last_blocks)
                plain.append([fmean(each) for each in zip(*of_ranks, strict=True)])
            else:
                found[program].append(_traced(team, program, steps, untimed))
    log_steps = min(_LOGGED_STEPS, turns.rounds * steps, int(_LOGGED_SHARE * limit_s / step_s) - _UNLOGGED_STEPS)
    logged = logged_of(team.logged_times(log_steps)) if log_steps > 0 else _NOT_LOGGED
    team.close_timeline()
    team.restore()
    traced = [step for of_round in found["train"] for step in of_round]
    account = close_account(plain, found["train"], found["local"], found.get("pack"))
    return Traced(account=account, logged=logged, timeline=timeline_of(traced), steps=traced)


def _traced(team: Team, program: str, steps: int, untimed: int) -> list[StepOfJob]:
    return by_step(team.timeline(program, steps, untimed=untimed), team.clock_offsets_s())


def _one_step(team: Team, no_account: Absent) -> Traced:
    """Enough for a timeline."""
    steps = _traced(team, "train", steps=1, untimed=0)
    team.close_timeline()
    return Traced(account=no_account, logged=no_account, timeline=timeline_of(steps), steps=steps)


def _beyond_budget(least_s: float, over_limit_s: float) -> Absent:
    """With the budget that has room for them."""
    limit_s = least_s - over_limit_s
    return Absent(
        f"steps are long: the fewest that an account needs take {seconds(least_s)}, and {seconds(limit_s)} of the "
        f"budget are for them; give --budget {math.ceil(least_s / _LIMIT_SHARE)}"
    )


def by_step(ranks: Sequence[Sequence[TracedStep]], offsets_s: Sequence[float]) -> list[StepOfJob]:
    """Steps of the job, all by the clock of rank 0; `offsets_s` are added to the clock of each rank."""
    aligned = [[_moved(step, by_s) for step in steps] for steps, by_s in zip(ranks, offsets_s, strict=True)]
    return [list(step) for step in zip(*aligned, strict=True)]


def _moved(step: TracedStep, by_s: float) -> TracedStep:
    spans = [(kind, begin_s + by_s, end_s + by_s, size) for kind, begin_s, end_s, size in step.spans]
    return TracedStep(begin_s=step.begin_s + by_s, end_s=step.end_s + by_s, spans=spans)


def close_account(
    plain: Sequence[Sequence[float]],
    traced: Sequence[Sequence[StepOfJob]],
    local: Sequence[Sequence[StepOfJob]],
    packing: Sequence[Sequence[StepOfJob]] | None,
) -> Account:
    """`plain`: the time of plain steps, by round; the others: traced steps of three programs, by round."""
    parts = {
        name: [[parts_of(step) for step in of_round] for of_round in rounds]
        for name, rounds in (("traced", traced), ("local", local), ("packing", packing))
        if rounds is not None
    }

    means = {
        name: [[mean_of_ranks(step) for step in of_round] for of_round in rounds] for name, rounds in parts.items()
    }
    ranks: list[RankAccount] = []
    for rank in range(len(traced[0][0])):
        own = {name: [[step[rank] for step in of_round] for of_round in rounds] for name, rounds in parts.items()}
        found = account_of(plain, own["traced"], own["local"], own.get("packing"))
        ranks.append(RankAccount(waiting_s=found["waiting"], tail_s=found["tail"], slowdown_s=found["slowdown"]))
    found = account_of(plain, means["traced"], means["local"], means.get("packing"))
    return Account(**{f"{name}_s": quantity for name, quantity in found.items()}, ranks=ranks, method=METHOD)


def parts_of(step: StepOfJob) -> list[StepParts]:
    """By rank. Once a rank has computed and packed what it can, it waits until the others have, too; what is left of
    the reductions then is the tail."""
    ready_s = _ready_s(step)
    return [_parts(step, number, own_s, max(ready_s)) for number, own_s in enumerate(ready_s)]


def _ready_s(step: StepOfJob) -> list[float]:
    """By rank: when it has nothing more to compute before the reductions are done."""
    return [
        max((end_s for kind, _, end_s, _ in rank.spans if kind in _COMPUTES), default=rank.begin_s) for rank in step
    ]


def _parts(step: StepOfJob, number: int, ready_s: float, all_ready_s: float) -> StepParts:
    rank = step[number]
    waited_until_s, reduced_s = _exchange_ends(rank, ready_s, all_ready_s)
    for_buffers_s = sum(end_s - begin_s for _, begin_s, end_s, _ in _waiting_for_buffers(step, number))
    waiting_s, tail_s = waited_until_s - ready_s + for_buffers_s, reduced_s - waited_until_s
    packing_s, buffers_s = _sum(rank, _PACKS), _sum(rank, (_BUFFERS,)) - for_buffers_s
    total_s = rank.end_s - rank.begin_s
    return StepParts(
        total_s=total_s,
        computing_s=total_s - waiting_s - tail_s - packing_s - buffers_s,
        waiting_s=waiting_s,
        tail_s=tail_s,
        packing_s=packing_s,
        buffers_s=buffers_s,
        in_flight_s=_covered_s([(begin_s, end_s) for kind, begin_s, end_s, _ in rank.spans if kind == "reduce"]),
    )


def _waiting_for_buffers(step: StepOfJob, number: int) -> list[WorkerSpan]:
    """Spans in which a rank is there to exchange buffers, and another one is not."""
    by_rank = [[span for span in rank.spans if span[0] == _BUFFERS] for rank in step]
    found: list[WorkerSpan] = []
    for of_ranks in zip(*by_rank, strict=True):
        _, begin_s, end_s, _ = of_ranks[number]
        until_s = min(max(begin for _, begin, _, _ in of_ranks), end_s)
        found += [("waiting", begin_s, until_s, 0)] if until_s > begin_s else []
    return found


def _exchange_ends(rank: TracedStep, ready_s: float, all_ready_s: float) -> tuple[float, float]:
    """When this rank has waited for the others, and when its last reduction is done."""
    last_s = max((end_s for kind, _, end_s, _ in rank.spans if kind == "reduce"), default=ready_s)
    reduced_s = max(last_s, ready_s)
    return min(max(ready_s, all_ready_s), reduced_s), reduced_s


def _sum(rank: TracedStep, kinds: Sequence[str]) -> float:
    return sum(end_s - begin_s for kind, begin_s, end_s, _ in rank.spans if kind in kinds)


def _covered_s(spans: Sequence[tuple[float, float]]) -> float:
    """How long at least one of them lasts."""
    covered_s, until_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        covered_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return covered_s


def timeline_of(steps: Sequence[StepOfJob]) -> Timeline:
    """The step whose time is in the middle."""
    ordered = sorted(steps, key=_duration_s)
    step = ordered[len(ordered) // 2]
    begin_s = min(rank.begin_s for rank in step)
    lanes = [
        Lane(
            rank=number,
            spans=[
                Span(kind=kind, begin_s=from_s - begin_s, end_s=to_s - begin_s, bytes=size)
                for kind, from_s, to_s, size in spans
            ],
        )
        for number, spans in enumerate(with_waiting(step))
    ]
    return Timeline(step_s=_duration_s(step), lanes=lanes)


def with_waiting(step: StepOfJob) -> list[list[WorkerSpan]]:
    """The spans of each rank in their order, with what it waits for the others."""
    ready_s = _ready_s(step)
    found: list[list[WorkerSpan]] = []
    for number, (rank, own_s) in enumerate(zip(step, ready_s, strict=True)):
        until_s, _ = _exchange_ends(rank, own_s, max(ready_s))
        waiting = _waiting_for_buffers(step, number)
        waiting += [("waiting", own_s, until_s, 0)] if until_s > own_s else []
        found.append(sorted([*rank.spans, *waiting], key=lambda span: (span[1], span[2])))
    return found


def _duration_s(step: StepOfJob) -> float:
    return max(rank.end_s for rank in step) - min(rank.begin_s for rank in step)


def logged_of(ranks: Sequence[Mapping[str, list[float]] | Absent]) -> Logged | Absent:
    known: list[Mapping[str, list[float]]] = []
    for rank in ranks:
        if isinstance(rank, Absent):
            return rank
        known.append(rank)
    means = {name: [fmean(each) for each in zip(*(rank[name] for rank in known), strict=True)] for name in known[0]}
    return Logged(**{name: median_of([[values]]) for name, values in means.items()})


def trace_events(steps: Sequence[StepOfJob], hosts: Sequence[str]) -> list[Event]:
    """Return a trace for Chrome and Perfetto: a track for each rank, all by one clock. `hosts`: that of every rank.

    rank 0 on a   1 computing   ├────────────────── step 1 ─────────────────┤
                                ├ forward ┼─ backward ─┤ waiting ┤   update ┤
                  2 reduce             ├── bucket 1 ──┤
                                           ├── bucket 2 ───────────┤          on a line of its own if it overlaps
    """
    names = [f"rank {rank} on {host}" if host else f"rank {rank}" for rank, host in enumerate(hosts)]
    found: list[Event] = []
    for number, step in enumerate(steps, start=1):
        for process, rank, spans in zip(names, step, with_waiting(step), strict=True):
            found.append(_event(process, _COMPUTING, f"step {number}", "step", rank.begin_s, rank.end_s))
            found += _computing(process, spans)
            found += _reductions(process, spans)
    return found


def _computing(process: str, spans: Sequence[WorkerSpan]) -> Iterator[Event]:
    for kind, begin_s, end_s, _ in spans:
        if kind != "reduce":
            yield _event(process, _COMPUTING, kind, _CATEGORIES.get(kind, "computing"), begin_s, end_s)


def _reductions(process: str, spans: Sequence[WorkerSpan]) -> Iterator[Event]:
    """Events of one line must not overlap, so a bucket takes the first line that is free."""
    free_s: list[float] = []
    buckets = (span for span in spans if span[0] == "reduce")
    for number, (_, begin_s, end_s, size) in enumerate(buckets, start=1):
        line = next((at for at, until_s in enumerate(free_s) if until_s <= begin_s), len(free_s))
        free_s[line : line + 1] = [end_s]
        thread, name = f"{line + 2} reduce", f"bucket {number}"
        yield _event(process, thread, name, "communication", begin_s, end_s, bytes=size)


def _event(process: str, thread: str, name: str, category: str, begin_s: float, end_s: float, **args: int) -> Event:
    return Event(
        name=name,
        category=category,
        thread=thread,
        start_s=begin_s,
        duration_s=end_s - begin_s,
        process=process,
        args=args,
    )
