"""`deepstone conv`: the convolution lab. Every algorithm on every convolution: time, workspace, operations, error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.completion import complete_axis, complete_model
from deepstone.cli.figure_file import FigureFile, check_figure, draw_figure
from deepstone.cli.opaque import refuse_opaque
from deepstone.cli.options import Json, Timeout, changed, examples, not_nan
from deepstone.cli.output import print_json
from deepstone.cli.sizes import padding, pair, sizes
from deepstone.cli.stopped import Stopped
from deepstone.errors import DeepstoneError, UsageError

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.models.load import LoadedModel
    from deepstone.runner.convolutions import LabEffort
    from deepstone.runner.job import Job
    from deepstone.setups.request import Choices

EXAMPLES = examples(
    "deepstone conv alexnet-kim batch=32",
    "deepstone conv alexnet-kim batch=32,64,128,256 device=gpu:0 --json > conv.json",
    "deepstone conv resnet50 phase=forward precision=bf16 -o algorithms.svg",
    "deepstone conv --shape 64x56x56 --filters 128 --kernel 3x3 --pad 1 batch=32",
)

_DEFAULTS = {"kernel": "3", "stride": "1", "pad": "0", "dilation": "1", "groups": 1}


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
    output: FigureFile = None,
    json: Json = False,
) -> None:
    """Try every algorithm on every convolution, forward and both gradients, and say what the best mix would save.

    Exit codes: 0 ok, 1 a pass or a batch failed or the framework cannot, 4 framework or device missing.
    """
    from deepstone.setups.request import expand, parse_words

    model, axes = _model_and_axes(words or [], by_hand=shape is not None)
    choices = parse_words(axes)
    _refuse(choices)
    by_hand = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
    loaded, named = _loaded(model, shape, filters, by_hand)
    check_figure(output)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.cli.jobs import plan
    from deepstone.runner.convolutions import LabEffort

    _refuse_without_convolutions(loaded)
    options = changed(("--budget", budget, 0.5), ("--timeout", timeout, 1800.0))
    jobs = plan(loaded, expand(choices), ("deepstone", "conv", *named), options)
    reports: dict[int, dict[str, Any]] = {}
    try:
        _try_all(jobs, LabEffort(budget_s=budget, timeout_s=timeout), reports)
    except Stopped as stopped:
        stopped.kept = "what was found until then is printed" if reports else "nothing was found until then"
        _print(reports, as_json=json)
        raise
    result = _print(reports, as_json=json)
    if result:
        draw_figure(result, output)
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
    from deepstone.runner.lab_axes import no_use_of

    for name, values in choices.items():
        if len(values) > 1 and name != "batch":
            raise UsageError(f"{name}: conv takes one value; only batch may list several")
        reason = no_use_of(name, values[0])
        if reason:
            raise UsageError(reason)


def _loaded(
    model: str | None, shape: str | None, filters: int | None, given: dict[str, Any]
) -> tuple[LoadedModel, list[str]]:
    """The model, and the words that name it on a command line."""
    if shape is None:
        changed_by_hand = [f"--{name}" for name, value in given.items() if value != _DEFAULTS[name]]
        if filters is not None or changed_by_hand:
            option = "--filters" if filters is not None else changed_by_hand[0]
            raise UsageError(f"{option}: describes a convolution by hand, which begins with --shape CxHxW")
        from deepstone.exchange.load import load_model

        assert model is not None
        loaded = load_model(model)
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
    from deepstone.runner.convolutions import equal_convolutions

    if not equal_convolutions(loaded.graph, 1):
        raise UsageError(f"{loaded.name}: has no convolution layer")


def _try_all(jobs: list[Job], effort: LabEffort, reports: dict[int, dict[str, Any]]) -> None:
    """A report for each batch, also of one that is cut short. One that fails spares the others."""
    from deepstone.cli.progress import progress_bar

    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.begin(f"{job.model.name} batch={job.batch}")
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
    from deepstone.runner.convolution_report import lab_report
    from deepstone.runner.convolutions import new_lab
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
    from deepstone.cli.show_conv import show_reports
    from deepstone.runner.convolution_report import joined_reports

    if not reports:
        return {}
    result = joined_reports(reports)
    if as_json:
        print_json(result)
    else:
        show_reports(reports)
    return result
