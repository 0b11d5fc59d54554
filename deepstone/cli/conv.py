"""`deepstone conv`: the convolution lab. Every algorithm on every convolution: time, workspace, operations, error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.draw import FigureFile, check_figure, draw_figure
from deepstone.cli.jobs import first_look, plan, quiet_machine, refuse_opaque
from deepstone.cli.options import Json, Timeout, WaitUntilQuiet, changed, examples, not_nan
from deepstone.cli.output import Column, print_json, print_lines, print_table
from deepstone.cli.progress import Bar, progress_bar
from deepstone.cli.stopped import Stopped
from deepstone.errors import BusyMachineError, DeepstoneError, UsageError, shown
from deepstone.records.quantity import span_in_words
from deepstone.records.schema import is_absent
from deepstone.units import bytes_, count, percent, seconds

if TYPE_CHECKING:
    from deepstone.models.load import LoadedModel
    from deepstone.runner.convolutions.lab import LabEffort
    from deepstone.runner.job import Job
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.request import Choices


EXAMPLES = examples(
    "deepstone conv alexnet-kim batch=32",
    "deepstone conv alexnet-kim batch=32,64,128,256 device=gpu:0 --json > conv.json",
    "deepstone conv resnet50 phase=forward precision=bf16 -o algorithms.svg",
    "deepstone conv --shape 64x56x56 --filters 128 --kernel 3x3 --pad 1 batch=32",
)

_DEFAULTS = {"kernel": "3", "stride": "1", "pad": "0", "dilation": "1", "groups": 1}
_PASSES = {"forward": "forward", "data": "data\ngradient", "weight": "weight\ngradient"}
_PICKED, _BEST = "·", "*"
_LARGEST = 2**20


def complete_word(incomplete: str) -> list[str]:
    return [*complete_model(incomplete), *complete_axis(incomplete)]


def conv(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="A model, and the setup as in batch=32,64 precision=bf16; only batch may list several values.",
            metavar="[MODEL] [AXIS=VALUE]",
            autocompletion=complete_word,
            show_default=False,
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="Instead of a model: the image, channels first.", metavar="CxHxW"),
    ] = None,
    filters: Annotated[
        int | None, typer.Option("--filters", help="How many filters.", metavar="N", min=1, max=2**20)
    ] = None,
    kernel: Annotated[str, typer.Option("--kernel", help="Size of a filter.", metavar="HxW")] = "3",
    stride: Annotated[str, typer.Option("--stride", metavar="HxW")] = "1",
    pad: Annotated[
        str, typer.Option("--pad", help="All sides, height and width, or top, bottom, left, right.", metavar="N")
    ] = "0",
    dilation: Annotated[str, typer.Option("--dilation", metavar="HxW")] = "1",
    groups: Annotated[int, typer.Option("--groups", metavar="N", min=1, max=2**20)] = 1,
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            help="Seconds of timing for one algorithm on one pass of one convolution.",
            metavar="SECONDS",
            min=0.01,
            max=3600,
            callback=not_nan,
        ),
    ] = 0.5,
    timeout: Timeout = 1800.0,
    wait_until_quiet: WaitUntilQuiet = None,
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Try every algorithm on every convolution, forward and both gradients, and say what the best mix would save.

    Exit codes: 0 ok, 1 a pass or a batch failed or the framework cannot, 4 framework or device missing.
    """
    from deepstone.setups.request import expand, parse_words

    begin = first_look()
    model, axes = _model_and_axes(words or [], by_hand=shape is not None)
    choices = parse_words(axes)
    _refuse(choices)
    by_hand = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    loaded, named = _loaded(model, shape, filters, by_hand, timeout)
    check_figure(output)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.runner.convolutions.lab import LabEffort

    _refuse_without_convolutions(loaded)
    options = changed(("--budget", budget, 0.5), ("--timeout", timeout, 1800.0))
    jobs = plan(loaded, expand(choices), ("deepstone", "conv", *named), options)
    reports: dict[int, dict[str, Any]] = {}
    try:
        quiet = quiet_machine(begin, wait_until_quiet)
        _try_all(jobs, LabEffort(budget_s=budget, timeout_s=timeout), reports, quiet)
    except BusyMachineError:
        if reports:
            _print(reports, as_json=json)
        raise
    except Stopped as stopped:
        stopped.kept = "what was found until then is printed" if reports else "nothing was found until then"
        _print(reports, as_json=json)
        raise
    result = _print(reports, as_json=json)
    if result:
        from deepstone.results.codec import as_bare_finding

        draw_figure(as_bare_finding(result), output)
    if len(reports) < len(jobs) or any(report["failures"] for report in reports.values()):
        raise typer.Exit(1)


