"""The zoo's networks against published parameter counts, multiply-adds, shapes and names."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import cache

import pytest
from known_counts import PARAMETERS

from deepstone.graph.cost import graph_cost
from deepstone.graph.graph import Graph
from deepstone.graph.ops import AveragePool, BatchNorm, Conv, Dense, Dropout, Lrn, MaxPool
from deepstone.models.zoo import ZOO

# Forward, per image, in units of 10**9: torchvision's documentation, and for the last two what is commonly reported.
MULTIPLY_ADDS = {
    "alexnet-owt": 0.714,
    "vgg11": 7.609,
    "vgg16": 15.470,
    "vgg19": 19.632,
    "inception-v3": 5.713,
    "resnet50": 4.089,
    "resnet101": 7.801,
    "resnet152": 11.514,
    "resnet110": 0.253,
    "googlenet": 1.583,
}


@cache
def graph_of(name: str) -> Graph:
    return ZOO[name].make()


def words(text: str) -> list[str]:
    return text.split()


def all_names(name: str) -> list[str]:
    return [layer.name for layer in graph_of(name).layers]


def names(graph: Graph, *ops: type) -> list[str]:
    return [layer.name for layer in graph.layers if isinstance(layer.op, ops)]


def ops_of(graph: Graph, op: type) -> list:
    return [layer.op for layer in graph.layers if isinstance(layer.op, op)]


def test_zoo_has_these_models_in_this_order() -> None:
    assert list(ZOO) == list(PARAMETERS)


@pytest.mark.parametrize("name", ZOO)
def test_parameter_count(name: str) -> None:
    assert graph_cost(graph_of(name)).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds(name: str) -> None:
    forward = graph_cost(graph_of(name)).forward_flops
    assert forward / 2e9 == pytest.approx(MULTIPLY_ADDS[name], abs=0.0006)


@pytest.mark.parametrize("name", ZOO)
def test_json_round_trip(name: str) -> None:
    graph = graph_of(name)
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again.layers == graph.layers
    assert again.shapes == graph.shapes
    assert again.name == graph.name == name


@pytest.mark.parametrize("name", ZOO)
def test_begins_with_the_image_and_ends_with_the_loss(name: str) -> None:
    graph = graph_of(name)
    small = name == "cifarnet" or name in ("resnet110", "resnet1001", "resnet5000")
    assert graph.layers[0] is graph.input
    assert [layer.name for layer in graph.losses] == ["loss"]
    assert graph.layers[-1].name == "loss"
    assert graph.classes == (10 if small else 1000)


@pytest.mark.parametrize("model", ZOO.values(), ids=list(ZOO))
def test_entry_describes_itself(model) -> None:
    assert ZOO[model.name] is model
    for text in (model.source, model.note):
        assert text.isprintable()
    assert len(model.source) > 20


SHAPES = [
    ("cifarnet", "pool1", (32, 16, 16)),
    ("cifarnet", "pool3", (64, 4, 4)),
    ("alexnet", "conv1", (96, 55, 55)),
    ("alexnet", "pool1", (96, 27, 27)),
    ("alexnet", "pool2", (256, 13, 13)),
    ("alexnet", "pool5", (256, 6, 6)),
    ("alexnet-owt", "conv1", (64, 55, 55)),
    ("alexnet-owt", "pool5", (256, 6, 6)),
    ("alexnet-kim", "conv2", (256, 27, 27)),
    ("alexnet-kim", "pool3", (256, 6, 6)),
    ("overfeat", "conv1", (96, 56, 56)),
    ("overfeat", "conv2", (256, 24, 24)),
    ("overfeat", "pool5", (1024, 6, 6)),
    ("vgg16", "pool5", (512, 7, 7)),
    ("googlenet", "pool1/3x3_s2", (64, 56, 56)),
    ("googlenet", "inception_3a/output", (256, 28, 28)),
    ("googlenet", "inception_4e/output", (832, 14, 14)),
    ("googlenet", "pool4/3x3_s2", (832, 7, 7)),
    ("googlenet", "pool5/7x7_s1", (1024, 1, 1)),
    ("inception-v3", "Conv2d_2b_3x3.relu", (64, 147, 147)),
    ("inception-v3", "Mixed_5b.concat", (256, 35, 35)),
    ("inception-v3", "Mixed_6a.concat", (768, 17, 17)),
    ("inception-v3", "Mixed_7a.concat", (1280, 8, 8)),
    ("inception-v3", "Mixed_7c.concat", (2048, 8, 8)),
    ("inception-v4", "features.3.concat", (160, 73, 73)),
    ("inception-v4", "features.5.concat", (384, 35, 35)),
    ("inception-v4", "features.10.concat", (1024, 17, 17)),
    ("inception-v4", "features.21.concat", (1536, 8, 8)),
    ("resnet50", "maxpool", (64, 56, 56)),
    ("resnet50", "layer1.0.downsample.1", (256, 56, 56)),
    ("resnet152", "layer3.35.relu3", (1024, 14, 14)),
    ("resnet50", "layer4.2.relu3", (2048, 7, 7)),
    ("resnet110", "layer3.17.relu2", (64, 8, 8)),
    ("resnet1001", "layer1.0.downsample", (64, 32, 32)),
    ("resnet1001", "layer3.110.add", (256, 8, 8)),
    ("resnet5000", "layer3.554.add", (256, 8, 8)),
]


@pytest.mark.parametrize(("name", "layer", "shape"), SHAPES)
def test_shape(name: str, layer: str, shape: tuple[int, ...]) -> None:
    assert graph_of(name).shapes[layer] == shape


def test_alexnet_is_bvlc_alexnet_layer_for_layer() -> None:
    assert all_names("alexnet") == words(
        "data conv1 relu1 norm1 pool1 conv2 relu2 norm2 pool2 conv3 relu3 conv4 relu4 conv5 relu5 pool5 flatten "
        "fc6 relu6 drop6 fc7 relu7 drop7 fc8 loss"
    )
    assert [op.groups for op in ops_of(graph_of("alexnet"), Conv)] == [1, 2, 1, 2, 2]
    assert ops_of(graph_of("alexnet"), Lrn) == [Lrn(size=5, alpha=1e-4, beta=0.75, k=1.0)] * 2


def test_cifarnet_pools_before_its_first_relu() -> None:
    assert all_names("cifarnet") == words(
        "data conv1 pool1 relu1 norm1 conv2 relu2 pool2 norm2 conv3 relu3 pool3 flatten ip1 loss"
    )
    assert names(graph_of("cifarnet"), AveragePool) == ["pool2", "pool3"]
    assert ops_of(graph_of("cifarnet"), Lrn) == [Lrn(size=3, alpha=5e-5, beta=0.75, k=1.0, within_channel=True)] * 2


@pytest.mark.parametrize("name", ["cifarnet", "alexnet", "googlenet"])
def test_pools_of_caffe_round_up(name: str) -> None:
    pools = ops_of(graph_of(name), MaxPool) + ops_of(graph_of(name), AveragePool)
    assert pools
    assert all(pool.ceil_mode for pool in pools)


@pytest.mark.parametrize("name", [name for name in ZOO if name not in ("cifarnet", "alexnet", "googlenet")])
def test_other_pools_round_down(name: str) -> None:
    pools = ops_of(graph_of(name), MaxPool) + ops_of(graph_of(name), AveragePool)
    assert not any(pool.ceil_mode for pool in pools)


def test_kim_has_neither_groups_nor_lrn_nor_dropout() -> None:
    graph = graph_of("alexnet-kim")
    assert names(graph, Conv, MaxPool, Dense) == words("conv1 pool1 conv2 pool2 conv3 conv4 conv5 pool3 fc1 fc2 fc3")
    assert [op.channels for op in ops_of(graph, Conv)] == [96, 256, 384, 384, 256]
    assert {op.groups for op in ops_of(graph, Conv)} == {1}
    assert names(graph, Lrn, Dropout) == []


def test_channels_of_the_nets_of_zanella() -> None:
    assert [op.channels for op in ops_of(graph_of("alexnet-owt"), Conv)] == [64, 192, 384, 256, 256]
    assert [op.channels for op in ops_of(graph_of("overfeat"), Conv)] == [96, 256, 512, 1024, 1024]
    assert [op.features for op in ops_of(graph_of("overfeat"), Dense)] == [3072, 4096, 1000]


def test_vgg_layer_names() -> None:
    assert names(graph_of("vgg11"), Conv) == words("conv1_1 conv2_1 conv3_1 conv3_2 conv4_1 conv4_2 conv5_1 conv5_2")
    assert names(graph_of("vgg19"), Conv)[-4:] == ["conv5_1", "conv5_2", "conv5_3", "conv5_4"]
    assert names(graph_of("vgg16"), Dense) == ["fc6", "fc7", "fc8"]


@pytest.mark.parametrize(
    ("name", "dropouts"),
    [
        ("alexnet", {"drop6": 0.5, "drop7": 0.5}),
        ("alexnet-owt", {"drop5": 0.5, "drop6": 0.5}),
        ("overfeat", {"drop6": 0.5, "drop7": 0.5}),
        ("vgg16", {"drop6": 0.5, "drop7": 0.5}),
        ("googlenet", {"pool5/drop_7x7_s1": 0.4}),
        ("inception-v3", {"dropout": 0.5}),
        ("inception-v4", {"head_drop": 0.2}),
        ("resnet50", {}),
        ("cifarnet", {}),
    ],
)
def test_dropout(name: str, dropouts: dict[str, float]) -> None:
    layers = graph_of(name).layers
    assert {layer.name: layer.op.rate for layer in layers if isinstance(layer.op, Dropout)} == dropouts


def test_inception_module_of_googlenet() -> None:
    graph = graph_of("googlenet")
    assert graph.layer("inception_4b/output").inputs == (
        "inception_4b/relu_1x1",
        "inception_4b/relu_3x3",
        "inception_4b/relu_5x5",
        "inception_4b/relu_pool_proj",
    )
    assert graph.layer("inception_4b/pool").op == MaxPool(
        kernel=(3, 3), stride=(1, 1), pad=(1, 1, 1, 1), ceil_mode=True
    )
    assert graph.layer("inception_4b/pool_proj").inputs == ("inception_4b/pool",)
    assert graph.layer("inception_4a/1x1").inputs == ("pool3/3x3_s2",)


@pytest.mark.parametrize(("name", "count_pad"), [("inception-v3", True), ("inception-v4", False)])
def test_inceptions(name: str, count_pad: bool) -> None:
    graph = graph_of(name)
    assert {op.epsilon for op in ops_of(graph, BatchNorm)} == {1e-3}
    assert not any(op.bias for op in ops_of(graph, Conv))
    assert {op.count_pad for op in ops_of(graph, AveragePool)} == {count_pad}


def test_inception_names_are_those_of_torchvision_and_timm() -> None:
    v3, v4 = graph_of("inception-v3"), graph_of("inception-v4")
    assert v3.layer("Mixed_5b.branch1x1.conv").op == Conv(channels=64, kernel=(1, 1), bias=False)
    assert v3.layer("Mixed_6b.branch7x7_2.conv").op == Conv(channels=128, kernel=(1, 7), pad=(0, 0, 3, 3), bias=False)
    assert v4.layer("features.6.branch1.1.conv").op == Conv(channels=96, kernel=(3, 3), pad=(1, 1, 1, 1), bias=False)
    assert v4.layer("features.21.branch2_3b.bn").op == BatchNorm(epsilon=1e-3)


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("vgg11", 11),
        ("vgg16", 16),
        ("vgg19", 19),
        ("resnet50", 50),
        ("resnet101", 101),
        ("resnet152", 152),
        ("resnet110", 110),
        ("resnet1001", 1001),
        ("resnet5000", 4997),
    ],
)
def test_depth_is_the_number_of_weighted_layers_off_the_shortcuts(name: str, depth: int) -> None:
    weighted = [layer for layer in names(graph_of(name), Conv, Dense) if "downsample" not in layer]
    assert len(weighted) == depth


def test_no_depth_of_this_form_is_nearer_to_5000() -> None:
    assert min((9 * n + 2 for n in range(1000)), key=lambda depth: abs(depth - 5000)) == 4997


def strides(name: str, block: str) -> dict[str, int]:
    graph = graph_of(name)
    convs = [layer for layer in graph.layers if isinstance(layer.op, Conv) and layer.name.startswith(block + ".")]
    return {layer.name.removeprefix(block + "."): layer.op.stride[0] for layer in convs}


def test_where_residual_blocks_stride() -> None:
    assert strides("resnet50", "layer1.0") == {"conv1": 1, "conv2": 1, "conv3": 1, "downsample.0": 1}
    assert strides("resnet50", "layer2.0") == {"conv1": 1, "conv2": 2, "conv3": 1, "downsample.0": 2}
    assert strides("resnet50", "layer2.1") == {"conv1": 1, "conv2": 1, "conv3": 1}
    assert strides("resnet110", "layer1.0") == {"conv1": 1, "conv2": 1}
    assert strides("resnet110", "layer2.0") == {"conv1": 2, "conv2": 1, "downsample.0": 2}
    assert strides("resnet1001", "layer2.0") == {"conv1": 2, "conv2": 1, "conv3": 1, "downsample": 2}


def test_wiring_of_a_bottleneck() -> None:
    graph = graph_of("resnet50")
    assert graph.layer("layer2.0.add").inputs == ("layer2.0.bn3", "layer2.0.downsample.1")
    assert graph.layer("layer2.0.downsample.0").inputs == ("layer1.2.relu3",)
    assert graph.layer("layer2.1.add").inputs == ("layer2.1.bn3", "layer2.0.relu3")


def test_wiring_of_preactivation() -> None:
    graph = graph_of("resnet1001")
    assert graph.layer("layer1.0.bn1").inputs == ("conv1",)
    assert graph.layer("layer2.0.downsample").inputs == ("layer2.0.relu1",)
    assert graph.layer("layer2.0.add").inputs == ("layer2.0.conv3", "layer2.0.downsample")
    assert graph.layer("layer2.1.add").inputs == ("layer2.1.conv3", "layer2.0.add")
    assert graph.layer("bn").inputs == ("layer3.110.add",)


def preactivation_parameters(blocks: int) -> int:
    """From the paper's description, not from the graph."""
    total = 3 * 16 * 9
    before = 16
    for width in (16, 32, 64):
        wide = 4 * width
        inner = 2 * width + 9 * width * width + 2 * width + width * wide  # bn2, 3x3, bn3, last 1x1
        total += 2 * before + before * width + inner + before * wide  # the last is the projection
        total += (blocks - 1) * (2 * wide + wide * width + inner)
        before = wide
    return total + 2 * 256 + 256 * 10 + 10


def test_parameters_of_preactivation_networks_by_hand() -> None:
    assert PARAMETERS["resnet1001"] == preactivation_parameters(111)
    assert PARAMETERS["resnet5000"] == preactivation_parameters(555)


def test_importing_the_zoo_imports_neither_numpy_nor_a_framework() -> None:
    program = (
        "import deepstone.models.zoo, sys; print(*sorted({'numpy', 'torch', 'jax', 'tensorflow'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_building_and_costing_the_whole_zoo_is_quick() -> None:
    """It takes 0.12 s of CPU time, and took 3.6 s when every layer's operation was made anew."""

    def seconds() -> float:
        start = time.process_time()
        for model in ZOO.values():
            graph_cost(model.make())
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 1.5
