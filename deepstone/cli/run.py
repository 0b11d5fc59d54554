"""`deepstone run`: measure how fast a model trains, and keep the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deepstone.cli.jobs import first_look, measure_all, plan, print_plan, quiet_machine
from deepstone.cli.options import (
    Axes,
    DryRun,
    Hosts,
    Image,
    Json,
    Model,
    StorePath,
    Target,
    Timeout,
    WaitUntilQuiet,
    changed,
    examples,
    image_size,
    image_words,
    seconds,
    store_folder,
)
from deepstone.cli.output import print_json
from deepstone.cli.stopped import Stopped

if TYPE_CHECKING:
    from deepstone.results.record import Record

EXAMPLES = examples(
    "deepstone run alexnet-owt batch=16",
    "deepstone run cifarnet batch=8,32 layout=nchw,nhwc     (four runs, one table)",
    "deepstone run my_net.py:make phase=forward --json",
)


def run(
    model: Model,
    axes: Axes = None,
    image: Image = None,
    target: Target = 2.0,
    budget: Annotated[
        float,
        seconds(
            "--budget",
            "Stop each launch after so many seconds of timed steps, though the interval is not within --target yet. "
            "Start-up, warm-up and the phases come on top.",
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
    timeout: Timeout = 900.0,
    hosts: Hosts = None,
    wait_until_quiet: WaitUntilQuiet = None,
    store: StorePath = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Measure a model: images per second with an interval, step time, phases, memory, energy.

    Lists of values span several runs; each is stored and told as it comes. Exit codes: 0 all ok, 1 some run failed, 4
    framework or device missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    begin = first_look()
    choices = parse_words(axes or [])
    requests = expand(choices)
    loaded = load_model(model, frameworks=choices.get("framework", ()), timeout_s=timeout, image=image_size(image))
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.measure.effort import Effort

    effort = Effort(target_share=target / 100, budget_s=budget, launches=launches, timeout_s=timeout)
    options = changed(
        ("--target", target, 2.0),
        ("--budget", budget, 20.0),
        ("--launches", launches, 1),
        ("--timeout", timeout, 900.0),
    )
    jobs = plan(loaded, requests, ("deepstone", "run", model), [*image_words(image), *options])
    if dry_run:
        print_plan(jobs, as_json=json)
        return
    records: list[Record] = []
    try:
        failed = measure_all(jobs, effort, store_folder(store), quiet_machine(begin, wait_until_quiet), records)
    except Stopped:
        if len(jobs) > 1 and records:
            _show_stopped(records, as_json=json)
        raise
    if failed and len(jobs) == 1:
        raise failed[0]
    if json:
        print_json(records[0] if len(jobs) == 1 else records)
    elif records:
        from deepstone.cli.show import show_records, show_with_ratios

        several = len({record.setup.requested["framework"] for record in records}) > 1
        if several and not loaded.graph.opaque:
            show_with_ratios(records, jobs, timeout_s=timeout)
        else:
            show_records(records)
    if failed:
        raise typer.Exit(max(error.exit_code for error in failed))
    if any(record.outcome != "ok" for record in records):
        raise typer.Exit(1)


def _show_stopped(records: list[Record], *, as_json: bool) -> None:
    """What was measured before a signal."""
    if as_json:
        print_json(records)
        return
    from deepstone.cli.show import show_table

    show_table(records)
