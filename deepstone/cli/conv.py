"""`deepstone conv`, the convolution lab: every algorithm on every convolution, with time, workspace, operations and
error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli import declare
from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.declare import argument, examples
from deepstone.cli.draw import FigureFile, check_figure, draw_figure
from deepstone.cli.findings import FindingStore
from deepstone.cli.jobs import (
    image_size,
    image_words,
    noise_at_start,
    plan,
    quiet_machine,
    refuse_opaque,
    refuse_several_processes,
)
from deepstone.cli.options import Image, Json, StorePath, Timeout, WaitUntilQuiet
from deepstone.cli.output import Column, print_json, print_lines, print_table
from deepstone.cli.progress import Bar, progress_bar
from deepstone.cli.stopped import Stopped
from deepstone.errors import BusyMachineError, DeepstoneError, UsageError, shown
from deepstone.setups.request import changed
from deepstone.units import bytes_, count, percent, seconds

if TYPE_CHECKING:
    from deepstone.models.load import LoadedModel
    from deepstone.results.convolutions import ConvolutionLab, ConvolutionRow, Mix, Tried
    from deepstone.results.findings import Finding
    from deepstone.results.quantity import Quantity
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
        argument(
            "[MODEL] [AXIS=VALUE]",
            "A model, and the setup as in batch=32,64 precision=bf16; only batch may list several values.",
            complete_word,
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
    image: Image = None,
    budget: Annotated[
        float,
        declare.seconds("--budget", "Seconds of timing for one algorithm on one pass of one convolution.", most=3600),
    ] = 0.5,
    timeout: Timeout = 1800.0,
    wait_until_quiet: WaitUntilQuiet = None,
    output: FigureFile = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Try every algorithm on every convolution, forward and both gradients, and say what the best mix would save.

    What was found is stored batch by batch, and `results show` prints it again. Exit codes: 0 ok, 1 a pass or a batch
    failed or the framework cannot, 3 it could not be stored, 4 framework or device missing.
    """
    from deepstone.setups.request import expand, parse_words

    begin = noise_at_start()
    model, axes = _model_and_axes(words or [], by_hand=shape is not None)
    choices = parse_words(axes)
    _refuse(choices)
    by_hand = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    loaded, named = _loaded(model, shape, filters, by_hand, image, timeout)
    check_figure(output)
    # Imported only now, because it is slow: wrong words are reported at once.
    from deepstone.runner.convolutions.lab import LabEffort

    _refuse_without_convolutions(loaded)
    other = changed(("--budget", budget, 0.5), ("--timeout", timeout, 1800.0))
    requests = expand(choices)
    refuse_several_processes(requests, "conv")
    jobs = plan(loaded, requests, ("deepstone", "conv", *named), other)
    found: dict[int, Finding] = {}
    finding_store = FindingStore.open(store)
    try:
        quiet = quiet_machine(begin, wait_until_quiet)
        _try_all(jobs, LabEffort(budget_s=budget, timeout_s=timeout), found, quiet, finding_store)
    except (BusyMachineError, Stopped) as ended:
        if isinstance(ended, Stopped):
            ended.kept = "what was found until then is printed" if found else "nothing was found until then"
        _print(found, as_json=json)
        raise
    _print(found, as_json=json)
    if found:
        from deepstone.runner.convolutions.report import joined_reports

        draw_figure(joined_reports(found), output)
    finding_store.leave_if_failed()
    if len(found) < len(jobs) or any(_lab(finding).failures for finding in found.values()):
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
    """Refuse options that would otherwise be ignored."""
    from deepstone.setups.rules import lab_refusal

    for name, values in choices.items():
        if len(values) > 1 and name != "batch":
            raise UsageError(f"{name}: conv takes one value; only batch may list several")
        reason = lab_refusal(name, values[0])
        if reason:
            raise UsageError(reason)


