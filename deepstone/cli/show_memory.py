"""Memory as people read it: one framework's layers, or the totals of several, and the largest batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepstone.cli.output import print_lines, print_table
from deepstone.cli.table import Column
from deepstone.records.schema import is_absent
from deepstone.units import bytes_, percent

MOST_ROWS = 30

_KINDS = ("parameters", "gradients", "optimizer", "activations")
_COLUMNS = (
    Column(heading="layer"),
    Column(heading="op", rank=3),
    Column(heading="parameters", right=True, rank=1),
    Column(heading="gradients", right=True, rank=2),
    Column(heading="optimizer", right=True, rank=2),
    Column(heading="activations", right=True),
    Column(heading="kept,\nmeasured", right=True, rank=1),
    Column(heading="workspace,\nmeasured", right=True, rank=1),
    Column(heading="predicted", right=True),
)


def show_memory(reports: Mapping[str, Mapping[str, Any]], *, everything: bool) -> None:
    for number, (name, report) in enumerate(reports.items()):
        if number:
            print_lines([""])
        if report["outcome"] == "ok":
            _show(report, everything)
        else:
            print_lines([f"{name}: {report['outcome']}: {report['failure']['reason']}"])
        if "largest_batch" in report:
            print_lines(["", *_largest_lines(report["largest_batch"])], hang=4)


def _show(report: Mapping[str, Any], everything: bool) -> None:
    print_lines([_headline(report), ""], hang=4)
    if report["layers"]:
        shown, rest = _largest(report["layers"], everything)
        rows = [_row(layer["name"], layer["op"], [layer]) for layer in shown]
        if rest:
            rows.append(_row(f"{len(rest)} others", "", rest))
        rows.append(_row("all layers", "", report["layers"]))
        print_table(_COLUMNS, rows)
        print_lines([""])
    print_lines(_totals(report), hang=4)


def _headline(report: Mapping[str, Any]) -> str:
    value = {axis: str(effect["value"]) for axis, effect in report["setup"]["effective"].items()}
    setup = ", ".join(value[axis] for axis in ("precision", "layout", "engine"))
    framework = value["framework"].replace("@", " ")
    where = f"{framework} on {value['device']} ({setup})"
    return f"{report['model']} · batch {report['batch']} · {report['phase']} · {where}"


def _largest(
    layers: Sequence[Mapping[str, Any]], everything: bool
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The layers that take most, in the order of the network, and the rest."""
    if everything or len(layers) <= MOST_ROWS:
        return list(layers), []
    ranked = sorted(layers, key=lambda layer: -(_total(layer) + _known(layer["kept_bytes"])))
    chosen = {layer["name"] for layer in ranked[:MOST_ROWS]}
    return [each for each in layers if each["name"] in chosen], [each for each in layers if each["name"] not in chosen]


def _row(name: str, op: str, layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of one layer, or of several together; their workspaces follow each other, so the largest counts."""
    sums = [_size(sum(layer[f"{kind}_bytes"] for layer in layers)) for kind in _KINDS]
    kept = _size(sum(_known(layer["kept_bytes"]) for layer in layers))
    workspace = _size(max(_known(layer["workspace_bytes"]) for layer in layers))
    return [name, op, *sums, kept, workspace, _size(sum(_total(layer) for layer in layers))]


def _totals(report: Mapping[str, Any]) -> list[str]:
    predicted, measured = report["predicted"], report["measured"]
    lines: list[str] = []
    if is_absent(predicted):
        lines.append(f"predicted: nothing: {predicted['absent']}")
    else:
        parts = ", ".join(f"{kind} {bytes_(predicted[f'{kind}_bytes'])}" for kind in _KINDS)
        lines.append(f"predicted {bytes_(predicted['total_bytes'])}: {parts}")
    peak = report["measured_peak_bytes"]
    if is_absent(peak):
        lines.append(f"measured: nothing: {peak['absent']}")
    else:
        on_host = is_absent(measured["process"]["device_allocated_bytes"])
        how = "by which the process grew beyond the framework itself" if on_host else "in the framework's allocator"
        share = "" if is_absent(predicted) else f", of which {percent(predicted['total_bytes'] / peak)} was predicted"
        lines.append(f"measured  {bytes_(peak)} at its peak, {how}{share}")
    if is_absent(measured["kept_bytes"]):
        lines.append(f"  layer by layer nothing was measured: {measured['kept_bytes']['absent']}")
    elif not is_absent(predicted):
        lines.append(f"  kept for backward: {bytes_(measured['kept_bytes'])} measured")
    if is_absent(measured["workspace_bytes"]) and not is_absent(measured["kept_bytes"]):
        lines.append(f"  workspace: {measured['workspace_bytes']['absent']}")
    return lines


def _largest_lines(found: Mapping[str, Any]) -> list[str]:
    tries = "; ".join(
        f"{each['batch']:,} {each['outcome']}"
        + ("" if is_absent(each["peak_bytes"]) else f" ({bytes_(each['peak_bytes'])})")
        for each in found["tried"]
    )
    beyond = found["too_large"]
    certain = "no larger one was run" if is_absent(beyond) else f"{beyond:,} does not fit"
    answer = f"largest batch {found['confirmed']:,} (predicted {found['predicted']:,}); {certain}"
    if not found["confirmed"]:
        answer = "no batch fits"
    return [answer, f"  limit: {found['limit']}", f"  tried: {tries}"]


def _total(layer: Mapping[str, Any]) -> int:
    return sum(layer[f"{kind}_bytes"] for kind in _KINDS)


def _known(size: Any) -> int:
    return 0 if is_absent(size) else int(size)


def _size(size: int) -> str:
    return bytes_(size) if size else ""
