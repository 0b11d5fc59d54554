"""Chooses what a process of a group does, by scheme and role. Data parallelism is in parallel.py.

Schemes import parts of torch that take a while and some memory, and one process needs none of them. A process imports
its own when it joins the group, so that neither counts as building the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import torch
from torch import nn

from deepstone.backends.base import Job
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.member import Member
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph
from deepstone.setups.schemes import DATA, HYBRID, PIPELINE, SERVER, SERVER_ASYNC, SHARDED, scheme_of

_MODULES: Final = {
    SHARDED: "sharded",
    PIPELINE: "pipeline",
    HYBRID: "pipeline",
    SERVER: "server",
    SERVER_ASYNC: "server",
}


def import_scheme(request: Mapping[str, Any]) -> None:
    """Also what torch imports when an optimizer makes its first step."""
    module = _MODULES.get(scheme_of(request).name)
    if request["library"] == "deepspeed":
        from deepstone.backends.torch.zero import import_deepspeed

        import_deepspeed(str(request["device"]))
    elif module is not None:
        import_module(f"deepstone.backends.torch.{module}")
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter], momentum=0.9).step()


def member_of(job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> Member | None:
    """None with data parallelism as torch has it."""
    match scheme_of(job.request).name:
        case scheme if scheme == DATA and job.request["library"] == "horovod":
            from deepstone.backends.torch.horovod import Horovod

            return Horovod(job, graph, settings, communicator)
        case scheme if scheme == SHARDED and job.request["library"] == "deepspeed":
            from deepstone.backends.torch.zero import Zero

            return Zero(job, graph, settings, communicator)
        case scheme if scheme == SHARDED:
            from deepstone.backends.torch.sharded import Sharded

            return Sharded(job, graph, settings, communicator)
        case scheme if scheme in (PIPELINE, HYBRID):
            from deepstone.backends.torch.pipeline import Pipeline

            return Pipeline(job, graph, settings, communicator)
        case scheme if scheme in (SERVER, SERVER_ASYNC):
            from deepstone.backends.torch.server import ServedWorker, Server

            assert job.group is not None
            kind = Server if job.group.role == "server" else ServedWorker
            return kind(job, graph, settings, communicator)
        case _:
            return None