def _model_and_axes(words: list[str], *, by_hand: bool) -> tuple[str | None, list[str]]:
    if by_hand:
        if words and "=" not in words[0]:
            raise UsageError(f"{words[0]}: give a model or --shape, not both")
        return None, words
    if not words or "=" in words[0]:
        raise UsageError("conv needs a model, or a convolution by hand: --shape 64x56x56 --filters 128 --kernel 3x3")
    return words[0], words[1:]


def _refuse(choices: Choices) -> None:
    """What would be dropped in silence."""
    from deepstone.setups.rules import lab_refusal

    for name, values in choices.items():
        if len(values) > 1 and name != "batch":
            raise UsageError(f"{name}: conv takes one value; only batch may list several")
        reason = lab_refusal(name, values[0])
        if reason:
            raise UsageError(reason)


def _loaded(
    model: str | None, shape: str | None, filters: int | None, given: dict[str, Any], timeout_s: float
) -> tuple[LoadedModel, list[str]]:
    """The model, and the words that name it on a command line."""
    if shape is None:
        changed_by_hand = [f"--{name}" for name, value in given.items() if value != _DEFAULTS[name]]
        if filters is not None or changed_by_hand:
            option = "--filters" if filters is not None else changed_by_hand[0]
            raise UsageError(f"{option}: describes a convolution by hand, which begins with --shape CxHxW")
        from deepstone.exchange.load import load_model

        assert model is not None
        loaded = load_model(model, timeout_s=timeout_s)
        refuse_opaque(loaded.graph, "conv")
        return loaded, [model]
    if filters is None:
        raise UsageError("--shape needs --filters, as in --shape 64x56x56 --filters 128 --kernel 3x3")
    from deepstone.models.by_hand import convolution_by_hand

    channels, height, width = sizes("--shape", shape, counts=(3,), example="64x56x56")
    loaded = convolution_by_hand(
        image=(channels, height, width),
        filters=filters,
        kernel=pair("--kernel", given["kernel"], example="3x3"),
        stride=pair("--stride", given["stride"], example="2"),
        pad=padding("--pad", given["pad"]),
        dilation=pair("--dilation", given["dilation"], example="2"),
        groups=given["groups"],
    )
    words = ["--shape", shape, "--filters", str(filters)]
    return loaded, words + [
        word for name, value in given.items() if value != _DEFAULTS[name] for word in (f"--{name}", str(value))
    ]


def _refuse_without_convolutions(loaded: LoadedModel) -> None:
    from deepstone.runner.convolutions.lab import equal_convolutions

    if not equal_convolutions(loaded.graph, 1):
        raise UsageError(f"{loaded.name}: has no convolution layer")


def _try_all(jobs: list[Job], effort: LabEffort, reports: dict[int, dict[str, Any]], quiet: QuietMachine) -> None:
    """A report for each batch, also of one that is cut short. One that fails spares the others."""
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(f"{job.model.name} batch={job.batch}")
            quiet.before([job], bar.say)
            try:
                _try(job, effort, bar, reports)
            except BatchFailed as error:
                if len(jobs) == 1:
                    raise
                bar.say(f"deepstone: batch {job.batch}: {error}")
            bar.end()


