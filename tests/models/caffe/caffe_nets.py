"""Networks as people wrote them for Caffe, in the manner of each: a small writer, and the networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deepstone.graph.graph import Graph
from deepstone.models.caffe.layer import Phase
from deepstone.models.caffe.network import CaffeNetwork, network
from deepstone.models.googlenet import INCEPTIONS


def imported(text: str | Iterable[str], phase: Phase = "TRAIN") -> CaffeNetwork:
    whole = text if isinstance(text, str) else "\n".join(text)
    return network(whole.encode(), file="net.prototxt", name="net", phase=phase)


def graph_of(text: str | Iterable[str], phase: Phase = "TRAIN") -> Graph:
    return imported(text, phase).graph


def layer(kind: str, name: str, bottom: str | Iterable[str] = (), top: str = "", rest: str = "") -> str:
    """In today's form. Without a top it writes over its bottom."""
    bottoms = [bottom] if isinstance(bottom, str) else list(bottom)
    blobs = "".join(f' bottom: "{blob}"' for blob in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}"{blobs} top: "{top or bottoms[0]}" {rest} }}'


def conv(name: str, bottom: str, channels: int, kernel: int, rest: str = "") -> str:
    parameters = f"num_output: {channels} kernel_size: {kernel} {rest}"
    return layer("Convolution", name, bottom, name, f"convolution_param {{ {parameters} }}")


def pool(name: str, bottom: str, method: str, rest: str) -> str:
    return layer("Pooling", name, bottom, name, f"pooling_param {{ pool: {method} {rest} }}")


def dense(name: str, bottom: str, features: int) -> str:
    return layer("InnerProduct", name, bottom, name, f"inner_product_param {{ num_output: {features} }}")


def loss(name: str, bottom: str, rest: str = "") -> str:
    return layer("SoftmaxWithLoss", name, [bottom, "label"], name, rest)


TINY_DATA = """\
layer {
  name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } shape { dim: 4 } }
}"""


def tiny(*lines: str, end: str = "data") -> str:
    """Layers between an image of 3x8x8 and a dense layer with its loss, which read `end`."""
    return "\n".join([TINY_DATA, *lines, dense("fc", end, 5), loss("loss", "fc")])


CIFARNET_HEAD = """\
name: "CIFAR10_full"
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape: { dim: 100 dim: 3 dim: 32 dim: 32 } shape: { dim: 100 } } }
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param {
    num_output: 32 pad: 2 kernel_size: 5 stride: 1
    weight_filler { type: "gaussian" std: 0.0001 } bias_filler { type: "constant" }
  }
}"""


def cifarnet() -> str:
    """In the manner of cifar10_full_train_test, whose database does not say its size: an Input layer does."""
    norm = "lrn_param { local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL }"
    lines = [
        CIFARNET_HEAD,
        pool("pool1", "conv1", "MAX", "kernel_size: 3 stride: 2"),
        layer("ReLU", "relu1", "pool1"),
    ]
    for last, this, channels in ((1, 2, 32), (2, 3, 64)):
        lines += [
            layer("LRN", f"norm{last}", f"pool{last}", f"norm{last}", norm),
            conv(f"conv{this}", f"norm{last}", channels, 5, "pad: 2 stride: 1"),
            layer("ReLU", f"relu{this}", f"conv{this}"),
            pool(f"pool{this}", f"conv{this}", "AVE", "kernel_size: 3 stride: 2"),
        ]
    rates = "param { lr_mult: 1 decay_mult: 250 } param { lr_mult: 2 decay_mult: 0 }"
    lines += [
        layer("InnerProduct", "ip1", "pool3", "ip1", f"{rates} inner_product_param {{ num_output: 10 }}"),
        layer("Accuracy", "accuracy", ["ip1", "label"], "accuracy", "include { phase: TEST }"),
        loss("loss", "ip1"),
    ]
    return "\n".join(lines)


