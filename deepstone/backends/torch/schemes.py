"""Chooses what a process of a group does, by scheme and role. Data parallelism is in parallel.py.

Schemes import parts of torch that take a while, and one process needs none of them."""

from __future__ import annotations

from deepstone.backends.base import Job
from deepstone.backends.torch.communicator import Communicator
from deepstone.backends.torch.member import Member
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph
from deepstone.setups.schemes import HYBRID, PIPELINE, SHARDED, scheme_of


def member_of(job: Job, graph: Graph, settings: Settings, communicator: Communicator) -> Member | None:
    """None with data parallelism."""
    match scheme_of(job.request).name:
        case scheme if scheme == SHARDED:
            from deepstone.backends.torch.sharded import Sharded

            return Sharded(job, graph, settings, communicator)
        case scheme if scheme in (PIPELINE, HYBRID):
            from deepstone.backends.torch.pipeline import Pipeline

            return Pipeline(job, graph, settings, communicator)
        case _:
            return None
