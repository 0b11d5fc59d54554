"""Findings: stored results that are not runs. To add a kind, add a file in this folder and a line in `Content`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from deepstone.results.ceilings import Ceilings
from deepstone.results.comm import CommCurves
from deepstone.results.convolutions import ConvolutionLab
from deepstone.results.environment import Environment
from deepstone.results.layers import LayerTable
from deepstone.results.memory import MemoryUse
from deepstone.results.parts import Command, Json, Part, RunId, Sha, SomeText, Time
from deepstone.results.record import Identity, Outcome, Setup, Workload
from deepstone.results.tune import Tuned

# The registry: each names its own kind.
Content: TypeAlias = LayerTable | ConvolutionLab | MemoryUse | Ceilings | CommCurves | Tuned
KINDS: Final[Mapping[str, type[Content]]] = {kind.KIND: kind for kind in get_args(Content)}
PARTS: Final = ("frameworks", "batches")  # keys under which a command prints several findings


class FindingFailure(Part, frozen=True, kw_only=True):
    reason: SomeText
    stderr_tail: str


class FindingHead(Part, frozen=True, kw_only=True):
    """The fields of findings of any kind. A finding that a command prints has only some of them."""

    schema: Literal[1]
    kind: str
    model: str | None = None
    outcome: Outcome | None = None
    started_at: Time | None = None
    command: Command | None = None
    id: RunId | None = None
    origin: RunId | None = None  # as in a record
    task: Sha | None = None
    identity: Identity | None = None
    graph_sha: Sha | None = None
    workload: Workload | None = None
    setup: Setup | None = None
    environment: Environment | None = None
    failure: FindingFailure | None = None


class Finding(FindingHead, frozen=True, kw_only=True):
    """In JSON, head and content are one object. `parts`: findings that a command printed together, by framework or
    batch; such a finding has no content itself."""

    content: Content | None = None
    parts: Mapping[str, Finding] | None = None
    parts_by: str = ""  # one of PARTS
    shared: Mapping[str, Json] | None = None  # fields that all parts share

    def leaves(self) -> Iterator[Finding]:
        """Yield the parts, or this finding if it has none."""
        yield from self.parts.values() if self.parts else (self,)

    def to_json(self) -> dict[str, Json]:
        head = {name: getattr(self, name) for name in FindingHead.__struct_fields__}
        found: dict[str, Json] = msgspec.to_builtins({name: part for name, part in head.items() if part is not None})
        if self.content is not None:
            found |= self.content.to_json()
        if self.parts is not None:
            found |= self.shared or {}
            found[self.parts_by] = {name: part.to_json() for name, part in self.parts.items()}
        return found
