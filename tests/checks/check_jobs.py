"""A network with every operation in which a careless port errs, small enough to be checked in a second."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.load import LoadedModel
from deepstone.runner.job import Job, Machine
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

PLANTED = Path(__file__).parent / "planted"


@cache
def delicate() -> Graph:
    b = Builder("delicate")
    x = b.input("data", (3, 11, 9))
    x = b.relu("relu1", b.conv("conv1", x, channels=8, kernel=3, pad=1))
    x = b.max_pool("pool1", b.lrn("norm1", x, size=5, alpha=0.1), kernel=3, stride=2)
    x = b.batch_norm("norm2", b.conv("conv2", x, channels=12, kernel=3, pad=1, groups=2))
    x = b.relu("relu2", b.add("add", x, b.conv("short", "pool1", channels=12, kernel=1, bias=False)))
    x = b.concat("concat", x, b.average_pool("pool2", x, kernel=3, stride=1, pad=1))
    x = b.dense("dense", b.dropout("drop", b.flatten("flatten", x)), features=10)
    b.softmax_cross_entropy("loss", x)
    return b.build()


@cache
def machine() -> Machine:
    return Machine.here()


def check_job(
    framework: str, *, graph: Graph | None = None, environment: Environment | None = None, **axes: Value
) -> Job:
    graph = graph or delicate()
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"framework": framework, "batch": 3, "threads": 1, **axes}),
        environment=environment or find_environment(framework),
        machine=machine(),
        command=("deepstone", "verify", graph.name),
    )
