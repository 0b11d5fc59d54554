"""`deepstone models`: the zoo, or one model layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from deepstone.cli.completion import complete_model
from deepstone.cli.declare import argument, examples, file, flag
from deepstone.cli.jobs import image_size
from deepstone.cli.options import MODEL_HELP, Image, Json, Timeout
from deepstone.cli.output import Column, Data, note, print_json, print_lines, print_table
from deepstone.errors import UsageError
from deepstone.graph.cost import COST_UNKNOWN, FP32_BYTES, graph_cost, layer_cost
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Module, ModuleLoss, Tensors
from deepstone.units import bytes_, count

EXAMPLES = examples(
    "deepstone models",
    "deepstone models resnet152 --json",
    "deepstone models my_net.py:make",
    "deepstone models alexnet --export alexnet.onnx",
)


def models(
    name: Annotated[str | None, argument("NAME", MODEL_HELP, complete_model)] = None,
    export_to: Annotated[
        Path | None, file("--export", help="Write the model to FILE: .onnx, .json or .prototxt.")
    ] = None,
    force: Annotated[bool, flag("--force", "Let --export write over a file.")] = False,
    image: Image = None,
    timeout: Timeout = 300.0,
    json: Json = False,
) -> None:
    """The zoo; with a NAME, that model's layers, shapes, parameters, FLOPs and bytes (per sample, fp32)."""
    if name is None:
        if export_to is not None:
            raise UsageError("--export needs the NAME of the model to write")
        _list(as_json=json)
        return
    from deepstone.exchange.load import load_model

    graph = load_model(name, timeout_s=timeout, image=image_size(image)).graph
    if export_to is not None:
        from deepstone.exchange.export import export

        export(graph, export_to, overwrite=force)
        note(f"wrote {export_to}")
        if json:
            print_json({"name": graph.name, "file": str(export_to)})
        return
    if graph.opaque:
        if json:
            print_json(_described_module(graph))
        else:
            _show_module(graph)
    elif json:
        print_json(described(graph, layers=True))
    else:
        _show(graph)


def described(graph: Graph, *, layers: bool) -> dict[str, Data]:
    """Describe a model as JSON: per sample, 2 FLOPs per multiply-add, convolution and dense layers only."""
    cost = graph_cost(graph)
    result: dict[str, Data] = {
        "name": graph.name,
        "input": list(graph.shapes[graph.input.name]),
        "parameters": cost.parameters,
        "flops": {"forward": cost.forward_flops, "backward": cost.backward_flops},
        "bytes": {"weights": cost.weight_bytes, "activations": cost.activation_bytes},
    }
    if layers:
        result["layers"] = [_described_layer(graph, layer) for layer in graph.layers]
    return result


def _described_layer(graph: Graph, layer: Layer) -> dict[str, Data]:
    cost = layer_cost(graph, layer)
    return {
        "name": layer.name,
        "op": layer.op.kind,
        "inputs": list(layer.inputs),
        "output": list(graph.shapes[layer.name]),
        "parameters": cost.parameters,
        "flops": {
            "forward": cost.forward_flops,
            "backward": cost.backward_flops,
            "data_gradient": cost.data_gradient_flops,
            "weight_gradient": cost.weight_gradient_flops,
        },
        "bytes": {"weights": cost.weight_bytes, "activations": cost.activation_bytes},
    }


def _list(*, as_json: bool) -> None:
    from deepstone.models.zoo import ZOO, make

    graphs: dict[str, Graph] = {}
    for name in ZOO:
        try:
            graphs[name] = make(name)
        except UsageError as error:  # of a plug-in; the other models are listed
            note(f"deepstone: {error}")
    for why in ZOO.broken():
        note(f"deepstone: {why}")
    if as_json:
        print_json([{**described(graph, layers=False), "source": ZOO[name].source} for name, graph in graphs.items()])
        return
    rows: list[tuple[str, ...]] = []
    for name, graph in graphs.items():
        cost = graph_cost(graph)
        shape = "×".join(map(str, graph.shapes[graph.input.name]))
        flops = f"{count(cost.forward_flops)} + {count(cost.backward_flops)}"
        rows.append((name, shape, str(len(graph)), f"{cost.parameters:,}", flops, ZOO[name].source))
    columns = [
        Column(heading="model"),
        Column(heading="input", rank=1),
        Column(heading="layers", right=True, rank=1),
        Column(heading="parameters", right=True),
        Column(heading="FLOPs per image,\nforward + backward", right=True),
        Column(heading="source", rank=2, wraps=40),
    ]
    print_table(columns, rows)


