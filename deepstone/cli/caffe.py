"""`deepstone caffe time`: the output of `caffe time` for a prototxt, measured on any framework."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples
from deepstone.cli.findings import FindingStore
from deepstone.cli.help import Commands, HelpfulCommand
from deepstone.cli.jobs import image_size, image_words, noise_at_start, quiet_machine, refuse_several_processes
from deepstone.cli.options import Axes, Image, Json, StorePath, Timeout, WaitUntilQuiet
from deepstone.cli.output import note, print_json, write
from deepstone.cli.progress import progress_bar
from deepstone.errors import UsageError, nearest
from deepstone.setups.request import changed

if TYPE_CHECKING:
    from deepstone.models.caffe.layer import Phase
    from deepstone.results.findings import Finding
    from deepstone.results.layers import LayerTable
    from deepstone.runner.job import Job
    from deepstone.runner.layers.caffe_time import CaffeTime
    from deepstone.runner.quiet import QuietMachine
    from deepstone.setups.axes import Value


EXAMPLES = examples(
    "deepstone caffe time -model examples/alexnet.prototxt -iterations 10",
    "deepstone caffe time -model train_val.prototxt -engine MKLDNN batch=64 threads=8",
    "deepstone caffe time -model=deploy.prototxt -phase TEST framework=tensorflow",
    before="Options are written as Caffe has them, with one dash or two, and -model=FILE works too.",
)
ENGINES = {"CAFFE": "native", "MKL2017": "onednn", "MKLDNN": "onednn"}


class CaffeCommand(HelpfulCommand):
    """Accepts options as Caffe does, with one dash or two, so that an error names the whole option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"-{word}" if re.match("-[a-z]{2}", word) else word for word in args])


app = Commands(
    help="Caffe's own commands, for its networks, on any framework.",
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
    image: Image = None,
    timeout: Timeout = 1800.0,
    wait_until_quiet: WaitUntilQuiet = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Print what `caffe time` prints: each iteration, each layer forward and backward, and the totals.

    The batch is the file's own unless batch= is given. The layers are stored. Exit codes: 0 ok, 1 it failed, 3 it
    could not be stored, 4 framework or device missing.
    """
    from deepstone.models.caffe.network import load_prototxt
    from deepstone.setups.request import complete

    begin = noise_at_start()
    which = _phase(phase)
    given = _given(axes or [], engine=engine, gpu=gpu)
    loaded, batch = load_prototxt(model, which, image=image_size(image))
    # Imported only now, because it is slow: wrong words are reported at once.
    from deepstone.runner.conversation import JobFailed
    from deepstone.runner.job import Machine
    from deepstone.runner.new_job import make_job

    requested = {"batch": _fitting(batch), **given, "phase": "gradient" if which == "TRAIN" else "forward"}
    words = [f"{name}={value}" for name, value in requested.items() if name != "phase"]
    options = [*(["-phase", which] if which != "TRAIN" else []), *image_words(image)]
    options += changed(("--timeout", timeout, 1800.0))
    command = ("deepstone", "caffe", "time", "-model", model, "-iterations", str(iterations), *words, *options)
    refuse_several_processes([complete(requested)], "caffe time")
    job = make_job(loaded, complete(requested), Machine.here(), command)
    finding_store = FindingStore.open(store)
    try:
        finding, numbers = _timed(job, iterations, timeout, quiet_machine(begin, wait_until_quiet), finding_store)
    except JobFailed as failed:
        if json:
            print_json({"outcome": failed.outcome, "failure": failed.in_finding.to_json()})
        else:
            note(f"deepstone: {failed.outcome}: {failed.reason}")
        raise typer.Exit(1) from None
    if json:
        print_json({**finding.to_json(), "caffe_time": numbers})
    else:
        write("".join(f"{line}\n" for line in caffe_lines(finding, numbers)))
        for doubt in _table(finding).doubts:
            note(f"doubt: {doubt.code}: {doubt.detail}")
    finding_store.leave_if_failed()


def _phase(text: str) -> Phase:
    from deepstone.models.caffe.layer import PHASES

    for phase in PHASES:
        if text.upper() == phase:
            return phase
    raise UsageError(f"-phase {text!r} is neither TRAIN nor TEST")


def _given(axes: list[str], *, engine: str | None, gpu: str | None) -> dict[str, Value]:
    """Merge the settings in Caffe's words with those in ours."""
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


def _timed(
    job: Job, iterations: int, timeout_s: float, quiet: QuietMachine, store: FindingStore
) -> tuple[Finding, CaffeTime]:
    """Measure and store the layers. Raises JobFailed if the job does not run."""
    from deepstone.runner.assemble import now
    from deepstone.runner.job import title
    from deepstone.runner.layers.caffe_time import caffe_summary, time_iterations
    from deepstone.runner.layers.report import layers_report

    with progress_bar(1) as bar:
        bar.begin(title(job))
        quiet.before([job], bar.say)
        started_at = now()
        found = time_iterations(job, iterations, timeout_s=timeout_s, on_progress=bar.advance)
        bar.end()
    report = layers_report(job, found, started_at=started_at)
    stored = store.keep(report, job, started_at=started_at, say=note, method="caffe-time")
    return stored, caffe_summary(job, found)


def caffe_lines(finding: Finding, numbers: CaffeTime) -> Iterator[str]:
    """Return the lines of `caffe time`: milliseconds with six digits, as C++ prints them."""
    yield "*** Benchmark begins ***"
    yield f"Testing for {numbers.iterations} iterations."
    for number, taken_s in enumerate(numbers.iteration_s, 1):
        yield f"Iteration: {number} forward-backward time: {_ms(taken_s)} ms."
    yield "Average time per layer: "
    for layer in numbers.layers:
        yield f"{layer.name:>10}\tforward: {_ms(layer.forward_s)} ms."
        if not isinstance(layer.backward_s, Absent):
            yield f"{layer.name:>10}\tbackward: {_ms(layer.backward_s)} ms."
    yield f"Average Forward pass: {_ms(numbers.forward_s)} ms."
    if not isinstance(numbers.backward_s, Absent):
        yield f"Average Backward pass: {_ms(numbers.backward_s)} ms."
    yield f"Average Forward-Backward: {_ms(numbers.forward_backward_s)} ms."
    yield f"Total Time: {_ms(numbers.total_s)} ms."
    yield "*** Benchmark ends ***"
    yield _how(finding, numbers)


def _how(finding: Finding, numbers: CaffeTime) -> str:
    assert finding.setup is not None
    assert finding.workload is not None
    where = f"{finding.setup.value('framework').replace('@', ' ')} on {finding.setup.value('device')}"
    if numbers.in_place:
        method = _table(finding).method
        layers = f"layers in place ({method}), in other steps than the iterations; passes are sums of layers"
    else:
        layers = f"each layer isolated ({numbers.why_not_in_place}), so the sums of layers are not the iteration"
    forward_only = isinstance(numbers.backward_s, Absent)
    passes = "; forward only, since phase TEST has no backward pass here" if forward_only else ""
    return f"({where}, batch {finding.workload.batch}; {layers}{passes})"


def _table(finding: Finding) -> LayerTable:
    from deepstone.results.layers import LayerTable

    assert isinstance(finding.content, LayerTable)
    return finding.content


def _ms(taken_s: float) -> str:
    return f"{1e3 * taken_s:g}"