def _loaded(
    model: str | None,
    shape: str | None,
    filters: int | None,
    given: Mapping[str, str | int],
    image: str | None,
    timeout_s: float,
) -> tuple[LoadedModel, list[str]]:
    """Return the model, and the words that name it on a command line."""
    if shape is None:
        changed_by_hand = [f"--{name}" for name, value in given.items() if value != _DEFAULTS[name]]
        if filters is not None or changed_by_hand:
            option = "--filters" if filters is not None else changed_by_hand[0]
            raise UsageError(f"{option}: describes a convolution by hand, which begins with --shape CxHxW")
        from deepstone.exchange.load import load_model

        assert model is not None
        loaded = load_model(model, timeout_s=timeout_s, image=image_size(image))
        refuse_opaque(loaded.graph, "conv")
        return loaded, [model, *image_words(image)]
    if image is not None:
        raise UsageError("--input: is for a model's file; --shape has the size of images already")
    if filters is None:
        raise UsageError("--shape needs --filters, as in --shape 64x56x56 --filters 128 --kernel 3x3")
    from deepstone.models.by_hand import convolution_by_hand

    channels, height, width = sizes("--shape", shape, counts=(3,), example="64x56x56")
    loaded = convolution_by_hand(
        image=(channels, height, width),
        filters=filters,
        kernel=pair("--kernel", str(given["kernel"]), example="3x3"),
        stride=pair("--stride", str(given["stride"]), example="2"),
        pad=padding("--pad", str(given["pad"])),
        dilation=pair("--dilation", str(given["dilation"]), example="2"),
        groups=int(given["groups"]),
    )
    words = ["--shape", shape, "--filters", str(filters)]
    return loaded, words + [
        word for name, value in given.items() if value != _DEFAULTS[name] for word in (f"--{name}", str(value))
    ]


def _refuse_without_convolutions(loaded: LoadedModel) -> None:
    from deepstone.runner.convolutions.lab import equal_convolutions

    if not equal_convolutions(loaded.graph, 1):
        raise UsageError(f"{loaded.name}: has no convolution layer")


def _try_all(
    jobs: list[Job], effort: LabEffort, found: dict[int, Finding], quiet: QuietMachine, store: FindingStore
) -> None:
    """Measure and store a finding for each batch, also if it is cut short. If one fails, the others still run."""
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(f"{job.model.name} batch={job.batch}")
            quiet.before([job], bar.say)
            try:
                _try(job, effort, bar, found, store)
            except BatchFailed as error:
                if len(jobs) == 1:
                    raise
                bar.say(f"deepstone: batch {job.batch}: {error}")
            bar.end()


class BatchFailed(DeepstoneError):
    """No algorithm could be tried with this batch."""


def _try(job: Job, effort: LabEffort, bar: Bar, found: dict[int, Finding], store: FindingStore) -> None:
    from msgspec.structs import replace

    from deepstone.runner.assemble import now
    from deepstone.runner.convolutions.lab import new_lab
    from deepstone.runner.convolutions.report import lab_report
    from deepstone.runner.findings import lab_finding

    lab, started_at = new_lab(), now()
    try:
        tried = lab_finding(job, effort, lab, bar.advance)
    finally:  # a lab that is cut short still has results
        if not lab.is_empty:
            found[job.batch] = lab_report(job, lab)
    if not lab.is_empty:
        stored = store.keep(tried, job, started_at=started_at, say=bar.say)
        found[job.batch] = replace(found[job.batch], id=stored.id)
    if tried.failure is not None:
        framework = f"{job.environment.framework} {job.environment.version}"
        raise BatchFailed(f"{framework}: {tried.outcome}: {tried.failure.reason}")


def _print(found: Mapping[int, Finding], *, as_json: bool) -> None:
    if not found:
        return
    if as_json:
        from deepstone.runner.convolutions.report import joined_reports

        print_json(joined_reports(found))
        return
    show_lab(*found.values())
    if len(found) > 1:
        print_lines([""])
        _show_batches({batch: _lab(finding) for batch, finding in found.items()})


def show_lab(*findings: Finding) -> None:
    for finding in findings:
        _show(finding, _lab(finding))
    print_lines(_legend(), hang=0)


def _lab(finding: Finding) -> ConvolutionLab:
    from deepstone.results.convolutions import ConvolutionLab

    assert isinstance(finding.content, ConvolutionLab)
    return finding.content


