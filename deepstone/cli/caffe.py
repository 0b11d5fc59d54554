"""`deepstone caffe time`: what `caffe time` prints for a prototxt, measured on any framework."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from deepstone.cli.options import Axes, Json, Timeout, changed, examples
from deepstone.cli.output import note, print_json, write
from deepstone.errors import UsageError, nearest

if TYPE_CHECKING:
    from deepstone.models.caffe.phase import Phase
    from deepstone.runner.job import Job
    from deepstone.setups.axes import Value

EXAMPLES = examples(
    "deepstone caffe time -model examples/alexnet.prototxt -iterations 10",
    "deepstone caffe time -model train_val.prototxt -engine MKLDNN batch=64 threads=8",
    "deepstone caffe time -model=deploy.prototxt -phase TEST framework=tensorflow",
    before="Options are written as Caffe has them, with one dash or two, and -model=FILE works too.",
)
ENGINES = {"CAFFE": "native", "MKL2017": "onednn", "MKLDNN": "onednn"}


class CaffeCommand(TyperCommand):
    """Takes options as Caffe does, with one dash or two, so that a slip is told by its whole name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"-{word}" if re.match("-[a-z]{2}", word) else word for word in args])


app = typer.Typer(
    help="Caffe's own commands, for its networks, on any framework.",
    rich_markup_mode=None,
    epilog=EXAMPLES,
)


@app.command(
    "time", short_help="Time a network layer by layer, as `caffe time` does.", epilog=EXAMPLES, cls=CaffeCommand
)
def time(
    model: Annotated[str, typer.Option("-model", "--model", help="The network, a .prototxt.", metavar="FILE")],
    axes: Axes = None,
    iterations: Annotated[
        int,
        typer.Option("-iterations", "--iterations", help="How many steps to time.", metavar="N", min=1, max=100_000),
    ] = 50,
    engine: Annotated[
        str | None,
        typer.Option(
            "-engine",
            "--engine",
            help="CAFFE: the framework's own kernels (engine=native). MKL2017, MKLDNN: oneDNN (engine=onednn).",
            metavar="NAME",
            show_default="what the framework takes",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("-gpu", "--gpu", help="Run on this GPU.", metavar="N", show_default="the CPU, as in Caffe"),
    ] = None,
    phase: Annotated[
        str,
        typer.Option(
            "-phase",
            "--phase",
            help="TRAIN: forward and backward of the layers for training. TEST: forward of those for testing.",
            metavar="NAME",
        ),
    ] = "TRAIN",
    timeout: Timeout = 1800.0,
    json: Json = False,
) -> None:
    """Print what `caffe time` prints: each iteration, each layer forward and backward, and the totals.

    The batch is the file's own unless batch= is given. Exit codes: 0 ok, 1 it failed, 4 framework or device missing.
    """
    from deepstone.models.caffe.load import load_prototxt
    from deepstone.setups.request import complete

    which = _phase(phase)
    given = _given(axes or [], engine=engine, gpu=gpu)
    loaded, batch = load_prototxt(model, which)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.cli.jobs import make_job
    from deepstone.runner.job import Machine

    asked = {"batch": _fitting(batch), **given, "phase": "gradient" if which == "TRAIN" else "forward"}
    words = [f"{name}={value}" for name, value in asked.items() if name != "phase"]
    options = [*(["-phase", which] if which != "TRAIN" else []), *changed(("--timeout", timeout, 1800.0))]
    command = ("deepstone", "caffe", "time", "-model", model, "-iterations", str(iterations), *words, *options)
    job = make_job(loaded, complete(asked), Machine.here(), command)
    report = _report(job, iterations, timeout)
    if json:
        print_json(report)
    elif report["outcome"] == "ok":
        from deepstone.cli.show_caffe import caffe_lines

        write("".join(f"{line}\n" for line in caffe_lines(report)))
        for doubt in report["doubts"]:
            note(f"doubt: {doubt['code']}: {doubt['detail']}")
    else:
        note(f"deepstone: {report['outcome']}: {report['failure']['reason']}")
    if report["outcome"] != "ok":
        raise typer.Exit(1)


def _phase(text: str) -> Phase:
    from deepstone.models.caffe.phase import PHASES

    for phase in PHASES:
        if text.upper() == phase:
            return phase
    raise UsageError(f"-phase {text!r} is neither TRAIN nor TEST")


def _given(axes: list[str], *, engine: str | None, gpu: str | None) -> dict[str, Value]:
    """What was asked for in Caffe's words and in ours, as one."""
    from deepstone.setups.request import parse_words

    choices = parse_words(axes)
    for name, values in choices.items():
        if len(values) > 1:
            raise UsageError(f"{name}: caffe time takes one value")
    given = {name: values[0] for name, values in choices.items()}
    if "phase" in given:
        raise UsageError("phase: say -phase TRAIN (forward and backward) or -phase TEST (forward)")
    if engine is not None:
        if engine.upper() not in ENGINES:
            raise UsageError(f"-engine {engine!r} is no engine of Caffe; {nearest(engine, ENGINES)}")
        if "engine" in given:
            raise UsageError(f"-engine {engine} and engine={given['engine']}: give one of them")
        given["engine"] = ENGINES[engine.upper()]
    if gpu is not None:
        if not re.fullmatch("[0-9]{1,3}", gpu):
            raise UsageError(f"-gpu {gpu!r} must be the number of one GPU; `caffe time` uses one")
        if "device" in given:
            raise UsageError(f"-gpu {gpu} and device={given['device']}: give one of them")
        given["device"] = f"gpu:{int(gpu)}"
    return {"device": "cpu", **given}


def _fitting(batch: int) -> Value:
    from deepstone.setups.axes import AXES

    try:
        return AXES["batch"].parse(str(batch))
    except UsageError:
        raise UsageError(f"the file's own batch of {batch} is too large; give batch=N") from None


def _report(job: Job, iterations: int, timeout_s: float) -> dict[str, Any]:
    from deepstone.absent import as_json
    from deepstone.cli.progress import progress_bar
    from deepstone.runner.assemble import now
    from deepstone.runner.caffe_time import caffe_summary, time_iterations
    from deepstone.runner.conversation import JobFailed
    from deepstone.runner.job import title
    from deepstone.runner.layer_report import layers_report

    with progress_bar(1) as bar:
        bar.begin(title(job))
        started_at = now()
        try:
            found = time_iterations(job, iterations, timeout_s=timeout_s, tell=bar.tell)
        except JobFailed as failure:
            return {
                "outcome": failure.outcome,
                "failure": {"reason": failure.reason, "stderr_tail": failure.stderr_tail},
            }
        finally:
            bar.end()
    report = layers_report(job, found, started_at=started_at)
    return {"outcome": "ok", **report, "caffe_time": as_json(caffe_summary(job, found))}
