"""What the entry points name. The controller imports it, so it imports no framework; a string names the backend."""

from __future__ import annotations

from deepstone.backends.registry import BackendInfo
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.models.zoo import ZooModel
from deepstone.setups.request import Request

_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread(request: Request) -> dict[str, str]:
    """Set before NumPy is imported: the backend honours threads=1 alone."""
    return dict.fromkeys(_THREAD_COUNTS, "1")


BACKEND = BackendInfo(
    module="deepstone_example.backend",
    variables=one_thread,
    package="numpy",
    distribution="numpy",
    remedy="pip install numpy",
    startup_s=0.5,
)


def make() -> Graph:
    b = Builder("example-net")
    x = b.input("data", (3, 16, 16))
    x = b.relu("relu1", b.conv("conv1", x, channels=8, kernel=3, stride=2, pad=1))
    return b.build_classifier("logits", b.flatten("flatten", b.global_pool("average", x)), classes=10)


MODEL = ZooModel(name="example-net", make=make, source="the example plug-in")