def _show(graph: Graph) -> None:
    from deepstone.models.zoo import sample_of

    rows: list[tuple[str, ...]] = []
    for layer in graph.layers:
        cost = layer_cost(graph, layer)
        shape = "×".join(map(str, graph.shapes[layer.name]))
        rows.append(
            (
                layer.name,
                layer.op.kind,
                " ".join(layer.inputs),
                shape or "scalar",
                f"{cost.parameters:,}" if cost.parameters else "",
                count(cost.forward_flops) if cost.forward_flops else "",
                count(cost.backward_flops) if cost.backward_flops else "",
                bytes_(cost.activation_bytes),
            )
        )
    columns = [
        Column(heading="layer"),
        Column(heading="op", rank=1),
        Column(heading="inputs", rank=3, wraps=20),
        Column(heading="output"),
        Column(heading="parameters", right=True),
        Column(heading="forward\nFLOPs", right=True),
        Column(heading="backward\nFLOPs", right=True),
        Column(heading="activation", right=True, rank=2),
    ]
    cost = graph_cost(graph)
    sample = sample_of(graph.name)
    print_table(columns, rows)
    print_lines(
        [
            "",
            f"{graph.name}: {len(graph)} layers, {cost.parameters:,} parameters ({bytes_(cost.weight_bytes)})",
            f"per {sample}: {count(cost.forward_flops)} FLOPs forward, {count(cost.backward_flops)} backward, "
            f"{bytes_(cost.activation_bytes)} of activations",
        ]
    )


def _described_module(graph: Graph) -> dict[str, Data]:
    """Describe a module as JSON: the same keys as for a graph, and `module` with its source."""
    module, weights = _module(graph), _weights(graph)
    unknown = {"forward": COST_UNKNOWN, "backward": COST_UNKNOWN}
    return {
        "name": graph.name,
        "input": graph.shapes[graph.input.name],
        "parameters": weights,
        "flops": unknown,
        "bytes": {"weights": weights * FP32_BYTES, "activations": COST_UNKNOWN},
        "module": {"path": module.path, "function": module.function, "sha256": module.sha256},
        "layers": [
            {
                "name": layer.name,
                "op": layer.op.kind,
                "inputs": layer.inputs,
                "output": graph.shapes[layer.name],
                "parameters": layer.op.weights if isinstance(layer.op, Module | ModuleLoss) else 0,
            }
            for layer in graph.layers
        ],
    }


def _show_module(graph: Graph) -> None:
    module, weights = _module(graph), _weights(graph)
    print_lines(
        [
            f"{graph.name}: the torch module that {module.function} in {module.path} returns",
            f"{_inputs(graph)}, {weights:,} parameters ({bytes_(weights * FP32_BYTES)})",
            "What is inside, and its FLOPs, only torch knows; `deepstone layers` times its parts.",
        ]
    )


def _inputs(graph: Graph) -> str:
    """Describe the inputs of a module, and its outputs as far as they are known."""
    op, step = graph.input.op, graph.own_step
    if not isinstance(op, Tensors) or step is None:
        shape = "×".join(map(str, graph.shapes[graph.input.name]))
        return f"images {shape}, {graph.classes} classes"
    unit = f", {step.units_per_sample:,} {step.unit}s a sample" if step.unit else ""
    optimizer = ", an optimizer of its own (optimizer=own)" if step.own_optimizer else ""
    return f"{op.spec}{unit}{optimizer}"


def _module(graph: Graph) -> Module | ModuleLoss:
    return next(layer.op for layer in graph.opaque if isinstance(layer.op, Module | ModuleLoss))


def _weights(graph: Graph) -> int:
    return sum(layer.op.weights for layer in graph.opaque if isinstance(layer.op, Module | ModuleLoss))
