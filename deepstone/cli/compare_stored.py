"""`deepstone results compare`: two runs or two setups of a store, measured apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli.compare import OTHER_SIDES
from deepstone.cli.declare import examples
from deepstone.cli.options import Json, StorePath
from deepstone.cli.output import Data, print_json, print_lines
from deepstone.cli.stores import filters_in, open_store, records_in
from deepstone.errors import UsageError
from deepstone.units import digits

if TYPE_CHECKING:
    from deepstone.analysis.cases import Case
    from deepstone.analysis.contrast import Contrast
    from deepstone.results.record import Record
    from deepstone.results.searched import Searched
    from deepstone.store.store import Store

EXAMPLES = examples(
    "deepstone results compare 3f2a 77bc",
    "deepstone results compare model=resnet50 batch=32 layout=nchw -- layout=nhwc",
    before="Two ids; or NAME=VALUE for both sides, and after -- what overrides it for B.",
)
_HOW = "give two ids, or NAME=VALUE … -- NAME=VALUE …"


def compare_stored(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Two ids; or NAME=VALUE for both, with what differs after --.", metavar="ID|NAME=VALUE"),
    ] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Two runs, or two setups with all their rounds: the ratio of their speeds, A over B, and a verdict.

    They were measured apart unless rounds ran both in turns. `deepstone compare` measures two setups together.
    """
    from deepstone.analysis.contrast import contrast_sides, differences

    a, b = _sides(open_store(store), list(words or []), ctx.meta.get(OTHER_SIDES, []))
    differ_in = differences(a.record, b.record).axes
    found = contrast_sides(a, b, never_in={"phase"})  # which changes the workload, not the way to run it
    if json:
        print_json(_as_json(a, b, differ_in, found))
    else:
        print_lines(_lines(a, b, differ_in, found), hang=4)
    if isinstance(found, Absent):
        raise typer.Exit(1)


def _sides(store: Store, words: list[str], others: Sequence[list[str]]) -> tuple[Case, Case]:
    searched = store.searched()
    if not others:
        if len(words) != 2 or any("=" in word for word in words):
            raise UsageError(f"results compare takes two sides: {_HOW}")
        return _case([store.get(words[0])], "A", searched), _case([store.get(words[1])], "B", searched)
    overrides, *further = others
    if further:
        raise UsageError(f"results compare takes two sides, so one --: {_HOW}")
    if not overrides:
        raise UsageError(f"nothing follows --: {_HOW}")
    changed = {word.partition("=")[0] for word in overrides}
    kept = [word for word in words if word.partition("=")[0] not in changed]
    sides = (words, [*kept, *overrides])
    cases = [_case(records_in(store, filters_in(side)), name, searched) for side, name in zip(sides, "AB", strict=True)]
    return cases[0], cases[1]


def _case(records: Sequence[Record], side: str, searched: Searched) -> Case:
    """Return the case that the records of a side form."""
    from deepstone.analysis.cases import cases
    from deepstone.analysis.gate import title_of

    found = cases(records, searched)
    if not found:
        raise UsageError(f"side {side} has no run; `deepstone results list` shows those there are")
    if len(found) > 1:
        some = "; ".join(title_of(case.record) for case in found[:3]) + ("; …" if len(found) > 3 else "")
        raise UsageError(f"side {side} holds {len(found)} setups, not one ({some}); give more NAME=VALUE")
    return found[0]


def _as_json(a: Case, b: Case, differ_in: Sequence[str], found: Contrast | Absent) -> dict[str, Data]:
    answer: dict[str, Data] = {"a": _side_json(a), "b": _side_json(b), "differ_in": list(differ_in)}
    if isinstance(found, Absent):
        return {**answer, "ratio": found, "verdict": found, "how": found}
    return {**answer, **found.to_json()}


def _side_json(case: Case) -> dict[str, Data]:
    from deepstone.analysis.gate import title_of

    return {
        "title": title_of(case.record),
        "runs": list(case.runs),
        "samples_per_s": case.samples_per_s,
        "interval": case.interval,
        "requested": dict(case.record.setup.requested),
        "doubts": list(case.doubts),
    }


def _lines(a: Case, b: Case, differ_in: Sequence[str], found: Contrast | Absent) -> Iterator[str]:
    yield from _side_lines("A", a)
    yield from _side_lines("B", b)
    yield f"they differ in: {', '.join(differ_in) or 'nothing that was chosen'}"
    if isinstance(found, Absent):
        yield f"not compared: {found.reason}"
        return
    if "framework" in differ_in:
        yield "whether both compute the same was not looked at here; `deepstone verify` does"
    ratio = found.speed_ratio
    yield f"speed, A over B: {digits(ratio.median)}    {ratio.interval_in_words(digits)}"
    yield found.how
    yield f"verdict: {found.verdict}"


def _side_lines(name: str, case: Case) -> Iterator[str]:
    from deepstone.analysis.gate import title_of

    yield f"{name}  {title_of(case.record)}"
    speed = case.samples_per_s
    if isinstance(speed, Absent):
        yield f"   {speed.reason}"
    else:
        workload = case.record.workload
        counted = speed.scaled(workload.things_per_sample)
        rate = f"{digits(counted.median)} {workload.things}/s"
        yield f"   {rate}    {counted.interval_in_words(digits)} ({case.interval})"
    yield f"   run {', '.join(case.runs)}"
    if case.doubts:
        yield f"   doubts: {', '.join(case.doubts)}"
