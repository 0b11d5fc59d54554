"""Facts of a machine and of a model that decide which rules of advice hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from deepstone.analysis.facts import cpu_of, device_kind, gpus_of, usable_cores, value_of
from deepstone.graph.cost import layer_cost
from deepstone.graph.graph import Graph
from deepstone.graph.ops import BatchNorm, Conv
from deepstone.models.zoo import ZOO
from deepstone.results.advice import Device, Facts, MatrixUnits
from deepstone.results.environment import Cpu, Gpu
from deepstone.results.record import Record, WorkloadPhase

_AMX = "amx_bf16"
_BF16 = ("avx512_bf16", "bf16")  # of Intel and AMD; of Arm
_FIRST_WITH_FP16, _FIRST_WITH_BF16 = 7, 8  # compute capability


def facts_of_model(graph: Graph | None) -> Facts | None:
    """The facts of a network, with placeholders for the rest; None of a module that nobody looked into."""
    if graph is None or graph.opaque:
        return None
    costs = [(layer, layer_cost(graph, layer)) for layer in graph.layers]
    flops = sum(cost.forward_flops for _, cost in costs)
    of_convolutions = sum(cost.forward_flops for layer, cost in costs if isinstance(layer.op, Conv))
    return Facts(
        device="cpu",
        phase="train",
        batch=1,
        batch_norm=any(isinstance(layer.op, BatchNorm) for layer in graph.layers),
        convolution_share=round(of_convolutions / flops, 3) if flops else 0.0,
        parameters=sum(cost.parameters for _, cost in costs),
    )


def facts_of(
    graph: Graph | None,
    *,
    device: Device,
    phase: WorkloadPhase,
    batch: int,
    cores: int | None,
    matrix_units: MatrixUnits | None,
) -> Facts:
    of_model = facts_of_model(graph)
    return Facts(
        device=device,
        phase=phase,
        batch=batch,
        cores=cores,
        matrix_units=matrix_units,
        batch_norm=of_model.batch_norm if of_model else None,
        convolution_share=of_model.convolution_share if of_model else None,
        parameters=of_model.parameters if of_model else None,
    )


def facts_of_record(record: Record) -> Facts:
    """The facts under which a run was made. The layers are known of models of the zoo."""
    environment, workload = record.environment, record.workload
    device = device_kind(environment, str(value_of(record, "device")))
    units = units_of_gpu(gpus_of(environment)[:1]) if device == "gpu" else units_of_cpu(cpu_of(environment))
    return facts_of(
        _of_zoo(workload.model) if workload.source == "zoo" else None,
        device=device,
        phase=workload.phase,
        batch=workload.batch,
        cores=usable_cores(environment),
        matrix_units=units,
    )


@cache
def _of_zoo(name: str) -> Graph | None:
    return ZOO[name].make() if name in ZOO else None


def units_of_cpu(cpu: Cpu) -> MatrixUnits | None:
    flags = cpu.flags
    if not isinstance(flags, list):
        return None
    return "amx" if _AMX in flags else "bf16" if set(_BF16) & set(flags) else "none"


def units_of_gpu(gpus: Sequence[Gpu]) -> MatrixUnits | None:
    capability = gpus[0].compute_capability if gpus else None
    major = re.match(r"\d+", capability) if isinstance(capability, str) else None
    if major is None:
        return None
    return "bf16" if int(major[0]) >= _FIRST_WITH_BF16 else "fp16" if int(major[0]) >= _FIRST_WITH_FP16 else "none"
