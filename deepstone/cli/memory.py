"""`deepstone memory`: what a step takes of memory, layer by layer, predicted against measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.figure_file import FigureFile, check_figure, draw_figure
from deepstone.cli.frameworks import joined, refuse_lists
from deepstone.cli.options import Axes, Json, Model, Timeout, changed, examples
from deepstone.cli.output import print_json
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.runner.job import Job

EXAMPLES = examples(
    "deepstone memory resnet50 batch=8",
    "deepstone memory vgg16 phase=forward --all",
    "deepstone memory alexnet-owt --largest-batch --memory 2GiB",
)


def memory(
    model: Model,
    axes: Axes = None,
    largest_batch: Annotated[
        bool, typer.Option("--largest-batch", help="Find the largest batch that fits, by running it.")
    ] = False,
    limit: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="The memory that a batch must fit into, like 2GiB.",
            metavar="SIZE",
            show_default="what the device has",
        ),
    ] = None,
    output: FigureFile = None,
    everything: Annotated[bool, typer.Option("--all", help="Every layer, not only the large ones.")] = False,
    timeout: Timeout = 900.0,
    json: Json = False,
) -> None:
    """Parameters, gradients, optimizer state and activations of each layer, and the peak that a step really has.

    Only framework may list several values. Exit codes: 0 all ok, 1 some framework failed, 4 something is missing.
    """
    from deepstone.cli.memory_size import size_bytes
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    if limit is not None and not largest_batch:
        raise UsageError("--memory: says what a batch must fit into, so it needs --largest-batch")
    limit_bytes = None if limit is None else size_bytes(limit)
    choices = parse_words(axes or [])
    refuse_lists(choices, "memory")
    check_figure(output)
    requests = expand(choices)
    loaded = load_model(model)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.cli.jobs import plan
    from deepstone.cli.progress import progress_bar
    from deepstone.cli.show_memory import show_memory

    options = changed(("--timeout", timeout, 900.0))
    options += ["--largest-batch"] if largest_batch else []
    options += ["--memory", str(limit_bytes)] if limit_bytes is not None else []
    jobs = plan(loaded, requests, ("deepstone", "memory", model), options)
    with progress_bar(len(jobs)) as bar:
        reports = {
            str(job.request["framework"]): _report(
                job, bar, timeout_s=timeout, largest=largest_batch, limit_bytes=limit_bytes
            )
            for job in jobs
        }
    if json:
        print_json(joined("memory", loaded.name, reports))
    else:
        show_memory(reports, everything=everything)
    good = {name: report for name, report in reports.items() if report["outcome"] == "ok"}
    if good:
        draw_figure(joined("memory", loaded.name, good), output)
    if len(good) < len(reports):
        raise typer.Exit(1)


def _report(job: Job, bar: Bar, *, timeout_s: float, largest: bool, limit_bytes: int | None) -> dict[str, Any]:
    """One framework's result; one that fails spares the others."""
    from deepstone.runner.findings import memory_finding
    from deepstone.runner.job import title

    bar.begin(f"{title(job)} {job.environment.framework}")
    report = memory_finding(job, timeout_s=timeout_s, largest=largest, limit_bytes=limit_bytes, tell=bar.tell)
    bar.end()
    return report
