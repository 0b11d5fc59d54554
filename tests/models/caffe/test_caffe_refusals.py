"""What is refused: all of it at once, with lines, in one line of text."""

from __future__ import annotations

import pytest
from caffe_nets import TINY_DATA, conv, dense, graph_of, layer, loss, pool, tiny

from deepstone.errors import GraphError
from deepstone.models.load import load_in_process


def refusal(*lines: str) -> str:
    with pytest.raises(GraphError) as caught:
        graph_of("\n".join(lines))
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith("net.prototxt")
    return message


def test_unknown_types_are_listed_all_at_once_with_their_lines() -> None:
    message = refusal(
        TINY_DATA,  # four lines
        layer("Crop", "a", "data", "a"),
        layer("PReLU", "b", "a"),
        layer("Crop", "c", "b", "c"),
        layer("ReLU", "d", "c", rest="relu_param { negative_slope: 0.1 }"),
        pool("e", "c", "STOCHASTIC", "kernel_size: 2 speed: 3"),
        dense("fc", "e", 5),
        loss("loss", "fc"),
    )
    assert "layer types that Deepstone does not have: Crop (lines 5, 7), PReLU (line 6)" in message
    assert "line 8: layer 'd': relu_param.negative_slope: only 0 is supported" in message
    assert "line 9: layer 'e': pooling_param.pool: STOCHASTIC is not supported" in message
    assert "line 9: layer 'e': pooling_param.speed: no such field" in message


def test_unknown_types_of_the_form_before_today_s() -> None:
    message = refusal(
        'input: "data" input_dim: [1, 3, 8, 8]',
        'layers { name: "a" type: DECONVOLUTION bottom: "data" top: "a" }',
        'layers { name: "b" type: POOLNG bottom: "a" top: "b" }',
    )
    assert "Deconvolution (line 2)" in message
    assert "line 3: layer 'b': type POOLNG is none of `layers`" in message


