"""`deepstone run`: measure how fast a model trains, and keep the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.absent import Absent
from deepstone.cli.declare import examples, file, percent, seconds
from deepstone.cli.draw import check_folder
from deepstone.cli.jobs import image_size, image_words, measure_all, noise_at_start, plan, quiet_machine
from deepstone.cli.options import Axes, Image, MeasuringOptions, Model, NoPhases, OutputOptions
from deepstone.cli.output import note, print_json
from deepstone.cli.plans import print_plan
from deepstone.cli.stopped import Stopped
from deepstone.cli.stores import store_folder
from deepstone.errors import UsageError, reason, remedy
from deepstone.setups.request import changed

if TYPE_CHECKING:
    from deepstone.results.record import Record
    from deepstone.setups.request import Request
    from deepstone.trace.events import Event

EXAMPLES = examples(
    "deepstone run alexnet-owt batch=16",
    "deepstone run cifarnet batch=8,32 layout=nchw,nhwc     (four runs, one table)",
    "deepstone run my_net.py:make phase=forward --json",
    "deepstone run cifarnet processes=2 batch=64 --trace trace.json",
)


def run(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    target: Annotated[float, percent("--target", "Stop when the interval is within ± this many percent.")] = 2.0,
    budget: Annotated[
        float,
        seconds(
            "--budget",
            "Stop each launch after so many seconds of timed steps, though the interval is not within --target yet. "
            "Start-up, warm-up and phases come on top; of several processes also communication, up to twice as long.",
        ),
    ] = 20.0,
    launches: Annotated[
        int,
        typer.Option(
            "--launches",
            help="Fresh processes; with several the interval is across launches.",
            metavar="N",
            min=1,
            max=1000,
        ),
    ] = 1,
    trace: Annotated[
        Path | None,
        file("--trace", help="Write traced steps of several processes for Chrome or Perfetto, a track for each."),
    ] = None,
    no_phases: NoPhases = False,
    *,
    measuring: MeasuringOptions,
    out: OutputOptions,
) -> None:
    """Measure a model: images per second with an interval, step time, phases, memory, energy.

    Lists of values span several runs; each is stored and told as it comes. Exit codes: 0 all ok, 1 some run failed, 4
    framework or device missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    begin = noise_at_start()
    choices = parse_words(axes or [])
    requests = expand(choices)
    _check_trace(trace, requests, model, no_phases=no_phases)
    loaded = load_model(
        model, frameworks=choices.get("framework", ()), timeout_s=measuring.timeout, image=image_size(image)
    )
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.measure.effort import Effort

    effort = Effort(
        target_share=target / 100, budget_s=budget, launches=launches, timeout_s=measuring.timeout, phases=not no_phases
    )
    options = changed(
        ("--target", target, 2.0),
        ("--budget", budget, 20.0),
        ("--launches", launches, 1),
        ("--timeout", measuring.timeout, 900.0),
    )
    options += ["--no-phases"] if no_phases else []
    jobs = plan(loaded, requests, ("deepstone", "run", model), [*image_words(image), *options])
    if out.dry_run:
        print_plan(jobs, as_json=out.json)
        return
    records: list[Record] = []
    events: list[Event] = []
    try:
        quiet = quiet_machine(begin, measuring.wait_until_quiet)
        failed = measure_all(jobs, effort, store_folder(out.store), quiet, records, events)
    except Stopped:
        if len(jobs) > 1 and records:
            _show_stopped(records, as_json=out.json)
        raise
    if failed and len(jobs) == 1:
        raise failed[0]
    if out.json:
        print_json(records[0] if len(jobs) == 1 else records)
    elif records:
        from deepstone.cli.show import show_records, show_with_ratios

        several = len({record.setup.requested["framework"] for record in records}) > 1
        if several and not loaded.graph.opaque:
            show_with_ratios(records, jobs, timeout_s=measuring.timeout)
        else:
            show_records(records)
    if failed:
        raise typer.Exit(max(error.exit_code for error in failed))
    if any(record.outcome != "ok" for record in records):
        raise typer.Exit(1)
    if trace is not None:
        _write_trace(trace, events, records[0])


def _check_trace(path: Path | None, requests: Sequence[Request], model: str, *, no_phases: bool) -> None:
    """Before anything is measured."""
    if path is None:
        return
    from deepstone.setups.world import World

    if no_phases:
        raise UsageError("--trace needs traced steps, and --no-phases leaves them out: give one of the two")
    if len(requests) > 1:
        raise UsageError("--trace: one file has the trace of one job; give one value for every axis")
    if not World.of(requests[0]).is_parallel:
        raise UsageError(
            f"--trace shows what several processes do; give processes=2, or for one process use "
            f"`deepstone layers {model} --trace {path}`"
        )
    check_folder(path)


def _write_trace(path: Path, events: Sequence[Event], record: Record) -> None:
    from deepstone.durable import write_whole
    from deepstone.trace.events import chrome_trace

    if not events:
        parallel = record.parallel
        why = parallel.timeline if parallel is not None and not isinstance(parallel, Absent) else Absent("not traced")
        note(f"deepstone: no trace: {why.reason if isinstance(why, Absent) else 'not traced'}")
        raise typer.Exit(1)
    try:
        write_whole(chrome_trace(events).encode("utf-8"), path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}; {remedy(error, 'name another file')}") from error
    note(f"wrote {path}: open it at https://ui.perfetto.dev or chrome://tracing")


def _show_stopped(records: list[Record], *, as_json: bool) -> None:
    """What was measured before a signal."""
    if as_json:
        print_json(records)
        return
    from deepstone.cli.show import show_table

    show_table(records)
