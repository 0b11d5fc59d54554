"""`deepstone comm`: how long processes take to send each other data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deepstone.absent import Absent
from deepstone.cli.completion import complete_axis
from deepstone.cli.declare import argument, examples, flag, seconds
from deepstone.cli.draw import FigureFile, check_figure, draw_figure
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import noise_at_start, quiet_machine
from deepstone.cli.options import MeasuringOptions, OutputOptions
from deepstone.cli.output import Column, Data, print_json, print_lines, print_table
from deepstone.cli.plans import answers_of
from deepstone.cli.progress import progress_bar
from deepstone.cli.stopped import Stopped
from deepstone.errors import MissingError
from deepstone.setups.request import changed
from deepstone.setups.transfers import TRANSFERS
from deepstone.units import bytes_, count, digits
from deepstone.units import seconds as in_seconds

if TYPE_CHECKING:
    from deepstone.measure.noise import NoiseReading
    from deepstone.results.comm import CommCurve, CommCurves, CommPoint, TransportRatio
    from deepstone.results.findings import Finding
    from deepstone.results.quantity import Quantity
    from deepstone.scaling.measure import CommPlan

EXAMPLES = examples(
    "deepstone comm transport=gloo,mpi processes=2",
    "deepstone comm operation=allreduce size=1K..256M*2 --under-load -o comm.svg",
    "deepstone comm resnet50 processes=2 --json",
    before="Words: operation=allreduce,p2p,broadcast,reducescatter,allgather (default: all), size=1K..64M (four times "
    "each; *2 twice), and the axes transport, processes, nodes, launcher, interface, device, threads.",
)
_LAUNCHES: Final = 3
_BUDGET_S: Final = 20.0
_WIDEST_RATIO: Final = 10.0  # of high to low
_FASTER: Final = {
    "a faster": "{a} is faster",
    "b faster": "{b} is faster",
    "no difference shown": "no difference shown",
}


def comm(
    axes: Annotated[
        list[str] | None,
        argument("[MODEL] WORD=VALUE", "A model for its own gradients; what to measure.", complete_axis),
    ] = None,
    under_load: Annotated[
        bool, flag("--under-load", "Also how much computing and communication slow each other down.")
    ] = False,
    launches: Annotated[
        int, typer.Option("--launches", help="Fresh processes so often.", metavar="N", min=1, max=100)
    ] = _LAUNCHES,
    budget: Annotated[
        float, seconds("--budget", "Spend about so many seconds on timed transfers.", least=0.1)
    ] = _BUDGET_S,
    *,
    measuring: MeasuringOptions,
    output: FigureFile = None,
    out: OutputOptions,
) -> None:
    """How long processes take to send each other data: time, bandwidth and a fit, over sizes and transports.

    Every result is checked; a wrong one has no number. Sizes and transports take turns, and so do fresh processes. Of a
    MODEL, the buckets of its own gradients are sent. What was found is stored, and `results show` prints it again. Exit
    codes: 0 all ok, 1 a result was wrong or some processes failed, 3 it could not be stored, 4 something is missing.
    """
    begin = noise_at_start()
    words = list(axes or [])
    options = [*(["--under-load"] if under_load else [])]
    options += changed(("--launches", launches, _LAUNCHES), ("--budget", budget, _BUDGET_S))
    plan = _planned(words, ("deepstone", "comm", *words, *options), launches, budget, measuring.timeout, under_load)
    check_figure(output)
    if out.dry_run:
        _print_plan(plan, as_json=out.json)
        return
    finding_store = FindingStore.open(out.store)
    finding = _measured(plan, finding_store, begin_wait=(begin, measuring.wait_until_quiet))
    if out.json:
        print_json(finding)
    else:
        show_comm(finding)
    if finding.outcome == "ok":
        draw_figure(finding, output)
    finding_store.leave_if_failed()
    _leave(finding)


def _planned(
    words: Sequence[str], command: Sequence[str], launches: int, budget_s: float, timeout_s: float, under_load: bool
) -> CommPlan:
    from deepstone.exchange.load import load_model
    from deepstone.scaling.comm_words import read_words

    read = read_words(words)
    frameworks = [lane["framework"] for lane in read.lanes[:1] if "framework" in lane]
    loaded = None if read.model is None else load_model(read.model, frameworks=frameworks, timeout_s=timeout_s)
    # Imported only now, because it is slow: wrong words are reported at once.
    from deepstone.scaling.comm import plan_comm

    return plan_comm(
        read, loaded, command, launches=launches, budget_s=budget_s, timeout_s=timeout_s, under_load=under_load
    )


def _measured(plan: CommPlan, store: FindingStore, *, begin_wait: tuple[NoiseReading, str | None]) -> Finding:
    """Measure and store. What was measured before a signal is stored too."""
    from deepstone.runner.assemble import now
    from deepstone.scaling.comm import finding_of, task_words
    from deepstone.scaling.measure import CommMeasured, measure_comm

    measured = CommMeasured.nothing_yet(plan)
    with progress_bar(1) as bar:

        def stored() -> Finding:
            found = finding_of(plan, measured)
            return store.keep(found, plan.jobs[0], started_at=started_at, say=bar.say, method=task_words(plan))

        bar.begin("communication")
        quiet_machine(*begin_wait).before(plan.jobs, bar.say)
        started_at = now()
        try:
            measure_comm(plan, measured, bar.advance)
        except Stopped as stopped:
            stopped.kept = "nothing was measured yet"
            if measured.launches:
                stored()
                stopped.kept = "what was measured is stored"
            raise
        bar.end()
        return stored()


def _leave(finding: Finding) -> None:
    """Exit with an error if a result was wrong or processes failed; with that of something missing if it is."""
    content = _content(finding)
    outcomes = {failure.outcome for failure in content.failed}
    if "missing" in outcomes:
        raise typer.Exit(MissingError.exit_code)
    if finding.outcome != "ok" or outcomes or not content.is_checked:
        raise typer.Exit(1)


def _print_plan(plan: CommPlan, *, as_json: bool) -> None:
    from deepstone.runner.muster import launcher_of

    jobs: list[dict[str, Data]] = [
        {
            "transport": str(job.request["transport"]),
            "processes": job.request["processes"],
            "nodes": job.request["nodes"],
            "launcher": launcher_of(job),
            "framework": f"{job.environment.framework}@{job.environment.version}",
            "can_run": answer,
        }
        for job, answer in zip(plan.jobs, answers_of(plan.jobs), strict=True)
    ]
    if as_json:
        planned: dict[str, Data] = {"operations": list(plan.operations), "sizes": list(plan.sizes), "jobs": jobs}
        print_json({"command": shlex.join(plan.jobs[0].command), **planned})
        return
    names = ("transport", "processes", "nodes", "launcher", "framework", "can_run")
    columns = [Column(heading=name.replace("_", " "), wraps=20 if name == "can_run" else 0) for name in names]
    print_table(columns, [[str(job[name]) for name in names] for job in jobs])
    sizes = ", ".join(bytes_(size) for size in plan.sizes) or "the buckets of its gradients"
    operations = ", ".join(TRANSFERS[name].title for name in plan.operations)
    print_lines(["", f"{operations}", f"sizes: {sizes}", f"{plan.launches} launches, {plan.budget_s:g} s in all"])


# --- in words ---


def show_comm(finding: Finding) -> None:
    content = _content(finding)
    groups: dict[tuple[str, int, int], list[CommCurve]] = {}
    for curve in content.curves:
        groups.setdefault((curve.operation, curve.processes, curve.nodes), []).append(curve)
    for number, curves in enumerate(groups.values()):
        if number:
            print_lines([""])
        _show_group(finding, content, curves)
    lines = [
        f"{each.transport}, {each.processes} processes: {each.outcome}: {each.reason}"
        for each in (*content.lacking, *content.failed)
    ]
    lines += [f"doubt: {doubt.code}: {doubt.detail}" for doubt in content.doubts]
    print_lines(["", *lines] if lines and groups else lines, hang=4)


def _content(finding: Finding) -> CommCurves:
    from deepstone.results.comm import CommCurves

    assert isinstance(finding.content, CommCurves)
    return finding.content


def _show_group(finding: Finding, content: CommCurves, curves: Sequence[CommCurve]) -> None:
    """The curves of one operation among as many processes, side by side."""
    first = curves[0]
    where = f"{first.processes} processes" + (f" on {first.nodes} nodes" if first.nodes > 1 else "")
    model = f"{finding.model}: " if finding.model else ""
    print_lines([f"{model}{TRANSFERS[first.operation].title}, {where}, {content.interval}", ""])
    ratios = [
        ratio for ratio in content.ratios if (ratio.operation, ratio.processes) == (first.operation, first.processes)
    ]
    columns = [Column(heading="size", right=True)]
    for curve in curves:
        columns.append(Column(heading=f"{curve.transport}\ntime", right=True))
        columns.append(Column(heading=f"{curve.transport}\nbus bandwidth", right=True, rank=1))
    by_size = {ratio.bytes: ratio for ratio in ratios if ratio.what == "operation"}
    if by_size and len(curves) == 2:
        columns.append(Column(heading=f"time of {curves[0].transport}\nover {curves[1].transport}", right=True))
    print_table(columns, [_row(size, curves, by_size) for size in _sizes(curves)])
    print_lines(["", *(line for curve in curves for line in _about(curve)), *_step_ratios(ratios)], hang=4)


def _sizes(curves: Sequence[CommCurve]) -> list[int]:
    return sorted({point.bytes for curve in curves for point in curve.points})


def _row(size: int, curves: Sequence[CommCurve], ratios: dict[int, TransportRatio]) -> list[str]:
    cells = [bytes_(size)]
    for curve in curves:
        point = next((point for point in curve.points if point.bytes == size), None)
        cells += _point_cells(point)
    if ratios and len(curves) == 2:
        cells.append(_ratio_cell(ratios[size].time_ratio) if size in ratios else "")
    return cells


def _ratio_cell(ratio: Quantity) -> str:
    """An interval over powers of ten says that launches differ more than the transports do."""
    if ratio.has_interval and ratio.high > _WIDEST_RATIO * ratio.low:
        return "not resolved"
    return _in_words(ratio)


def _point_cells(point: CommPoint | None) -> list[str]:
    if point is None:
        return ["", ""]
    if not point.checked:
        return ["wrong result", ""]
    if isinstance(point.time_s, Absent) or isinstance(point.busbw, Absent):
        return ["–", "–"]
    return [_seconds(point.time_s), _rate(point.busbw.median)]


def _about(curve: CommCurve) -> list[str]:
    name = curve.transport
    lines = [f"{name}: {curve.library or curve.transport}, started by {curve.launcher.name}"]
    if isinstance(curve.fit, Absent):
        lines.append(f"  fit: {curve.fit.reason}")
    else:
        pieces = [
            f"{in_seconds(each.alpha_s)} + {digits(each.beta_s_per_byte * 1e9)} ns/byte up to {bytes_(each.to_bytes)}"
            for each in curve.fit.segments
        ]
        lines.append(f"  fit: {'; '.join(pieces)} (residual {digits(100 * curve.fit.residual, 2)} %)")
    if curve.buckets is not None:
        sizes = " + ".join(bytes_(size) for size in curve.buckets.bytes)
        total = curve.buckets.sum_s
        lines.append(f"  a step: {sizes}: {total.reason if isinstance(total, Absent) else _seconds(total)}")
    if isinstance(curve.wire, Absent):
        lines.append(f"  wire: not counted: {curve.wire.reason}")
    else:
        lines.append(f"  wire: {digits(curve.wire.ratio)} of the bytes that {bytes_(curve.wire.bytes)} need")
    if isinstance(curve.under_load, Absent):
        lines.append(f"  under load: {curve.under_load.reason}")
    elif curve.under_load is not None:
        load = curve.under_load
        lines.append(
            f"  under load ({load.compute} beside {bytes_(load.bytes)}): computing takes "
            f"{_in_words(load.compute_slowdown)} times as long, communication {_in_words(load.communication_slowdown)}"
        )
    wrong = [
        f"  {bytes_(point.bytes)}: {point.time_s.reason}" for point in curve.points if isinstance(point.time_s, Absent)
    ]
    return [*lines, *wrong, *([f"  left out: {curve.left_out}"] if curve.left_out else [])]


def _step_ratios(ratios: Sequence[TransportRatio]) -> list[str]:
    return [
        f"a step's gradients by {each.a} take {_in_words(each.time_ratio)} times as long as by {each.b}: "
        f"{_FASTER[each.verdict].format(a=each.a, b=each.b)}"
        for each in ratios
        if each.what == "step"
    ]


def _in_words(quantity: Quantity) -> str:
    if not quantity.has_interval:
        return digits(quantity.median)
    return f"{digits(quantity.median)} ({digits(quantity.low)} – {digits(quantity.high)})"


def _seconds(quantity: Quantity) -> str:
    if not quantity.has_interval:
        return in_seconds(quantity.median)
    return f"{in_seconds(quantity.median)} ({in_seconds(quantity.low)} – {in_seconds(quantity.high)})"


def _rate(bytes_per_s: float) -> str:
    return count(bytes_per_s, "B/s")
