"""`deepstone layers`: where the time of a step goes, layer by layer, and framework against framework."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepstone.cli.figure_file import FigureFile, check_figure, check_folder, draw_figure
from deepstone.cli.frameworks import joined, refuse_lists
from deepstone.cli.options import Axes, Budget, Json, Model, Timeout, changed, examples
from deepstone.cli.output import print_json
from deepstone.errors import UsageError

if TYPE_CHECKING:
    from deepstone.cli.progress import Bar
    from deepstone.runner.job import Job
    from deepstone.runner.layers import LayersEffort

EXAMPLES = examples(
    "deepstone layers alexnet-owt batch=32",
    "deepstone layers alexnet-owt framework=torch,tensorflow,jax     (side by side)",
    "deepstone layers resnet50 --kernels --trace trace.json",
    "deepstone layers resnet50 --json > layers.json; deepstone draw layers.json -o layers.svg",
)
METHODS = ("both", "in-place", "isolated")


def layers(
    model: Model,
    axes: Axes = None,
    method: Annotated[
        str, typer.Option("--method", help="in-place, isolated or both.", metavar="METHOD", show_default=True)
    ] = "both",
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Also kernels and, on a GPU, the runtime's calls.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a trace for Chrome or Perfetto.", metavar="FILE")
    ] = None,
    output: FigureFile = None,
    everything: Annotated[bool, typer.Option("--all", help="Every layer, not only the costly ones.")] = False,
    budget: Budget = 20.0,
    timeout: Timeout = 1800.0,
    json: Json = False,
) -> None:
    """Time each layer, forward and backward: inside whole steps where the framework lets it, and by itself.

    Only framework may list several values. Exit codes: 0 all ok, 1 some framework failed, 4 framework missing.
    """
    from deepstone.exchange.load import load_model
    from deepstone.setups.request import expand, parse_words

    if method not in METHODS:
        raise UsageError(f"--method {method}: choose {', '.join(METHODS[:-1])} or {METHODS[-1]}")
    choices = parse_words(axes or [])
    refuse_lists(choices, "layers")
    requests = expand(choices)
    if trace is not None and len(requests) > 1:
        raise UsageError("--trace: one file holds one framework's trace; name one framework")
    loaded = load_model(model)
    check_folder(trace)
    check_figure(output)
    # Only now what is slow to import: a word that is wrong is told at once.
    from deepstone.cli.jobs import plan
    from deepstone.cli.progress import progress_bar
    from deepstone.cli.show_layers import show_layers
    from deepstone.runner.layers import LayersEffort

    effort = LayersEffort(
        budget_s=budget,
        timeout_s=timeout,
        in_place=method != "isolated",
        isolated=method != "in-place",
        kernels=kernels,
        trace_path=trace,
    )
    options = changed(("--budget", budget, 20.0), ("--timeout", timeout, 1800.0))
    options += [] if method == "both" else ["--method", method]
    options += ["--kernels"] if kernels else []
    jobs = plan(loaded, requests, ("deepstone", "layers", model), options)
    with progress_bar(len(jobs)) as bar:
        reports = {str(job.request["framework"]): _report(job, effort, bar) for job in jobs}
    good = {name: report for name, report in reports.items() if report["outcome"] == "ok"}
    if json:
        print_json(joined("layers", loaded.name, reports))
    else:
        show_layers(reports, everything=everything)
    if good:
        draw_figure(joined("layers", loaded.name, good), output)
    if len(good) < len(reports):
        raise typer.Exit(1)


def _report(job: Job, effort: LayersEffort, bar: Bar) -> dict[str, Any]:
    """One framework's result; one that fails spares the others."""
    from deepstone.runner.findings import layers_finding
    from deepstone.runner.job import title

    bar.begin(f"{title(job)} {job.environment.framework}")
    try:
        return layers_finding(job, effort, bar.tell)
    finally:
        bar.end()