def _show(finding: Finding, lab: ConvolutionLab) -> None:
    framework = (
        ""
        if (environment := finding.environment) is None
        else f"{environment.framework_text('name')} {environment.framework_text('version')}"
    )
    facts = [str(finding.model), f"batch {lab.batch}", *map(_text, (lab.precision, lab.layout, lab.device)), framework]
    print_lines(["  ".join(facts).rstrip(), ""])
    for layer in lab.layers:
        print_lines([_title(layer)])
        _show_layer(layer)
        print_lines([*_refusals(layer), ""], hang=4)
    print_lines(_summary(lab), hang=4)
    print_lines([""])


def _title(layer: ConvolutionRow) -> str:
    shape = layer.shape
    words = [f"{layer.name}  {_by(shape.input)} → {_by(shape.output)}", f"kernel {_by(shape.kernel)}"]
    if shape.stride != [1, 1]:
        words.append(f"stride {_by(shape.stride)}")
    if any(shape.pad):
        words.append(f"pad {shape.pad[0] if len(set(shape.pad)) == 1 else _by(shape.pad)}")
    if shape.dilation != [1, 1]:
        words.append(f"dilation {_by(shape.dilation)}")
    if shape.groups > 1:
        words.append(f"{shape.groups} groups")
    if layer.equal:
        words.append(f"the same as {_listed(layer.equal)}, measured once")
    return ", ".join(words)


def _show_layer(layer: ConvolutionRow) -> None:
    passes = [name for name in _PASSES if name in layer.best]
    rows: list[tuple[str, ...]] = []
    for algorithm in dict.fromkeys(tried.algorithm for tried in layer.results):
        tried = {each.direction: each for each in layer.results if each.algorithm == algorithm}
        if all(_is_empty(each) for each in tried.values()):
            continue
        times = [_time(tried.get(name), layer.best[name]) for name in passes]
        rows.append((algorithm, *times, *_costs(list(tried.values()))))
    columns = [
        Column(heading="algorithm"),
        *(Column(heading=_PASSES[name], right=True) for name in passes),
        Column(heading="operations", right=True, rank=2),
        Column(heading="workspace", right=True, rank=1),
        Column(heading="error", right=True, rank=1),
        Column(heading="implementation", rank=3, wraps=12),
    ]
    print_table(columns, rows)


def _is_empty(tried: Tried) -> bool:
    """Whether it was neither timed nor, for a reference, computed."""
    return isinstance(tried.time_s, Absent) and isinstance(tried.relative_error, Absent)


def _time(tried: Tried | None, best: str | Absent) -> str:
    if tried is None or isinstance(tried.time_s, Absent):
        return ""
    flags = (_BEST if tried.algorithm == best else "") + (_PICKED if tried.picked else "")
    time = seconds(tried.time_s.median)
    return f"{time} {flags:<2}".rstrip() if flags else time


def _costs(tried: Sequence[Tried]) -> tuple[str, str, str, str]:
    """Return the operations of the first pass, the largest workspace and the largest error."""
    shown = [each for each in tried if not _is_empty(each)]
    workspaces = [each.workspace_bytes for each in shown if not isinstance(each.workspace_bytes, Absent)]
    errors = [each.relative_error for each in shown if not isinstance(each.relative_error, Absent)]
    flops = [each.flops for each in shown if not isinstance(each.flops, Absent)]
    names = dict.fromkeys(each.implementation for each in shown if each.implementation is not None)
    return (
        count(flops[0]) if flops else "",
        bytes_(max(workspaces)) if workspaces else "",
        f"{max(errors):.0e}" if errors else "",
        ", ".join(names),
    )


