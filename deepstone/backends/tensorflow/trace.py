"""Steps under TensorFlow's profiler: the time of each layer in them, and their operations.

host     ┆step 0┆ ┆─ step 1 ─┆ ┆─ step 2 ─┆     each is waited for, as TensorFlow does on a CPU
threads   ▓▓▓▓▓▓   ▓▓▓ ▓▓▓▓▓▓   ▓▓▓ ▓▓▓▓▓▓      every operation, or instruction of XLA, is an event
account         ┆─── step 1 ──┆─── step 2 ──┆   from the end of a step to the end of the next

TensorFlow rewrites a recorded program before it runs it. A fused node has the name of one of its original nodes, mostly
the last: `layer_relu1/Relu` may be a convolution, its bias and the activation after it. The recorded program shows,
node by node backward, whose convolution that is.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2  # pyright: ignore[reportMissingTypeStubs]
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from deepstone.backends.base import InPlace, Unsupported
from deepstone.backends.owners import Owner, Scopes, owner_of
from deepstone.backends.tensorflow.settings import Settings
from deepstone.backends.xla.owners import SHARING as SHARING_OF_XLA
from deepstone.backends.xla.owners import InstructionOwners, leaves
from deepstone.backends.xla.profile import Kernel, Traced, kernels_of_xla, profile_files
from deepstone.backends.xla.program import Instruction, Program
from deepstone.backends.xla.steps import TracedSteps
from deepstone.graph.graph import Graph

_METHOD = "TensorFlow's profiler; operations by the layers whose names they carry"
_RULE = "what runs at the same time on several threads shares that time equally; "
_SHARING = (
    "an operation that TensorFlow fused from several layers' (a convolution and the activation after it) goes to the "
    "layer of the convolution, matrix product or batch norm in it"
)

_FUSED = re.compile(r"Fused(Conv2D|MatMul|DepthwiseConv2dNative|BatchNormEx)")
_CORES = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "FusedBatchNormV3"})
_MOST_STEPS = 8  # from the last of the nodes that are fused to the first
_IDLE = frozenset({"Const", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})

_STEP = "deepstone step"
_EVENTS_OF_OPERATIONS = 2  # the level of host events that holds operations, and nothing finer
_HLO = "Hlo Proto"  # what XLA calls a compiled program among a profile's metadata
# An operation is called `node:kind`. Those that run others have these kinds; what they run has events of its own.
_OPERATION = re.compile(r"([^:\s]+):([A-Za-z_]\w*)$")
_CALLERS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "If", "While", "StatelessIf", "StatelessWhile"})
_COPYING_BATCH = "EagerLocalExecute: DeepCopy"


class Tracer:
    """Traces steps of one job. `step` waits for the device, `recorded` is the program that it runs."""

    def __init__(
        self, graph: Graph, step: Callable[[], None], recorded: Any | None, scratch: str, settings: Settings
    ) -> None:
        if settings.on_gpu:
            raise Unsupported("TensorFlow's profile of a GPU is not read by Deepstone; use device=cpu")
        if recorded is None:
            raise Unsupported(
                "run eagerly, TensorFlow's operations carry no layer's name; use compile=graph or engine=xla"
            )
        self._step = step
        self._scratch = scratch
        self._scopes = Scopes(layer.name for layer in graph.layers)
        self._nodes = _NodeOwners(recorded.graph.get_operations(), self._scopes)
        self._xla = settings.xla
        self._program: Program | None = None

    def in_place(self, count: int) -> InPlace:
        return self._traced(count).in_place(_METHOD, _RULE + (SHARING_OF_XLA if self._xla else _SHARING))

    def trace(self, count: int, path: str) -> dict[str, Any]:
        return self._traced(count).summary(path)

    def _traced(self, count: int) -> TracedSteps:
        """Trace one step more than requested: the start of the first is unknown."""
        profile = _profiled(self._step, count + 1, self._scratch)
        if not self._xla:
            return self._steps(
                profile,
                list(_operations(profile.events)),
                lambda kernel: {self._nodes.of(kernel.instruction, kernel.name): 1.0},
                self._nodes.of_layers(),
            )
        kernels = kernels_of_xla(profile.events)
        program = self._program_of(profile, kernels)
        owners = InstructionOwners(program, self._scopes)
        return self._steps(
            profile, leaves(kernels, program), lambda kernel: owners.of(kernel.instruction), owners.of_layers()
        )

    def _steps(
        self,
        profile: _Profile,
        kernels: list[Kernel],
        owners: Callable[[Kernel], dict[Owner, float]],
        expected: set[Owner],
    ) -> TracedSteps:
        return TracedSteps(
            events=profile.events,
            kernels=kernels,
            windows=profile.windows(),
            owners=owners,
            expected=expected,
            on_cpu=True,
            copying_batch=_COPYING_BATCH,
        )

    def _program_of(self, profile: _Profile, kernels: Sequence[Kernel]) -> Program:
        """Return the program in the profile whose instructions ran."""
        seen = {kernel.instruction for kernel in kernels}
        if self._program is None or not seen <= set(self._program.instructions):
            programs = [_program_of(proto) for proto in profile.programs]
            if not programs:
                raise Unsupported("TensorFlow's profile does not hold the program that XLA compiled")
            self._program = max(programs, key=lambda program: len(seen & set(program.instructions)))
        return self._program


def _operations(events: Sequence[Traced]) -> Iterable[Kernel]:
    for number, event in enumerate(events):
        found = _OPERATION.match(event.name)
        if found is not None and found[2] not in _CALLERS:
            yield Kernel(
                number=number,
                name=found[2],
                instruction=found[1],
                run=None,
                kind="kernel",
                thread=event.line,
                start_s=event.start_s,
                end_s=event.end_s,
            )


class _NodeOwners:
    """The owners of operations, by the layer names of their nodes. `nodes` are those of one program."""

    def __init__(self, nodes: Iterable[Any], scopes: Scopes) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._scopes = scopes
        self._known: dict[tuple[str, str], Owner] = {}

    def of(self, node: str, kind: str) -> Owner:
        """Return the owners. `kind` is the operation that runs in the node's place."""
        if (node, kind) not in self._known:
            self._known[node, kind] = owner_of(self._core(node, kind), self._scopes) or _unowned(node, kind)
        return self._known[node, kind]

    def of_layers(self) -> set[Owner]:
        """Return the layers, forward and backward, of all recorded nodes."""
        found = {owner_of(name, self._scopes) for name, node in self._nodes.items() if node.type not in _IDLE}
        return {owner for owner in found if owner is not None and owner.is_layer}

    def _core(self, name: str, kind: str) -> str:
        node = self._nodes.get(name)
        if node is None or _FUSED.search(kind) is None:
            return name
        for _ in range(_MOST_STEPS):
            if node.type in _CORES:
                return node.name
            if not node.inputs:
                break
            node = node.inputs[0].op
        return name