def vgg16() -> str:
    """A deploy network in the form before today's, as its authors gave it out."""
    lines = ['name: "VGG_ILSVRC_16_layers"', 'input: "data"', *[f"input_dim: {side}" for side in (10, 3, 224, 224)]]
    bottom = "data"
    for stage, (channels, convs) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for number in range(1, convs + 1):
            name = f"conv{stage}_{number}"
            lines += [
                f'layers {{ bottom: "{bottom}" top: "{name}" name: "{name}" type: CONVOLUTION',
                f"  convolution_param {{ num_output: {channels} pad: 1 kernel_size: 3 }} }}",
                f'layers {{ bottom: "{name}" top: "{name}" name: "relu{stage}_{number}" type: RELU }}',
            ]
            bottom = name
        lines += [
            f'layers {{ bottom: "{bottom}" top: "pool{stage}" name: "pool{stage}" type: POOLING',
            "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }",
        ]
        bottom = f"pool{stage}"
    for number, features in ((6, 4096), (7, 4096), (8, 1000)):
        name = f"fc{number}"
        lines += [
            f'layers {{ bottom: "{bottom}" top: "{name}" name: "{name}" type: INNER_PRODUCT blobs_lr: 1 blobs_lr: 2',
            f"  inner_product_param {{ num_output: {features} }} }}",
        ]
        bottom = name
        if number < 8:
            lines += [
                f'layers {{ bottom: "{name}" top: "{name}" name: "relu{number}" type: RELU }}',
                f'layers {{ bottom: "{name}" top: "{name}" name: "drop{number}" type: DROPOUT',
                "  dropout_param { dropout_ratio: 0.5 } }",
            ]
    return "\n".join([*lines, 'layers { bottom: "fc8" top: "prob" name: "prob" type: SOFTMAX }'])


GOOGLENET_HEADS = {"inception_4a": "loss1", "inception_4d": "loss2"}


def googlenet(*, heads: bool) -> str:
    """A train_val network: a database for each phase, cropped to 224, and with `heads` all three losses."""
    return "\n".join(_googlenet(heads))


def _googlenet(heads: bool) -> Iterator[str]:
    yield 'name: "GoogleNet"'
    for phase, batch in (("TRAIN", 32), ("TEST", 50)):
        yield f"""layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
          transform_param {{ mirror: true crop_size: 224 mean_value: 104 mean_value: 117 mean_value: 123 }}
          data_param {{ source: "ilsvrc12_{phase.lower()}_lmdb" batch_size: {batch} backend: LMDB }} }}"""
    yield conv("conv1/7x7_s2", "data", 64, 7, "pad: 3 stride: 2")
    yield layer("ReLU", "conv1/relu_7x7", "conv1/7x7_s2")
    yield pool("pool1/3x3_s2", "conv1/7x7_s2", "MAX", "kernel_size: 3 stride: 2")
    norm = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    yield layer("LRN", "pool1/norm1", "pool1/3x3_s2", "pool1/norm1", norm)
    yield from _conv_relu("conv2", "3x3_reduce", "pool1/norm1", 64, 1)
    yield from _conv_relu("conv2", "3x3", "conv2/3x3_reduce", 192, 3)
    yield layer("LRN", "conv2/norm2", "conv2/3x3", "conv2/norm2", norm)
    yield pool("pool2/3x3_s2", "conv2/norm2", "MAX", "kernel_size: 3 stride: 2")
    bottom = "pool2/3x3_s2"
    for number, channels in INCEPTIONS.items():
        name = f"inception_{number}"
        yield from inception(name, bottom, channels)
        bottom = f"{name}/output"
        if heads and name in GOOGLENET_HEADS:
            yield from _head(GOOGLENET_HEADS[name], bottom)
        if number in ("3b", "4e"):
            yield pool(f"pool{number[0]}/3x3_s2", bottom, "MAX", "kernel_size: 3 stride: 2")
            bottom = f"pool{number[0]}/3x3_s2"
    yield pool("pool5/7x7_s1", bottom, "AVE", "kernel_size: 7 stride: 1")
    yield layer("Dropout", "pool5/drop_7x7_s1", "pool5/7x7_s1", rest="dropout_param { dropout_ratio: 0.4 }")
    yield dense("loss3/classifier", "pool5/7x7_s1", 1000)
    yield layer("SoftmaxWithLoss", "loss", ["loss3/classifier", "label"], "loss3/loss3", "loss_weight: 1")
    for top, k in (("loss3/top-1", 1), ("loss3/top-5", 5)):
        rest = f"include {{ phase: TEST }} accuracy_param {{ top_k: {k} }}"
        yield layer("Accuracy", top, ["loss3/classifier", "label"], top, rest)


