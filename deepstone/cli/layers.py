"""`deepstone layers`: the time of each layer in a step, and frameworks side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli import declare
from deepstone.cli.declare import examples, file, flag
from deepstone.cli.draw import FigureFile, check_figure, check_folder
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import (
    findings_of,
    image_size,
    image_words,
    noise_at_start,
    plan,
    present,
    quiet_machine,
    refuse_lists,
    refuse_several_processes,
)
from deepstone.cli.layer_groups import show_groups
from deepstone.cli.options import Axes, Image, Json, Model, StorePath, Timeout, WaitUntilQuiet
from deepstone.cli.output import Column, print_lines, print_table
from deepstone.errors import UsageError
from deepstone.setups.request import changed
from deepstone.units import count, digits, percent, seconds

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.results.findings import Finding
    from deepstone.results.layers import Kernel, KernelTrace, LayerRow, LayerTable
    from deepstone.results.quantity import Quantity
    from deepstone.results.record import Workload
    from deepstone.runner.job import Job


EXAMPLES = examples(
    "deepstone layers alexnet-owt batch=32",
    "deepstone layers alexnet-owt framework=torch,tensorflow,jax     (side by side)",
    "deepstone layers resnet50 --kernels --trace trace.json",
    "deepstone layers resnet50 --json > layers.json; deepstone draw layers.json -o layers.svg",
)
METHODS = ("both", "in-place", "isolated")
MOST_ROWS = 30
MOST_KERNELS = 20
_ISOLATED = ("forward", "backward", "data", "weight")
_SHOWS = 0.005  # of the step; less is not mentioned


def layers(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    method: Annotated[
        str, typer.Option("--method", help="in-place, isolated or both.", metavar="METHOD", show_default=True)
    ] = "both",
    kernels: Annotated[bool, flag("--kernels", "Also kernels and, on a GPU, the runtime's calls.")] = False,
    trace: Annotated[Path | None, file("--trace", help="Write a trace for Chrome or Perfetto.")] = None,
    output: FigureFile = None,
    everything: Annotated[bool, flag("--all", "Every layer, not only the costly ones.")] = False,
    budget: Annotated[float, declare.seconds("--budget", "Stop after so many seconds of timed steps.")] = 20.0,
    timeout: Timeout = 1800.0,
    wait_until_quiet: WaitUntilQuiet = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Time each layer, forward and backward: in place, inside whole steps, where the framework lets it, and isolated.

    Only framework may list several values. What was found is stored, and `results show` prints it again. Exit codes:
    0 all ok, 1 some framework failed, 3 it could not be stored, 4 framework missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    if method not in METHODS:
        raise UsageError(f"--method {method}: choose {', '.join(METHODS[:-1])} or {METHODS[-1]}")
    begin = noise_at_start()
    choices = parse_words(axes or [])
    refuse_lists(choices, "layers")
    requests = expand(choices)
    refuse_several_processes(requests, "layers")
    if trace is not None and len(requests) > 1:
        raise UsageError("--trace: one file holds one framework's trace; name one framework")
    loaded = load_model(model, frameworks=choices.get("framework", ()), timeout_s=timeout, image=image_size(image))
    check_folder(trace)
    check_figure(output)
    # Imported only now, because it is slow: wrong words are reported at once.
    from deepstone.runner.findings import layers_finding
    from deepstone.runner.layers.measure import LayersEffort

    effort = LayersEffort(
        budget_s=budget,
        timeout_s=timeout,
        in_place=method != "isolated",
        isolated=method != "in-place",
        kernels=kernels,
        trace_path=trace,
    )
    options = changed(("--budget", budget, 20.0), ("--timeout", timeout, 1800.0))
    options += [] if method == "both" else ["--method", method]
    options += ["--kernels"] if kernels else []
    jobs = plan(loaded, requests, ("deepstone", "layers", model), [*image_words(image), *options])
    quiet = quiet_machine(begin, wait_until_quiet)
    finding_store = FindingStore.open(store)

    def find(job: Job, bar: Bar) -> Finding:
        quiet.before([job], bar.say)
        return layers_finding(job, effort, bar.advance)

    present(
        findings_of(jobs, find, finding_store, method=method),
        show=lambda reports: show_layers(reports, everything=everything),
        output=output,
        json=json,
        store=finding_store,
    )


def show_layers(findings: Mapping[str, Finding], *, everything: bool) -> None:
    from deepstone.results.layers import LayerTable

    good = {name: each for name, each in findings.items() if each.outcome == "ok"}
    tables = {name: each.content for name, each in good.items() if isinstance(each.content, LayerTable)}
    if len(tables) == 1:
        name, table = next(iter(tables.items()))
        _show_one(good[name], table, everything)
    elif tables:
        _show_side_by_side(next(iter(good.values())).workload, tables, everything)
    for name, each in findings.items():
        if each.outcome != "ok":
            print_lines([f"{name}: {each.outcome}: {each.failure.reason if each.failure else ''}"])


def _show_one(finding: Finding, table: LayerTable, everything: bool) -> None:
    print_lines([_headline(finding), f"  {_how(table)}", ""], hang=4)
    shown, rest = _costly(table.layers, everything)
    columns = [
        Column(heading="layer"),
        Column(heading="op", rank=4) if table.blocks is None else Column(heading="class"),
        Column(heading="forward", right=True),
        Column(heading="backward", right=True),
        Column(heading="share", right=True),
        Column(heading="FLOP/s\nforward", right=True, rank=2),
        Column(heading="FLOP/s\nbackward", right=True, rank=2),
        Column(heading="of the\nbound", right=True, rank=3),
        Column(heading="isolated:\nforward", right=True, rank=5),
        Column(heading="backward", right=True, rank=5),
        Column(heading="data", right=True, rank=6),
        Column(heading="weight", right=True, rank=6),
    ]
    rows = [_row(layer) for layer in shown]
    if rest:
        rows.append(_rest_row(rest, len(columns)))
    print_table(columns, rows)
    print_lines(["", *_totals(table)], hang=4)
    if table.blocks is None:
        print_lines(_group_lines(table), hang=4)
    else:
        show_groups(table)
    print_lines([*_kernel_lines(table), *_doubt_lines(table)], hang=4)


def _headline(finding: Finding) -> str:
    from deepstone.results.view import setup_words

    return f"{_work(finding.workload)} · {setup_words(finding.setup, 'precision', 'layout', 'engine')}"


def _work(workload: Workload | None) -> str:
    return "" if workload is None else f"{workload.model} · batch {workload.batch} · {workload.phase}"


def _how(table: LayerTable) -> str:
    return f"{table.method}; {table.rule}"


def _costly(layers: Sequence[LayerRow], everything: bool) -> tuple[list[LayerRow], list[LayerRow]]:
    """Return the slowest layers, in the order of the network, and the rest."""
    if everything or len(layers) <= MOST_ROWS:
        return list(layers), []
    chosen = _costliest({layer.name: layer.share for layer in layers})
    return [each for each in layers if each.name in chosen], [each for each in layers if each.name not in chosen]


def _costliest(shares: Mapping[str, float]) -> set[str]:
    return set(sorted(shares, key=lambda name: -shares[name])[:MOST_ROWS])


def _row(layer: LayerRow) -> list[str]:
    rates, isolated, bound = layer.flops_per_s, layer.isolated, layer.bound
    isolated_cells = (
        ("", "", "", "")
        if isinstance(isolated, Absent)
        else tuple(map(_time, (isolated.forward_s, isolated.backward_s, isolated.data_s, isolated.weight_s)))
    )
    return [
        layer.name,
        "function" if layer.op.endswith("()") else layer.op,  # its name contains it
        _time(layer.forward_s),
        _time(layer.backward_s),
        percent(layer.share) if layer.share >= 0 else "–",
        *(("", "") if isinstance(rates, Absent) else (_rate(rates.forward), _rate(rates.backward))),
        "" if isinstance(bound, Absent) or isinstance(bound.share, Absent) else percent(bound.share),
        *isolated_cells,
    ]


def _rest_row(rest: Sequence[LayerRow], width: int) -> list[str]:
    forward_s, backward_s = (sum(map(_median_s, times)) for times in zip(*map(_passes, rest), strict=True))
    row = [
        f"{len(rest)} others",
        "",
        seconds(forward_s),
        seconds(backward_s),
        percent(sum(each.share for each in rest)),
    ]
    return row + [""] * (width - len(row))


def _passes(layer: LayerRow) -> tuple[Quantity | Absent, Quantity | Absent]:
    return layer.forward_s, layer.backward_s


def _totals(table: LayerTable) -> list[str]:
    step = seconds(table.step_s.median)
    if isinstance(table.sum_s, Absent):
        isolated = table.isolated_sum_s
        addition = (
            "" if isinstance(isolated, Absent) else f"; isolated layers add up to {_sum(isolated)}, which is not a step"
        )
        return [f"step {step}{addition}", f"  {table.sum_s.reason}"]
    parts = [("layers", table.sum_s), ("update", table.update_s), ("data", table.data_s)]
    parts += [(part.name, part.s) for part in table.other]
    parts.append(("gaps", table.gaps_s))
    sums = " + ".join(f"{name} {seconds(_median_s(part))}" for name, part in parts if _median_s(part))
    lines = [
        f"step {step} untraced; {sums}",
        f"  together {seconds(_median_s(table.together_s))}, {_ratio(table.explained)} of it; each part was "
        "measured, none is the remainder",
        f"  the layers of it are {_ratio(table.layers_time_ratio)} of the untraced step",
        f"  traced, a step takes {seconds(_median_s(table.traced_step_s))}; round by round that is "
        f"{_ratio(table.traced_time_ratio)} of the untraced one{_medians_apart(table)}",
    ]
    return [*lines, *_saved_lines(table)]


def _ratio(ratio: Quantity | Absent | None) -> str:
    if ratio is None or isinstance(ratio, Absent):
        return "an unknown share"
    return f"{digits(ratio.median, 4)} ({ratio.span_in_words(lambda end: digits(end, 4))})"


def _medians_apart(table: LayerTable) -> str:
    """Explain why the parts do not add up to their step, if the difference is visible."""
    traced_s, together_s = _median_s(table.traced_step_s), _median_s(table.together_s)
    if abs(together_s - traced_s) <= _SHOWS * traced_s:
        return ""
    way = "less" if together_s < traced_s else "more"
    return (
        f"; the medians of its parts add up to {seconds(abs(traced_s - together_s))} {way}, since what disturbs a "
        "step hits another part each time"
    )


def _saved_lines(table: LayerTable) -> list[str]:
    """Return how much time a whole step saves over isolated layers, if the interval is on one side of zero."""
    saved, summed = table.fusion_saved_s, table.isolated_sum_s
    if isinstance(saved, Absent | int | float) or isinstance(summed, Absent):
        return []
    isolated = f"isolated layers ({_sum(summed)} together)"
    if not saved.has_interval or saved.low <= 0 <= saved.high:
        return [f"  not resolved: what layers save in place, against {isolated}: {saved.span_in_words(seconds)}"]
    low, high = sorted((abs(saved.low), abs(saved.high)))
    way = "less" if saved.median > 0 else "more"
    range_s = f"{seconds(low)} – {seconds(high)}"
    return [f"  in place layers take {seconds(abs(saved.median))} ({range_s}) {way} than {isolated}"]


def _group_lines(table: LayerTable) -> list[str]:
    return [
        f"{group.name} ({group.layers}) take {percent(group.share)} of the layers' time: "
        f"forward {seconds(group.forward_s)}, backward {seconds(group.backward_s)}"
        for group in table.groups
        if group.share > 0
    ]


def _kernel_lines(table: LayerTable) -> list[str]:
    if isinstance(table.kernels, Absent):
        reason = table.kernels.reason
        return [] if reason.startswith("not asked") else ["", f"kernels: {reason}"]
    trace = table.kernels
    lines = ["", f"kernels, over {trace.steps} traced steps, whose time is not the step's"]
    for kernel in _longest(trace.kernels):
        layers = ", ".join((kernel.layers or [])[:4])
        lines.append(f"  {seconds(kernel.total_s):>8}  {kernel.count:>6} × {kernel.name[:70]}  {layers}".rstrip())
    left = len(trace.kernels) - MOST_KERNELS
    lines += [f"  and {left} more; --json has all"] if left > 0 else []
    return [*lines, *_call_lines(trace)]


def _longest(kernels: Sequence[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=lambda kernel: -kernel.total_s)[:MOST_KERNELS]


def _call_lines(trace: KernelTrace) -> list[str]:
    lines: list[str] = []
    if trace.calls is not None and not isinstance(trace.calls, Absent):
        lines.append("calls of the runtime")
        lines += [
            f"  {seconds(call.total_s):>8}  {call.count:>6} × {call.name} ({call.kind})"
            for call in _longest(trace.calls)
        ]
    busy, span = trace.busy_s, trace.span_s
    if isinstance(busy, int | float) and isinstance(span, int | float) and span > 0:
        lines.append(f"device busy {percent(busy / span)} of {seconds(span)}")
        if trace.idle is not None and not isinstance(trace.idle, Absent):
            lines.append("  idle: " + ", ".join(f"{name} {seconds(value)}" for name, value in trace.idle.items()))
    return lines


def _doubt_lines(table: LayerTable) -> list[str]:
    return [f"doubt: {doubt.code}: {doubt.detail}" for doubt in table.doubts]


def _show_side_by_side(workload: Workload | None, tables: Mapping[str, LayerTable], everything: bool) -> None:
    print_lines([_work(workload), ""])
    cost: dict[str, float] = {}
    for table in tables.values():
        for layer in table.layers:
            cost[layer.name] = cost.get(layer.name, 0.0) + layer.share
    shown = set(cost) if everything or len(cost) <= MOST_ROWS else _costliest(cost)
    by_name = {name: {layer.name: layer for layer in table.layers} for name, table in tables.items()}
    columns = [Column(heading="layer")]
    for name in tables:
        columns += [
            Column(heading=f"{name}\nforward", right=True),
            Column(heading="\nbackward", right=True),
        ]
    rows = [_side_by_side_row([name], name, by_name) for name in cost if name in shown]
    if rest := [name for name in cost if name not in shown]:
        rows.append(_side_by_side_row(rest, f"{len(rest)} others", by_name))
    whole = {
        "update": [table.update_s for table in tables.values()],
        "gaps": [table.gaps_s for table in tables.values()],
        "whole step, untraced": [table.step_s for table in tables.values()],
    }
    rows += [[words, *(cell for time in times for cell in ("", _time(time)))] for words, times in whole.items()]
    print_table(columns, rows)
    lines = [""]
    for name, table in tables.items():
        lines += [f"{name}: {_how(table)}", *(f"  {line}" for line in _totals(table)), *_group_lines(table)[:2]]
        lines += _doubt_lines(table)
    print_lines(lines, hang=4)


def _side_by_side_row(names: Sequence[str], words: str, by_name: Mapping[str, Mapping[str, LayerRow]]) -> list[str]:
    cells = [words]
    for layers in by_name.values():
        found = [_passes(layers[name]) for name in names if name in layers]
        for at in (0, 1):
            total_s = sum(_median_s(times[at]) for times in found)
            cells.append(seconds(total_s) if total_s else "")
    return cells


def _median_s(time: Quantity | Absent | None) -> float:
    return 0.0 if time is None or isinstance(time, Absent) else time.median


def _sum(time: Quantity | float) -> str:
    """Format a sum; early findings have a plain number."""
    return seconds(time) if isinstance(time, int | float) else time.time_in_words()


def _time(time: Quantity | Absent) -> str:
    return "" if isinstance(time, Absent) else time.time_in_words()


def _rate(rate: float | Absent) -> str:
    return "" if isinstance(rate, Absent) else count(rate)