def _unowned(node: str, kind: str) -> Owner:
    if kind == "AddN" or "AddN" in node:
        return Owner(part="other", name="sums of gradients")
    if "Random" in kind:
        return Owner(part="other", name="random numbers")
    return Owner(part="other", name="outside layers")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Profile:
    events: list[Traced]
    programs: list[bytes]  # those that XLA compiled, as HloProto

    def windows(self) -> list[tuple[float, float]]:
        """Return the windows from the end of each step to the end of the next."""
        ends_s = sorted(event.end_s for event in self.events if event.name == _STEP)
        return list(pairwise(ends_s))


def _profiled(step: Callable[[], None], count: int, scratch: str) -> _Profile:
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=_EVENTS_OF_OPERATIONS, python_tracer_level=0)
    with tempfile.TemporaryDirectory(prefix="profile-", dir=scratch, ignore_cleanup_errors=True) as folder:
        tf.profiler.experimental.start(folder, options=options)
        try:
            for _ in range(count):
                with tf.profiler.experimental.Trace(_STEP):
                    step()
        finally:
            tf.profiler.experimental.stop()
        return _read(profile_files(folder, "TensorFlow")[0])


def _read(file: Path) -> _Profile:
    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    events: list[Traced] = []
    programs: list[bytes] = []
    for plane in space.planes:
        names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
        stat_names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
        for metadata in plane.event_metadata.values():
            programs += [stat.bytes_value for stat in metadata.stats if stat_names[stat.metadata_id] == _HLO]
        for line in plane.lines:
            for event in line.events:
                start_s = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                events.append(
                    Traced(
                        plane=plane.name,
                        line=line.name,
                        name=names[event.metadata_id],
                        start_s=start_s,
                        end_s=start_s + event.duration_ps / 1e12,
                        stats={stat_names[stat.metadata_id]: _value(stat, stat_names) for stat in event.stats},
                    )
                )
    return _Profile(events=events, programs=programs)


def _value(stat: Any, names: dict[int, str]) -> Any:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value] if kind == "ref_value" else getattr(stat, kind)


def _program_of(proto: bytes) -> Program:
    """Parse a compiled program from XLA's entry in a profile."""
    module = hlo_pb2.HloProto.FromString(proto).hlo_module
    computations = {computation.id: computation.name for computation in module.computations}
    return Program({computation.name: _instructions(computation, computations) for computation in module.computations})


def _instructions(computation: hlo_pb2.HloComputationProto, computations: dict[int, str]) -> list[Instruction]:
    names = {instruction.id: instruction.name for instruction in computation.instructions}
    return [
        Instruction(
            name=instruction.name,
            opcode=instruction.opcode,
            operation=instruction.metadata.op_name,
            operands=tuple(names[operand] for operand in instruction.operand_ids),
            calls=tuple(computations[called] for called in instruction.called_computation_ids),
            position=instruction.parameter_number if instruction.opcode == "parameter" else -1,
            root=instruction.id == computation.root_id,
        )
        for instruction in computation.instructions
    ]