def inception(name: str, bottom: str, channels: tuple[int, int, int, int, int, int]) -> Iterator[str]:
    direct, reduce3, out3, reduce5, out5, projection = channels
    yield from _conv_relu(name, "1x1", bottom, direct, 1)
    yield from _conv_relu(name, "3x3_reduce", bottom, reduce3, 1)
    yield from _conv_relu(name, "3x3", f"{name}/3x3_reduce", out3, 3)
    yield from _conv_relu(name, "5x5_reduce", bottom, reduce5, 1)
    yield from _conv_relu(name, "5x5", f"{name}/5x5_reduce", out5, 5)
    yield pool(f"{name}/pool", bottom, "MAX", "kernel_size: 3 stride: 1 pad: 1")
    yield from _conv_relu(name, "pool_proj", f"{name}/pool", projection, 1)
    ends = [f"{name}/{end}" for end in ("1x1", "3x3", "5x5", "pool_proj")]
    yield layer("Concat", f"{name}/output", ends, f"{name}/output")


def _conv_relu(group: str, name: str, bottom: str, channels: int, kernel: int) -> Iterator[str]:
    yield conv(f"{group}/{name}", bottom, channels, kernel, f"pad: {kernel // 2}" if kernel > 1 else "")
    yield layer("ReLU", f"{group}/relu_{name}", f"{group}/{name}")


def _head(name: str, bottom: str) -> Iterator[str]:
    yield pool(f"{name}/ave_pool", bottom, "AVE", "kernel_size: 5 stride: 3")
    yield from _conv_relu(name, "conv", f"{name}/ave_pool", 128, 1)
    yield dense(f"{name}/fc", f"{name}/conv", 1024)
    yield layer("ReLU", f"{name}/relu_fc", f"{name}/fc")
    yield layer("Dropout", f"{name}/drop_fc", f"{name}/fc", rest="dropout_param { dropout_ratio: 0.7 }")
    yield dense(f"{name}/classifier", f"{name}/fc", 1000)
    yield loss(f"{name}/loss", f"{name}/classifier", "loss_weight: 0.3")


def resnet50() -> str:
    """A deploy network as its authors gave it out: strides in the 1x1 convolutions, statistics fixed."""
    return "\n".join(_resnet50())


def _resnet50() -> Iterator[str]:
    yield 'name: "ResNet-50" input: "data" input_shape { dim: [1, 3, 224, 224] }'
    yield from _conv_norm("conv1", "bn_conv1", "scale_conv1", "data", 64, 7, "pad: 3 stride: 2")
    yield layer("ReLU", "conv1_relu", "conv1")
    yield pool("pool1", "conv1", "MAX", "kernel_size: 3 stride: 2")
    bottom = "pool1"
    for stage, (blocks, channels) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 2):
        for block in range(blocks):
            name = f"{stage}{'abcdef'[block]}"
            stride = "stride: 2" if block == 0 and stage > 2 else ""
            shortcut = bottom
            if block == 0:
                shortcut = f"res{name}_branch1"
                yield from _residual_conv(f"{name}_branch1", bottom, 4 * channels, 1, stride)
            yield from _residual_conv(f"{name}_branch2a", bottom, channels, 1, stride)
            yield layer("ReLU", f"res{name}_branch2a_relu", f"res{name}_branch2a")
            yield from _residual_conv(f"{name}_branch2b", f"res{name}_branch2a", channels, 3, "pad: 1")
            yield layer("ReLU", f"res{name}_branch2b_relu", f"res{name}_branch2b")
            yield from _residual_conv(f"{name}_branch2c", f"res{name}_branch2b", 4 * channels, 1, "")
            yield layer("Eltwise", f"res{name}", [shortcut, f"res{name}_branch2c"], f"res{name}")
            yield layer("ReLU", f"res{name}_relu", f"res{name}")
            bottom = f"res{name}"
    yield pool("pool5", bottom, "AVE", "kernel_size: 7 stride: 1")
    yield dense("fc1000", "pool5", 1000)
    yield layer("Softmax", "prob", "fc1000", "prob")


def _residual_conv(name: str, bottom: str, channels: int, kernel: int, rest: str) -> Iterator[str]:
    yield from _conv_norm(f"res{name}", f"bn{name}", f"scale{name}", bottom, channels, kernel, rest)


def _conv_norm(name: str, norm: str, scale: str, bottom: str, channels: int, kernel: int, rest: str) -> Iterator[str]:
    yield conv(name, bottom, channels, kernel, f"{rest} bias_term: false")
    yield layer("BatchNorm", norm, name, rest="batch_norm_param { use_global_stats: true }")
    yield layer("Scale", scale, name, rest="scale_param { bias_term: true }")
