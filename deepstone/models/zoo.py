"""The model zoo: every network by name, with the source of its structure, and the models of plug-ins. Importing it
builds nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import cast

from deepstone import plugins
from deepstone.errors import UsageError
from deepstone.graph.graph import Graph
from deepstone.models.chains import alexnet, alexnet_kim, alexnet_owt, cifarnet, overfeat, vgg
from deepstone.models.googlenet import googlenet
from deepstone.models.inception import inception_v3, inception_v4
from deepstone.models.resnet import resnet, resnet110, resnet1001, resnet5000
from deepstone.plugins import PluginError, WithPlugins

_SAMPLE = "image"


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooModel:
    """A network with a name. `note` describes differences from its source; `sample` is the name of one of its
    samples."""

    name: str
    make: Callable[[], Graph]
    source: str
    note: str = ""
    sample: str = _SAMPLE


_VGG = "Simonyan and Zisserman 2014 (arXiv 1409.1556), configuration"
_RESNET = "He et al. 2015 (arXiv 1512.03385) as in torchvision, stride in the 3x3 (v1.5)"
_PREACTIVATION = "He et al. 2016 (arXiv 1603.05027) as in KaimingHe/resnet-1k-layers"

_MODELS = (
    ZooModel(
        name="cifarnet",
        make=cifarnet,
        source="Krizhevsky 2012 (cuda-convnet, layers-18pct) as in Caffe's cifar10_full",
    ),
    ZooModel(
        name="alexnet",
        make=alexnet,
        source="Krizhevsky et al. 2012 as in Caffe's bvlc_alexnet, 227x227",
    ),
    ZooModel(
        name="alexnet-owt",
        make=alexnet_owt,
        source="Krizhevsky 2014 (arXiv 1404.5997) as in torchvision; zanella2018",
        note="without the adaptive pool, which does nothing at 224x224",
    ),
    ZooModel(
        name="alexnet-kim",
        make=alexnet_kim,
        source="Kim et al. 2017, table II, 227x227",
    ),
    ZooModel(
        name="overfeat",
        make=overfeat,
        source="Sermanet et al. 2013 (arXiv 1312.6229), fast model, 231x231; zanella2018",
    ),
    ZooModel(name="vgg11", make=partial(vgg, 11), source=f"{_VGG} A"),
    ZooModel(name="vgg16", make=partial(vgg, 16), source=f"{_VGG} D"),
    ZooModel(name="vgg19", make=partial(vgg, 19), source=f"{_VGG} E"),
    ZooModel(
        name="googlenet",
        make=googlenet,
        source="Szegedy et al. 2014 (arXiv 1409.4842) as in Caffe's bvlc_googlenet",
        note="without the auxiliary heads",
    ),
    ZooModel(
        name="inception-v3",
        make=inception_v3,
        source="Szegedy et al. 2015 (arXiv 1512.00567) as in torchvision, 299x299",
        note="without the auxiliary head",
    ),
    ZooModel(
        name="inception-v4",
        make=inception_v4,
        source="Szegedy et al. 2016 (arXiv 1602.07261) as in timm, 299x299",
    ),
    ZooModel(name="resnet50", make=partial(resnet, 50), source=_RESNET),
    ZooModel(name="resnet101", make=partial(resnet, 101), source=_RESNET),
    ZooModel(name="resnet152", make=partial(resnet, 152), source=_RESNET),
    ZooModel(
        name="resnet110",
        make=resnet110,
        source="He et al. 2015 (arXiv 1512.03385), section 4.2, 32x32",
        note="shortcuts that change size are 1x1 convolutions (option B), not padding with zeros (A)",
    ),
    ZooModel(name="resnet1001", make=resnet1001, source=f"{_PREACTIVATION}, 32x32"),
    ZooModel(
        name="resnet5000",
        make=resnet5000,
        source=f"{_PREACTIVATION}, 32x32; HyPar-Flow (arXiv 1911.05146), jain2019",
        note="4997 layers, the depth 9n + 2 nearest to 5000",
    ),
)

ZOO = WithPlugins(MappingProxyType({model.name: model for model in _MODELS}), plugins.MODELS, ZooModel)


def make(name: str) -> Graph:
    """Return the graph of a model of the zoo. Raises UsageError if a plug-in fails to make its model."""
    if name in ZOO.own:
        return ZOO[name].make()
    function = cast("Callable[[], object]", ZOO[name].make)
    try:
        graph = function()
    except Exception as error:  # any error is the plug-in's
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"model {name} of a plug-in cannot be made: {reason}") from error
    if not isinstance(graph, Graph):
        raise UsageError(f"model {name} of a plug-in cannot be made: it returned {type(graph).__name__}, not a Graph")
    return graph


def sample_of(model: str) -> str:
    """Return the name of a sample of this model; the default is an image."""
    try:
        return ZOO[model].sample if model in ZOO else _SAMPLE
    except PluginError:  # a stored run's model may no longer be installed
        return _SAMPLE
