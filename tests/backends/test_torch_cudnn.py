"""cuDNN through its C interface. A stand-in, compiled here, takes the same calls and convolves on the host."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.backends.base import Unsupported
from deepstone.backends.torch.convolutions import cudnn as numbers
from deepstone.backends.torch.convolutions.cudnn import (
    AlgorithmGuess,
    Cudnn,
    CudnnError,
    load_cudnn,
    loaded_paths,
    major_version,
)
from deepstone.backends.torch.convolutions.gpu import GpuTrial, Handle, open_cudnn
from deepstone.backends.torch.convolutions.operands import Operands

SOURCE = Path(__file__).with_name("fake_cudnn.c")
PLAIN = Problem(batch=3, channels=4, image=(9, 8), filters=6, kernel=(3, 2), pad=(1, 1, 0, 0))
PROBLEMS = {
    "plain": PLAIN,
    "strided, in groups": Problem(
        batch=2, channels=4, image=(9, 9), filters=6, kernel=(3, 3), stride=(2, 1), pad=(1, 1, 2, 2), groups=2
    ),
    "with holes": Problem(batch=2, channels=3, image=(9, 9), filters=2, kernel=(2, 3), dilation=(2, 1)),
    "padded unevenly": Problem(batch=2, channels=3, image=(7, 7), filters=2, kernel=(3, 3), pad=(0, 1, 2, 0)),
}


class StandIn:
    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.handle = Handle(Cudnn(self.library), 1234)

    def __getitem__(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, f"fake_{name}").value

    def set(self, name: str, value: int, kind: Any = ctypes.c_int) -> None:
        kind.in_dll(self.library, f"fake_{name}").value = value


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc to compile the stand-in for cuDNN")
    path = tmp_path_factory.mktemp("cudnn") / "libcudnn.so.9"
    subprocess.run([gcc, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def cudnn(compiled: Path) -> Iterator[StandIn]:
    stand_in = StandIn(compiled)
    yield stand_in
    stand_in.set("failing", -1)
    stand_in.set("workspace", 4096, ctypes.c_size_t)


def operands(problem: Problem, *, channels_last: bool = False) -> Operands:
    torch.manual_seed(1)
    weight = torch.randn(problem.filters, problem.fan_in, *problem.kernel)
    return Operands.drawn(problem, weight, device=torch.device("cpu"), dtype=torch.float32, channels_last=channels_last)


def trial(cudnn: StandIn, problem: Problem, direction: Pass, *, free_bytes: int = 2**20, **layout: bool) -> Any:
    made = GpuTrial(
        cudnn.handle,
        operands(problem, **layout),
        direction,
        "fp32",
        free_bytes=lambda: free_bytes,
        wait=lambda: None,
    )
    return made.trial({"device": "gpu:0", "precision": "fp32"}, None)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_descriptors_and_arguments_say_what_is_meant(
    cudnn: StandIn, direction: Pass, name: str, channels_last: bool
) -> None:
    """Were one wrong, the stand-in would refuse it, or give another result than torch in float64."""
    found = trial(cudnn, PROBLEMS[name], direction, channels_last=channels_last)
    algorithm = numbers.ALGORITHMS[direction][1]
    known = found.attempt(algorithm)
    assert known["workspace_bytes"] == 4096
    assert 0 <= known["relative_error"] < 1e-6
    found.programs[algorithm]()
    assert cudnn["last_algo"] == 1


@pytest.mark.parametrize("direction", PASSES)
def test_the_heuristics_pick_is_the_first_that_can_run(cudnn: StandIn, direction: Pass) -> None:
    facts = trial(cudnn, PLAIN, direction).facts
    assert facts["picked"] == numbers.ALGORITHMS[direction][1]
    assert [name for name, _ in facts["algorithms"]] == list(numbers.ALGORITHMS[direction])


def test_what_cudnn_refuses_is_told_in_its_own_words_and_spares_the_others(cudnn: StandIn) -> None:
    found = trial(cudnn, PROBLEMS["strided, in groups"], "forward")
    with pytest.raises(Unsupported, match=r"^CUDNN_STATUS_NOT_SUPPORTED$"):
        found.attempt("WINOGRAD")
    assert found.attempt("IMPLICIT_GEMM")["workspace_bytes"] == 0
    assert list(found.programs) == ["IMPLICIT_GEMM"]


def test_an_algorithm_that_fails_while_it_runs(cudnn: StandIn) -> None:
    cudnn.set("failing", 4)
    with pytest.raises(Unsupported, match="EXECUTION_FAILED"):
        trial(cudnn, PLAIN, "forward").attempt("FFT")


def test_a_program_that_begins_to_fail_says_so(cudnn: StandIn) -> None:
    found = trial(cudnn, PLAIN, "forward")
    found.attempt("FFT")
    cudnn.set("failing", 4)
    with pytest.raises(CudnnError, match="EXECUTION_FAILED"):
        found.programs["FFT"]()


def test_a_workspace_that_does_not_fit_is_not_tried(cudnn: StandIn) -> None:
    cudnn.set("workspace", 2**40, ctypes.c_size_t)
    with pytest.raises(Unsupported, match=r"a workspace of 1\.00 TiB, and 1\.00 MiB are free"):
        trial(cudnn, PLAIN, "forward").attempt("IMPLICIT_PRECOMP_GEMM")


def test_programs_still_run_after_the_workspace_has_moved(cudnn: StandIn) -> None:
    """All share one, and a later algorithm may need a larger."""
    found = trial(cudnn, PLAIN, "forward")
    cudnn.set("workspace", 100, ctypes.c_size_t)
    found.attempt("IMPLICIT_PRECOMP_GEMM")
    small = found.programs["IMPLICIT_PRECOMP_GEMM"]
    cudnn.set("workspace", 2**19, ctypes.c_size_t)
    found.attempt("IMPLICIT_PRECOMP_GEMM")
    cudnn.set("workspace", 100, ctypes.c_size_t)
    small()


def test_descriptors_are_given_back(cudnn: StandIn) -> None:
    gc.collect()
    before = cudnn["alive"]
    found = trial(cudnn, PLAIN, "weight")
    found.attempt("ALGO_1")
    assert cudnn["alive"] > before
    del found
    gc.collect()
    assert cudnn["alive"] == before


def test_work_goes_to_torchs_stream(cudnn: StandIn) -> None:
    assert ctypes.c_void_p.in_dll(cudnn.library, "fake_stream").value == 1234


@pytest.mark.parametrize(("precision", "math"), [("fp32", 3), ("tf32", 0), ("bf16", 1), ("fp16", 1), ("fp64", 0)])
def test_how_a_precision_is_multiplied(precision: str, math: int) -> None:
    """CUDNN_DEFAULT_MATH 0 allows TF32, CUDNN_TENSOR_OP_MATH 1, CUDNN_FMA_MATH 3 keeps to fp32."""
    assert numbers.math_type(precision) == math


def test_numbers_are_those_of_the_headers() -> None:
    """cudnn_ops_v9.h: the position of a name is its number."""
    assert numbers.ALGORITHMS["forward"].index("WINOGRAD_NONFUSED") == 7
    assert numbers.ALGORITHMS["data"].index("FFT_TILING") == 3
    assert numbers.ALGORITHMS["weight"].index("ALGO_3") == 3
    assert numbers.ALGORITHMS["weight"].index("FFT_TILING") == 6
    assert [len(numbers.ALGORITHMS[each]) for each in PASSES] == [8, 6, 7]
    assert ctypes.sizeof(AlgorithmGuess) == 48
    assert AlgorithmGuess.memory_bytes.offset == 16


def test_where_the_library_is_looked_for(compiled: Path, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    lib = site / "nvidia" / "cudnn" / "lib"
    lib.mkdir(parents=True)
    (site / "torch").mkdir()
    assert load_cudnn(77, site / "torch") is None
    shutil.copy(compiled, lib / "libcudnn.so.77")
    assert isinstance(load_cudnn(77, site / "torch"), Cudnn)


def test_the_one_that_is_loaded_is_taken_with_the_parts_beside_it(compiled: Path, tmp_path: Path) -> None:
    loaded = tmp_path / "libcudnn.so.79"
    shutil.copy(compiled, loaded)
    assert loaded_paths(loaded.name) == []
    assert load_cudnn(79, tmp_path / "elsewhere" / "torch") is None
    ctypes.CDLL(str(loaded))
    assert loaded_paths(loaded.name) == [str(loaded)]
    assert isinstance(load_cudnn(79, tmp_path / "elsewhere" / "torch"), Cudnn)


def test_a_library_that_is_something_else_is_passed_over(compiled: Path, tmp_path: Path) -> None:
    """One without cuDNN's functions, under its name."""
    gcc = shutil.which("gcc")
    assert gcc
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    path = tmp_path / "torch" / "lib" / "libcudnn.so.78"
    subprocess.run([gcc, "-shared", "-x", "c", "-o", path, "-"], input=b"int nothing;", check=True)
    assert load_cudnn(78, tmp_path / "torch") is None
    # A main library without the functions of its parts is as good as they are.
    shutil.copy(compiled, path.with_name("libcudnn_cnn.so.78"))
    assert isinstance(load_cudnn(78, tmp_path / "torch"), Cudnn)


