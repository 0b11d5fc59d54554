"""Jobs so small that any framework runs them in milliseconds, yet with every kind of array a dump can hold."""

from __future__ import annotations

from functools import cache

from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.load import LoadedModel
from deepstone.runner.job import Job, Machine
from deepstone.setups.axes import Value
from deepstone.setups.request import complete


@cache
def tiny() -> Graph:
    """Enough channels that libraries take their fast paths; parameters, buffers, and a layer that drops."""
    b = Builder("tiny")
    x = b.input("data", (16, 8, 8))
    x = b.relu("relu1", b.conv("conv1", x, channels=32, kernel=3, pad=1))
    x = b.relu("relu2", b.batch_norm("norm", b.conv("conv2", x, channels=32, kernel=3, pad=1, bias=False)))
    x = b.dropout("drop", b.flatten("flatten", b.global_pool("pool", x)))
    b.softmax_cross_entropy("loss", b.dense("dense", x, features=10))
    return b.build()


@cache
def machine() -> Machine:
    return Machine.here()


def tiny_job(framework: str, *, environment: Environment | None = None, **axes: Value) -> Job:
    graph = tiny()
    return Job(
        model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""),
        request=complete({"framework": framework, "batch": 8, **axes}),
        environment=environment or find_environment(framework),
        machine=machine(),
        command=("deepstone", "run", "tiny"),
    )
