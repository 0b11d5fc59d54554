"""The convolution lab as text: one table per convolution, then what the best mix would save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deepstone.cli.output import print_lines, print_table
from deepstone.cli.table import Column
from deepstone.records.schema import is_absent
from deepstone.units import bytes_, count, percent, seconds

_PASSES = {"forward": "forward", "data": "data\ngradient", "weight": "weight\ngradient"}
_PICKED, _BEST = "·", "*"


def show_reports(reports: Mapping[int, Mapping[str, Any]]) -> None:
    for report in reports.values():
        _show(report)
    print_lines(_legend(), hang=0)
    if len(reports) > 1:
        print_lines([""])
        _show_batches(reports)


def _show(report: Mapping[str, Any]) -> None:
    framework = report["environment"]["framework"]
    print_lines(
        [
            f"{report['model']}  batch {report['batch']}  {_told(report['precision'])}  {_told(report['layout'])}  "
            f"{_told(report['device'])}  {framework.get('name', '')} {framework.get('version', '')}".rstrip(),
            "",
        ]
    )
    for layer in report["layers"]:
        print_lines([_title(layer)])
        _show_layer(layer)
        print_lines([*_refusals(layer), ""], hang=4)
    print_lines(_summary(report), hang=4)
    print_lines([""])


def _title(layer: Mapping[str, Any]) -> str:
    shape = layer["shape"]
    words = [f"{layer['name']}  {_by(shape['input'])} → {_by(shape['output'])}", f"kernel {_by(shape['kernel'])}"]
    if shape["stride"] != [1, 1]:
        words.append(f"stride {_by(shape['stride'])}")
    if any(shape["pad"]):
        words.append(f"pad {shape['pad'][0] if len(set(shape['pad'])) == 1 else _by(shape['pad'])}")
    if shape["dilation"] != [1, 1]:
        words.append(f"dilation {_by(shape['dilation'])}")
    if shape["groups"] > 1:
        words.append(f"{shape['groups']} groups")
    if layer["equal"]:
        words.append(f"the same as {_listed(layer['equal'])}, measured once")
    return ", ".join(words)


def _show_layer(layer: Mapping[str, Any]) -> None:
    passes = [name for name in _PASSES if name in layer["best"]]
    rows: list[tuple[str, ...]] = []
    for algorithm in dict.fromkeys(result["algorithm"] for result in layer["results"]):
        results = {each["pass"]: each for each in layer["results"] if each["algorithm"] == algorithm}
        if all(_says_nothing(each) for each in results.values()):
            continue
        times = [_time(results.get(name), layer["best"][name]) for name in passes]
        rows.append((algorithm, *times, *_costs(list(results.values()))))
    columns = [
        Column(heading="algorithm"),
        *(Column(heading=_PASSES[name], right=True) for name in passes),
        Column(heading="operations", right=True, rank=2),
        Column(heading="workspace", right=True, rank=1),
        Column(heading="error", right=True, rank=1),
        Column(heading="implementation", rank=3, wraps=12),
    ]
    print_table(columns, rows)


def _says_nothing(result: Mapping[str, Any]) -> bool:
    """Neither timed nor, for a reference, computed."""
    return is_absent(result["time_s"]) and is_absent(result["relative_error"])


def _time(result: Mapping[str, Any] | None, best: Any) -> str:
    if result is None or is_absent(result["time_s"]):
        return ""
    marks = (_BEST if result["algorithm"] == best else "") + (_PICKED if result["picked"] else "")
    return (
        f"{seconds(result['time_s']['median'])} {marks:<2}".rstrip() if marks else seconds(result["time_s"]["median"])
    )


def _costs(results: Sequence[Mapping[str, Any]]) -> tuple[str, str, str, str]:
    """Of the passes that are there: operations of the first, the largest workspace, the largest error."""
    shown = [each for each in results if not _says_nothing(each)]
    workspaces = [each["workspace_bytes"] for each in shown if not is_absent(each["workspace_bytes"])]
    errors = [each["relative_error"] for each in shown if not is_absent(each["relative_error"])]
    flops = [each["flops"] for each in shown if not is_absent(each["flops"])]
    names = dict.fromkeys(each["implementation"] for each in shown if "implementation" in each)
    return (
        count(flops[0]) if flops else "",
        bytes_(max(workspaces)) if workspaces else "",
        f"{max(errors):.0e}" if errors else "",
        ", ".join(names),
    )


def _refusals(layer: Mapping[str, Any]) -> Iterator[str]:
    """Algorithms that cannot do this convolution, by the reason."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for result in layer["results"]:
        if _says_nothing(result):
            by_algorithm = reasons.setdefault(str(result["time_s"]["absent"]), {})
            by_algorithm.setdefault(result["algorithm"], []).append(result["pass"])
    passes = len(layer["best"])
    for reason, found in reasons.items():
        names = [name if len(where) == passes else f"{name} ({', '.join(where)})" for name, where in found.items()]
        yield f"not {', '.join(names)}: {reason}"
    for name, reason in layer.get("failures", {}).items():
        yield f"{name} failed: {reason}"


def _summary(report: Mapping[str, Any]) -> Iterator[str]:
    mix = report["mix"]
    if is_absent(mix):
        yield f"what the best mix would save is not known: {mix['absent']}"
    else:
        step = "a forward pass" if report["phase"] == "forward" else "a training step"
        yield (
            f"all convolutions of {step}: {seconds(mix['picked_s'])} as picked, {seconds(mix['best_s'])} with the "
            f"best of each; that would save {seconds(mix['saved_s'])}, {percent(mix['saved_share'])}"
        )
        yield from _changes(report["layers"])
    for doubt in report["doubts"]:
        yield f"doubt: {doubt['detail']}"


def _changes(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for layer in layers:
        for name, best in layer["best"].items():
            timed = {
                each["algorithm"]: each
                for each in layer["results"]
                if each["pass"] == name and not is_absent(each["time_s"])
            }
            picked = next((each for each in timed.values() if each["picked"]), None)
            if picked is None or picked["algorithm"] == best:
                continue
            taken_s, best_s = picked["time_s"]["median"], timed[best]["time_s"]["median"]
            unneeded = "" if layer["in_step"][name] else "; not counted, since training does not need it"
            yield (
                f"    {layer['name']}, {_PASSES[name].replace(chr(10), ' ')}: {best} takes {seconds(best_s)}, "
                f"{picked['algorithm']} {seconds(taken_s)}{unneeded}"
            )


def _show_batches(reports: Mapping[int, Mapping[str, Any]]) -> None:
    columns = [
        Column(heading="batch", right=True),
        Column(heading="as picked", right=True),
        Column(heading="best of each", right=True),
        Column(heading="would save", right=True),
    ]
    rows = [
        (str(batch), "–", "–", "–")
        if is_absent(report["mix"])
        else (
            str(batch),
            seconds(report["mix"]["picked_s"]),
            seconds(report["mix"]["best_s"]),
            percent(report["mix"]["saved_share"]),
        )
        for batch, report in reports.items()
    ]
    print_table(columns, rows)


def _legend() -> list[str]:
    return [
        f"{_PICKED} what is picked   {_BEST} the best: another than the picked one only where it is shown to be faster",
        "numpy …: reference implementations in fp32, for operations, workspace and error; their time says nothing",
    ]


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _told(value: Any) -> str:
    return "?" if is_absent(value) else str(value)
