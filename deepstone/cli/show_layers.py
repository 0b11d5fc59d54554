"""Layers as people read them: one framework in detail, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepstone.cli.output import print_lines, print_table
from deepstone.cli.table import Column
from deepstone.records.schema import is_absent
from deepstone.units import count, digits, percent, seconds

MOST_ROWS = 30
MOST_KERNELS = 20


def show_layers(reports: Mapping[str, Mapping[str, Any]], *, everything: bool) -> None:
    good = {name: report for name, report in reports.items() if report["outcome"] == "ok"}
    if len(good) == 1:
        _show_one(next(iter(good.values())), everything)
    elif good:
        _show_side_by_side(good, everything)
    for name, report in reports.items():
        if name not in good:
            print_lines([f"{name}: {report['outcome']}: {report['failure']['reason']}"])


def _show_one(report: Mapping[str, Any], everything: bool) -> None:
    print_lines([_headline(report), f"  {_how(report)}", ""], hang=4)
    shown, rest = _costly(report["layers"], everything)
    columns = [
        Column(heading="layer"),
        Column(heading="op", rank=4),
        Column(heading="forward", right=True),
        Column(heading="backward", right=True),
        Column(heading="share", right=True),
        Column(heading="FLOP/s\nforward", right=True, rank=2),
        Column(heading="FLOP/s\nbackward", right=True, rank=2),
        Column(heading="of the\nbound", right=True, rank=3),
        Column(heading="alone:\nforward", right=True, rank=5),
        Column(heading="backward", right=True, rank=5),
        Column(heading="data", right=True, rank=6),
        Column(heading="weight", right=True, rank=6),
    ]
    rows = [_row(layer) for layer in shown]
    if rest:
        rows.append(_rest_row(rest, len(columns)))
    print_table(columns, rows)
    print_lines(["", *_totals(report), *_group_lines(report), *_kernel_lines(report), *_doubt_lines(report)], hang=4)


def _headline(report: Mapping[str, Any]) -> str:
    workload = report["workload"]
    value = {axis: str(effect["value"]) for axis, effect in report["setup"]["effective"].items()}
    setup = ", ".join(value[axis] for axis in ("precision", "layout", "engine") if axis in value)
    framework = value["framework"].replace("@", " ")
    return f"{_work(workload)} · {framework} on {value['device']} ({setup})"


def _work(workload: Mapping[str, Any]) -> str:
    return f"{workload['model']} · batch {workload['batch']} · {workload['phase']}"


def _how(report: Mapping[str, Any]) -> str:
    return f"{report['method']}; {report['rule']}"


def _costly(layers: Sequence[Mapping[str, Any]], everything: bool) -> tuple[list[Mapping[str, Any]], list[Any]]:
    """The layers that cost most, in the order of the network, and the rest."""
    if everything or len(layers) <= MOST_ROWS:
        return list(layers), []
    chosen = {layer["name"] for layer in sorted(layers, key=lambda layer: -layer["share"])[:MOST_ROWS]}
    return [each for each in layers if each["name"] in chosen], [each for each in layers if each["name"] not in chosen]


def _row(layer: Mapping[str, Any]) -> list[str]:
    rates = layer["flops_per_s"]
    alone = layer["isolated"]
    bound = layer["bound"]
    return [
        layer["name"],
        layer["op"],
        _time(layer["forward_s"]),
        _time(layer["backward_s"]),
        percent(layer["share"]),
        *(("", "") if is_absent(rates) else (_rate(rates["forward"]), _rate(rates["backward"]))),
        "" if is_absent(bound) or is_absent(bound["share"]) else percent(bound["share"]),
        *("" if is_absent(alone) else _time(alone[part]) for part in ("forward_s", "backward_s", "data_s", "weight_s")),
    ]


def _rest_row(rest: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    times = [seconds(sum(median_s(layer[part]) for layer in rest)) for part in ("forward_s", "backward_s")]
    row = [f"{len(rest)} others", "", *times, percent(sum(layer["share"] for layer in rest))]
    return row + [""] * (width - len(row))


def _totals(report: Mapping[str, Any]) -> list[str]:
    if is_absent(report["sum_s"]):
        alone = report["isolated_sum_s"]
        total = "" if is_absent(alone) else f"; layers alone add up to {seconds(alone)}, which is not a step"
        return [f"step {seconds(report['step_s']['median'])}{total}", f"  {report['sum_s']['absent']}"]
    parts = [("layers", report["sum_s"]), ("update", report["update_s"]), ("data", report["data_s"])]
    parts += [(entry["name"], entry["s"]) for entry in report["other"]]
    parts.append(("gaps", report["gaps_s"]))
    sums = " + ".join(f"{name} {seconds(part['median'])}" for name, part in parts if part["median"])
    explained = report["explained"]
    lines = [
        f"step {seconds(report['step_s']['median'])} untraced; {sums}",
        f"  together {digits(explained['median'], 4)} of it ({digits(explained['low'], 4)} – "
        f"{digits(explained['high'], 4)}); each part was measured, none is the remainder",
    ]
    if not is_absent(report["fusion_saved_s"]):
        saved_s = report["fusion_saved_s"]
        less = f"{seconds(saved_s)} less" if saved_s >= 0 else f"{seconds(-saved_s)} more"
        lines.append(f"  in place layers take {less} than each alone ({seconds(report['isolated_sum_s'])} together)")
    return lines


def _group_lines(report: Mapping[str, Any]) -> list[str]:
    return [
        f"{group['name']} ({group['layers']}) take {percent(group['share'])} of the layers' time: "
        f"forward {seconds(group['forward_s'])}, backward {seconds(group['backward_s'])}"
        for group in report["groups"]
        if group["share"] > 0
    ]


def _kernel_lines(report: Mapping[str, Any]) -> list[str]:
    trace = report["kernels"]
    if is_absent(trace):
        return [] if trace["absent"].startswith("not asked") else ["", f"kernels: {trace['absent']}"]
    lines = ["", f"kernels, over {trace['steps']} traced steps, whose time is not the step's"]
    for kernel in sorted(trace["kernels"], key=lambda kernel: -kernel["total_s"])[:MOST_KERNELS]:
        layers = ", ".join(kernel.get("layers", [])[:4])
        lines.append(
            f"  {seconds(kernel['total_s']):>8}  {kernel['count']:>6} × {kernel['name'][:70]}  {layers}".rstrip()
        )
    left = len(trace["kernels"]) - MOST_KERNELS
    lines += [f"  and {left} more; --json has all"] if left > 0 else []
    lines += _call_lines(trace)
    return lines


def _call_lines(trace: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if not is_absent(trace.get("calls", {"absent": ""})):
        lines.append("calls of the runtime")
        lines += [
            f"  {seconds(call['total_s']):>8}  {call['count']:>6} × {call['name']} ({call['kind']})"
            for call in sorted(trace["calls"], key=lambda call: -call["total_s"])[:MOST_KERNELS]
        ]
    busy, span = trace.get("busy_s"), trace.get("span_s")
    if isinstance(busy, float) and isinstance(span, float) and span > 0:
        lines.append(f"device busy {percent(busy / span)} of {seconds(span)}")
        idle = trace.get("idle", {"absent": ""})
        if not is_absent(idle):
            lines.append("  idle: " + ", ".join(f"{name} {seconds(value)}" for name, value in idle.items()))
    return lines


def _doubt_lines(report: Mapping[str, Any]) -> list[str]:
    return [f"doubt: {doubt['code']}: {doubt['detail']}" for doubt in report["doubts"]]


def _show_side_by_side(reports: Mapping[str, Mapping[str, Any]], everything: bool) -> None:
    first = next(iter(reports.values()))
    print_lines([_work(first["workload"]), ""])
    cost: dict[str, float] = {}
    for report in reports.values():
        for layer in report["layers"]:
            cost[layer["name"]] = cost.get(layer["name"], 0.0) + layer["share"]
    ranked = [{"name": name, "share": share} for name, share in cost.items()]
    shown, rest = _costly(ranked, everything)
    by_name = {name: {layer["name"]: layer for layer in report["layers"]} for name, report in reports.items()}
    columns = [Column(heading="layer")]
    for name in reports:
        columns += [
            Column(heading=f"{name}\nforward", right=True),
            Column(heading="\nbackward", right=True),
        ]
    rows = [_side_by_side_row([entry["name"]], entry["name"], by_name) for entry in shown]
    if rest:
        names = [entry["name"] for entry in rest]
        rows.append(_side_by_side_row(names, f"{len(names)} others", by_name))
    for part, words in (("update_s", "update"), ("gaps_s", "gaps"), ("step_s", "whole step, untraced")):
        rows.append([words, *(cell for report in reports.values() for cell in ("", _time(report[part])))])
    print_table(columns, rows)
    lines = [""]
    for name, report in reports.items():
        lines += [f"{name}: {_how(report)}", *(f"  {line}" for line in _totals(report)), *_group_lines(report)[:2]]
        lines += _doubt_lines(report)
    print_lines(lines, hang=4)


def _side_by_side_row(
    names: Sequence[str], words: str, by_name: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[str]:
    cells = [words]
    for layers in by_name.values():
        found = [layers[name] for name in names if name in layers]
        for part in ("forward_s", "backward_s"):
            total_s = sum(median_s(layer[part]) for layer in found)
            cells.append(seconds(total_s) if total_s else "")
    return cells


def median_s(time: Any) -> float:
    return 0.0 if is_absent(time) else float(time["median"])


def _time(time: Any) -> str:
    return "" if is_absent(time) else seconds(time["median"])


def _rate(rate: Any) -> str:
    return "" if is_absent(rate) else count(rate)