def test_long_lists_end() -> None:
    message = refusal(TINY_DATA, *[layer(f"Type{number}", f"x{number}", "data", "x") for number in range(1000)])
    assert "Type24" in message
    assert "and 975 more" in message
    assert len(message) < 4000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *(
            (conv("x", "data", 4, 3, rest), words)
            for rest, words in {
                "kernel_h: 3 kernel_w: 3": "give kernel_size, or kernel_h and kernel_w, not both",
                "pad_h: 1": "pad_h needs pad_w beside it",
                "stride: 1 stride: 1 stride: 1": "stride is given 3 times",
                "axis: 2": "axis: only 1",
                "grup: 2": "grup: no such field; did you mean group",
                "group: 'a'": "group must be a number, not a string",
                "group: 1.5": "group must be a whole number from 1 to 2147483647, not 1.5",
                "group: 0": "group must be a whole number from 1",
                "group: 99999999999999999999999": "group must be a whole number from 1",
                "group: 1 group: 1": "group is given 2 times",
                "bias_term: maybe": "bias_term must be true or false, not maybe",
                "group: 2": "3 input channels cannot be split into 2 groups",
            }.items()
        ),
        (conv("x", "data", 4, 9), "height 8 with padding is smaller than the kernel's reach 9"),
        (layer("Convolution", "x", "data", "x", "convolution_param { num_output: 4 }"), "needs kernel_size"),
        (
            layer("Convolution", "x", "data", "x", "convolution_param { kernel_size: 3 }"),
            "convolution_param.num_output",
        ),
        (layer("Convolution", "x", "data", "x", "convolution_param: 3"), "convolution_param must be a message"),
        (layer("Convolution", "x", ["data", "data"], "x"), "number of bottoms: Convolution takes 1 here, not 2"),
        (layer("ReLU", "x", "data", "x", "pooling_param { }"), "pooling_param: not a parameter of ReLU"),
        (layer("ReLU", "x", "data", "x", "botom: 'y'"), "botom: no such field; did you mean bottom"),
        (pool("x", "data", "MIN", "kernel_size: 2"), "pool must be one of MAX, AVE, STOCHASTIC, not MIN"),
        (pool("x", "data", "MAX", "kernel_size: 2 global_pooling: true"), "take kernel_size away"),
        (pool("x", "data", "AVE", "global_pooling: true pad: 1"), "stride must be 1 and pad 0"),
        (pool("x", "data", "MAX", "kernel_size: 2 pad: 2"), "must be smaller than the kernel"),
        (layer("InnerProduct", "x", "data", "x", "inner_product_param { num_output: 2 axis: 2 }"), "axis: only 1"),
        (layer("InnerProduct", "x", "data", "x", "inner_product_param { num_output: 2 transpose: true }"), "transpose"),
        (layer("LRN", "x", "data", "x", "lrn_param { local_size: 4 }"), "size must be odd"),
        (layer("LRN", "x", "data", "x", "lrn_param { k: 2 norm_region: WITHIN_CHANNEL }"), "Caffe does not use it"),
        (layer("LRN", "x", "data", "x", "lrn_param { alpha: inf }"), "alpha must be a finite number, not inf"),
        (
            layer("Dropout", "x", "data", "x", "dropout_param { dropout_ratio: 1 }"),
            "rate must be at least 0 and below 1",
        ),
        (layer("Eltwise", "x", ["data", "data"], "x", "eltwise_param { operation: MAX }"), "MAX is not supported"),
        (layer("Eltwise", "x", ["data", "data"], "x", "eltwise_param { coeff: 1 coeff: -1 }"), "coeff: only 1"),
        (layer("Concat", "x", ["data", "data"], "x", "concat_param { axis: 2 }"), "axis: only 1"),
        (layer("Flatten", "x", "data", "x", "flatten_param { axis: 2 }"), "only from axis 1"),
        (layer("BatchNorm", "x", "data", "x"), "without a Scale"),
        (layer("BatchNorm", "x", "data", "x", "batch_norm_param { use_global_stats: true }"), "use_global_stats"),
        (layer("BatchNorm", "x", "data", "x", "batch_norm_param { moving_average_fraction: inf }"), "a decimal number"),
        (layer("Scale", "x", "data", "x", "scale_param { bias_term: true }"), "right after a BatchNorm only"),
        (layer("Scale", "x", "data", "x"), "bias_term: true is needed"),
        (conv("x", "data", 4, 3)[:-1] + "param { lr_mult: 0 } }", "frozen weights"),
        (conv("x", "data", 4, 3)[:-1] + "propagate_down: false }", "propagate_down: false"),
        (conv("x", "data", 4, 3)[:-1] + "blobs { data: 1 data: 2 } }", "holds weights"),
        (layer("ReLU", "x", "nothing", "x"), "its bottom 'nothing' is of no layer before it"),
        (layer("ReLU", "x", "label", "x"), "batch, channels, height, width, not [4]"),
        (layer("ReLU", "data", "data", "x"), "line 1 has a layer"),
        ('layer { name: "x" bottom: "data" top: "x" }', "needs a type"),
        ('layer { type: "ReLU" bottom: "data" top: "x" }', "a layer needs a name"),
        ('layer { name: "a\\nb" type: "ReLU" bottom: "data" top: "x" }', "characters that cannot be shown"),
        ('layer { name: "x" type: "ReLU" bottom: "data" top: "x" top: "y" }', "number of tops: ReLU takes 1 here"),
    ],
)
def test_what_is_wrong_with_a_layer(line: str, words: str) -> None:
    message = refusal(tiny(line, end="x"))
    assert words in message
    assert "line 5" in message or "line 1:" in message


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["nme: 'x'", tiny()], "line 1: nme: no such field"),
        ([tiny(), 'layers { name: "x" type: RELU bottom: "data" top: "x" }'], "both layer and layers are there"),
        (['layers { layer { name: "x" type: "relu" } bottom: "data" top: "x" }'], "upgrade_net_proto_text"),
        (["name: 'empty'"], "the network has 0 layers in phase TRAIN"),
        (["base_lr: 0.01", "net: 'train_val.prototxt'"], "is this a network's file?"),
        ([TINY_DATA, loss("loss", "data")], "one label per image is supported"),
        ([TINY_DATA, conv("c", "data", 4, 3)], "nothing in the network uses its output, and the network has no loss"),
        ([tiny(conv("c", "data", 4, 3))], "line 5: layer 'c': nothing in the network uses its output"),
        ([tiny(conv("c", "data", 4, 3), conv("c", "c", 4, 3), end="c")], "line 6: layer 'c': line 5 has a layer"),
        ([tiny(conv("a", "data", 4, 3), layer("ReLU", "b", "data", "a"), end="a")], "'a' is another layer's already"),
        (['input: "data" input_dim: [1, 3, 8]', dense("fc", "data", 5)], "3 input_dim for 1 input"),
        (['input: "data"', dense("fc", "data", 5)], "each input needs an input_shape"),
        (['input: "data" input_shape { dim: [1, 30] }', dense("fc", "data", 5)], "only networks over images"),
        (
            [
                'input: "a" input: "b" input_shape { dim: [1,3,4,4] } input_shape { dim: [1,3,4,4] }',
                layer("Eltwise", "x", ["a", "b"], "x"),
                dense("fc", "x", 5),
            ],
            "a network here has one image input",
        ),
        (
            [TINY_DATA, dense("fc", "data", 5), layer("Softmax", "p", "fc", "p"), dense("fc2", "p", 5)],
            "its bottom 'p' is of 'p', the network's loss",
        ),
        ([tiny(), loss("again", "fc", "loss_param { ignore_label: 255 }")], "ignore_label: not supported"),
        ([tiny(), loss("again", "fc", "loss_param { normalization: NONE }")], "normalization: NONE"),
        (
            [TINY_DATA, dense("fc", "data", 5), layer("SoftmaxWithLoss", "l", ["fc", "labl"], "l")],
            "did you mean label?",
        ),
        ([TINY_DATA, dense("fc", "data", 5), layer("SoftmaxWithLoss", "l", ["fc", "data"], "l")], "'data' is computed"),
        ([tiny(dense("side", "data", 7), loss("other", "side"))], "its losses differ in the number of classes"),
        (["force_backward: true", tiny()], "line 1: force_backward: take it away, and ask for input_grad=on"),
        (
            [tiny(layer("ReLU", "r", "data", rest="loss_weight: 1"))],
            "only the first top of a SoftmaxWithLoss is a loss",
        ),
        ([tiny(layer("ReLU", "r", "data", rest="include { phase: TRAIN } exclude { phase: TEST }"))], "not both"),
        (
            [
                tiny(
                    conv("a", "data", 4, 3)[:-1] + 'param { name: "w" } }',
                    conv("b", "a", 4, 3)[:-1] + 'param { name: "w" } }',
                    end="b",
                )
            ],
            "shares its weights (w) with layer 'a'",
        ),
        (
            [tiny(layer("BatchNorm", "n", "data", "n"), layer("ReLU", "r", "n"), end="n")],
            "layer 'r': reads the BatchNorm 'n' (line 5) without a Scale",
        ),
        ([TINY_DATA, 'layer { name: "d" type: "Data" top: "x" }'], "needs a batch_size"),
        (['layer { name: "d" type: "Input" top: "data" }', dense("fc", "data", 5)], "shape: 0 for 1 tops"),
    ],
)
def test_what_is_wrong_with_a_network(lines: list[str], words: str) -> None:
    assert words in refusal(*lines)


def test_a_file_is_named_by_its_whole_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("nets") / "broken.prototxt"
    path.write_text("layer {")
    with pytest.raises(GraphError, match=f"^{path}, line 1: expected "):
        load_in_process(str(path))