def _refusals(layer: ConvolutionRow) -> Iterator[str]:
    """Return the algorithms that cannot compute this convolution, by reason."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for tried in layer.results:
        if isinstance(tried.time_s, Absent) and _is_empty(tried):
            by_algorithm = reasons.setdefault(tried.time_s.reason, {})
            by_algorithm.setdefault(tried.algorithm, []).append(tried.direction)
    passes = len(layer.best)
    for reason, found in reasons.items():
        names = [name if len(where) == passes else f"{name} ({', '.join(where)})" for name, where in found.items()]
        yield f"not {', '.join(names)}: {reason}"
    for name, reason in (layer.failures or {}).items():
        yield f"{name} failed: {reason}"


def _summary(lab: ConvolutionLab) -> Iterator[str]:
    mix = lab.mix
    if isinstance(mix, Absent):
        yield f"what the best mix would save is not known: {mix.reason}"
    else:
        step = "a forward pass" if lab.phase == "forward" else "a training step"
        yield f"all convolutions of {step}: {_median(mix.picked_s, seconds)} as picked{_saving(mix)}"
        yield from _changes(lab.layers)
    for doubt in lab.doubts:
        yield f"doubt: {doubt.detail}"


def _saving(mix: Mix) -> str:
    if isinstance(mix.saved_s, Absent):
        return f"; what the best of each would save is not known: {mix.saved_s.reason}"
    if not _number(mix.saved_s):
        return "; no other algorithm is shown to be faster"
    best = f"{_median(mix.best_s, seconds)} with the best of each"
    return (
        f", {best}; that would save {_with_interval(mix.saved_s, seconds)}, {_with_interval(mix.saved_share, percent)}"
    )


def _changes(layers: Sequence[ConvolutionRow]) -> Iterator[str]:
    for layer in layers:
        for name, best in layer.best.items():
            timed = {
                each.algorithm: (each.picked, each.time_s.median)
                for each in layer.results
                if each.direction == name and not isinstance(each.time_s, Absent)
            }
            picked = next((algorithm for algorithm, (is_picked, _) in timed.items() if is_picked), None)
            if picked is None or picked == best or isinstance(best, Absent):
                continue
            unneeded = "" if layer.in_step[name] else "; not counted, since training does not need it"
            yield (
                f"    {layer.name}, {_PASSES[name].replace(chr(10), ' ')}: {best} takes {seconds(timed[best][1])}, "
                f"{picked} {seconds(timed[picked][1])}{unneeded}"
            )


def _show_batches(labs: Mapping[int, ConvolutionLab]) -> None:
    columns = [
        Column(heading="batch", right=True),
        Column(heading="as picked", right=True),
        Column(heading="best of each", right=True),
        Column(heading="would save", right=True),
    ]
    rows = [(str(batch), *_mix_cells(lab.mix)) for batch, lab in labs.items()]
    print_table(columns, rows)


def _mix_cells(mix: Mix | Absent) -> tuple[str, str, str]:
    if isinstance(mix, Absent):
        return "–", "–", "–"
    return _median(mix.picked_s, seconds), _median(mix.best_s, seconds), _median(mix.saved_share, percent)


def _number(found: Quantity | float) -> float:
    return found if isinstance(found, int | float) else found.median


def _median(found: Quantity | float | Absent, shown: Callable[[float], str]) -> str:
    return "not known" if isinstance(found, Absent) else shown(_number(found))


def _with_interval(found: Quantity | float | Absent, shown: Callable[[float], str]) -> str:
    """Format a value, with its interval if it has one."""
    interval = "" if isinstance(found, int | float | Absent) else f" ({found.span_in_words(shown)})"
    return f"{_median(found, shown)}{interval}"


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


def _text(value: str | Absent) -> str:
    return "?" if isinstance(value, Absent) else value


def sizes(option: str, text: str, *, counts: tuple[int, ...], least: int = 1, example: str) -> tuple[int, ...]:
    """Parse as many whole numbers as `counts` allows."""
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
    """Parse one number for both sides, or two."""
    found = sizes(option, text, counts=(1, 2), example=example)
    return found[0], found[-1]


def padding(option: str, text: str) -> tuple[int, int, int, int]:
    """Parse one number for all sides, two for height and width, or four for top, bottom, left and right."""
    found = sizes(option, text, counts=(1, 2, 4), least=0, example="1, 1x2 or 0x1x0x1")
    if len(found) == 4:
        return found[0], found[1], found[2], found[3]
    return found[0], found[0], found[-1], found[-1]
