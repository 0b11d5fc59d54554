"""`deepstone results compare`: two runs or two setups of a store, which were measured apart, as the answer says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.compare import SIDE_B
from deepstone.cli.options import Json, StorePath, examples, filters_in, open_store, record_json, records_in
from deepstone.cli.output import print_json, print_lines
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.analysis.cases import Case
    from deepstone.records.schema import Record
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
    a, b = _sides(open_store(store), list(words or []), ctx.meta.get(SIDE_B))
    answer = _compared(a, b)
    if json:
        print_json(answer)
    else:
        print_lines(_lines(answer), hang=4)
    if "absent" in answer["ratio"]:
        raise typer.Exit(1)


def _sides(store: Store, words: list[str], overrides: list[str] | None) -> tuple[Case, Case]:
    if overrides is None:
        if len(words) != 2 or any("=" in word for word in words):
            raise UsageError(f"results compare takes two sides: {_HOW}")
        return _case([record_json(store, words[0])], "A"), _case([record_json(store, words[1])], "B")
    if not overrides:
        raise UsageError(f"nothing follows --: {_HOW}")
    changed = {word.partition("=")[0] for word in overrides}
    kept = [word for word in words if word.partition("=")[0] not in changed]
    sides = (words, [*kept, *overrides])
    cases = [_case(records_in(store, filters_in(side)), name) for side, name in zip(sides, "AB", strict=True)]
    return cases[0], cases[1]


def _case(records: Sequence[Record], side: str) -> Case:
    """The one case that the records of a side make up."""
    from deepstone.analysis.cases import cases
    from deepstone.analysis.gate import title_of
    from deepstone.results.codec import typed_records

    found = cases(typed_records(records))
    if not found:
        raise UsageError(f"side {side} has no run; `deepstone results list` shows those there are")
    if len(found) > 1:
        some = "; ".join(title_of(case.record) for case in found[:3]) + ("; …" if len(found) > 3 else "")
        raise UsageError(f"side {side} holds {len(found)} setups, not one ({some}); give more NAME=VALUE")
    return found[0]


def _compared(a: Case, b: Case) -> dict[str, Any]:
    from deepstone.absent import Absent
    from deepstone.analysis.contrast import contrast_sides, differences

    differ_in = differences(a.record, b.record).axes
    found = contrast_sides(a, b, never_in={"phase"})  # which is another question, not another way to do the same
    answer = {"a": _side(a), "b": _side(b), "differ_in": list(differ_in)}
    if isinstance(found, Absent):
        return {**answer, "ratio": found.to_json(), "verdict": found.to_json(), "how": found.to_json()}
    return {**answer, **found.to_json()}


def _side(case: Case) -> dict[str, Any]:
    from deepstone.analysis.gate import title_of

    return {
        "title": title_of(case.record),
        "runs": list(case.runs),
        "samples_per_s": case.samples_per_s.to_json(),
        "interval": case.interval,
        "requested": dict(case.record.setup.requested),
        "doubts": list(case.doubts),
    }


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    from deepstone.records.quantity import interval_in_words
    from deepstone.units import digits

    for name in ("a", "b"):
        side = answer[name]
        yield f"{name.upper()}  {side['title']}"
        speed = side["samples_per_s"]
        if "absent" in speed:
            yield f"   {speed['absent']}"
        else:
            yield f"   {digits(speed['median'])} images/s    {interval_in_words(speed, digits)} ({side['interval']})"
        yield f"   run {', '.join(side['runs'])}"
        if side["doubts"]:
            yield f"   doubts: {', '.join(side['doubts'])}"
    yield f"they differ in: {', '.join(answer['differ_in']) or 'nothing that was chosen'}"
    ratio = answer["ratio"]
    if "absent" in ratio:
        yield f"not compared: {ratio['absent']}"
        return
    if "framework" in answer["differ_in"]:
        yield "whether both compute the same was not looked at here; `deepstone verify` does"
    yield f"speed, A over B: {digits(ratio['median'])}    {interval_in_words(ratio, digits)}"
    yield answer["how"]
    yield f"verdict: {answer['verdict']}"