class BatchFailed(DeepstoneError):
    """Nothing could be tried with this batch."""


def _try(job: Job, effort: LabEffort, bar: Bar, reports: dict[int, dict[str, Any]]) -> None:
    from deepstone.runner.convolutions.lab import new_lab
    from deepstone.runner.convolutions.report import lab_report
    from deepstone.runner.findings import lab_finding

    lab = new_lab()
    try:
        found = lab_finding(job, effort, lab, bar.tell)
    finally:  # cut short, it still has something to tell
        if not lab.is_empty:
            reports[job.batch] = lab_report(job, lab)
    if found["outcome"] != "ok":
        framework = f"{job.environment.framework} {job.environment.version}"
        raise BatchFailed(f"{framework}: {found['outcome']}: {found['failure']['reason']}")


def _print(reports: dict[int, dict[str, Any]], *, as_json: bool) -> dict[str, Any]:
    from deepstone.runner.convolutions.report import joined_reports

    if not reports:
        return {}
    result = joined_reports(reports)
    if as_json:
        print_json(result)
    else:
        _show_reports(reports)
    return result


def _show_reports(reports: Mapping[int, Mapping[str, Any]]) -> None:
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
        picked = f"all convolutions of {step}: {seconds(mix['picked_s']['median'])} as picked"
        if is_absent(mix["saved_s"]):
            yield f"{picked}; what the best of each would save is not known: {mix['saved_s']['absent']}"
        elif not mix["saved_s"]["median"]:
            yield f"{picked}; no other algorithm is shown to be faster"
        else:
            saved = f"{seconds(mix['saved_s']['median'])} ({span_in_words(mix['saved_s'], seconds)})"
            share = f"{percent(mix['saved_share']['median'])} ({span_in_words(mix['saved_share'], percent)})"
            best = f"{seconds(mix['best_s']['median'])} with the best of each"
            yield f"{picked}, {best}; that would save {saved}, {share}"
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
            *(_median(report["mix"][part], seconds) for part in ("picked_s", "best_s")),
            _median(report["mix"]["saved_share"], percent),
        )
        for batch, report in reports.items()
    ]
    print_table(columns, rows)


def _median(quantity: Mapping[str, Any], shown: Callable[[float], str]) -> str:
    return "not known" if is_absent(quantity) else shown(quantity["median"])


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


def sizes(option: str, text: str, *, counts: tuple[int, ...], least: int = 1, example: str) -> tuple[int, ...]:
    """As many whole numbers as `counts` allows."""
    parts = re.split("[xX×,]", text.strip())
    if not all(re.fullmatch(r"[0-9]{1,7}", part) for part in parts):
        raise UsageError(f"{option} {shown(text)}: must be whole numbers with x between them, as in {example}")
    numbers = tuple(map(int, parts))
    if any(not least <= number <= _LARGEST for number in numbers):
        raise UsageError(f"{option} {shown(text)}: each must be from {least} to {_LARGEST}")
    if len(numbers) not in counts:
        wanted = " or ".join(map(str, counts))
        raise UsageError(f"{option} {shown(text)}: has {len(numbers)} numbers and needs {wanted}, as in {example}")
    return numbers


def pair(option: str, text: str, *, example: str) -> tuple[int, int]:
    """One number stands for both sides."""
    found = sizes(option, text, counts=(1, 2), example=example)
    return found[0], found[-1]


def padding(option: str, text: str) -> tuple[int, int, int, int]:
    """One number for all sides, two for height and width, four for top, bottom, left and right."""
    found = sizes(option, text, counts=(1, 2, 4), least=0, example="1, 1x2 or 0x1x0x1")
    if len(found) == 4:
        return found[0], found[1], found[2], found[3]
    return found[0], found[0], found[-1], found[-1]