@pytest.mark.parametrize(("version", "major"), [(91900, 9), (90100, 9), (8902, 8)])
def test_versions(version: int, major: int) -> None:
    assert major_version(version) == major


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_on_a_gpu_every_algorithm_convolves_or_says_why_not(direction: Pass, name: str) -> None:
    problem, handle = PROBLEMS[name], open_cudnn()
    torch.manual_seed(1)
    weight = torch.randn(problem.filters, problem.fan_in, *problem.kernel)
    on_gpu = Operands.drawn(problem, weight, device=torch.device("cuda", 0), dtype=torch.float32, channels_last=False)
    on_host = Operands(
        problem=on_gpu.problem, images=on_gpu.images.cpu(), weight=on_gpu.weight.cpu(), upstream=on_gpu.upstream.cpu()
    )
    assert abs(on_gpu.exact(direction) - on_host.exact(direction)).max() < 1e-10  # torch's float64 against NumPy's
    found = GpuTrial(handle, on_gpu, direction, "fp32", free_bytes=lambda: 2**30, wait=torch.cuda.synchronize).trial(
        {}, None
    )
    attempts = {algorithm: outcome(found, algorithm) for algorithm, _ in found.facts["algorithms"]}
    for told in attempts.values():
        assert told < 1e-3 if isinstance(told, float) else "CUDNN_STATUS" in told or "workspace" in told
    assert any(isinstance(told, float) for told in attempts.values())
    assert found.facts["picked"] in numbers.ALGORITHMS[direction]


def outcome(found: Any, algorithm: str) -> float | str:
    """Its error, or why it cannot."""
    try:
        error = found.attempt(algorithm)["relative_error"]
    except Unsupported as reason:
        return str(reason)
    return error if isinstance(error, float) else str(error)
