"""torch on the CPU: every value of every axis is honoured and seen to be, or refused with the reason.

One worker serves most of these tests, one job after the other. What changes the whole process has a worker of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from msgspec import structs
from setup_suite import CANNOT_ON_A_CPU, NativeEngineSuite, Refusals, RefusedSuite, SetupSuite, WholeProcessSuite
from tiny_jobs import tiny, tiny_job
from workbench import Bench, observed

from deepstone.backends.base import Group, Job, Missing
from deepstone.backends.before_import import torch as torch_environment
from deepstone.backends.torch import settings
from deepstone.backends.torch.backend import TorchBackend
from deepstone.backends.torch.effective import Effects, Observed
from deepstone.backends.torch.lower import BlockConv
from deepstone.backends.torch.onednn import implementations, narrowed_products, onednn_dtypes, widest_isa
from deepstone.backends.torch.training import optimizer_of
from deepstone.errors import MissingError
from deepstone.graph import ops
from deepstone.graph.space_to_depth import blocks_of
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.runner.conversation import JobFailed, Prepared, talking_to_worker
from deepstone.runner.job import Job as RunnerJob
from deepstone.setups.axes import ISA_ORDER, Value, format_cpus
from deepstone.setups.request import complete

TIMEOUT_S = 1800.0


def job(**axes: Value) -> RunnerJob:
    # One thread unless asked: on a busy machine two wait for each other.
    return tiny_job("torch", **{"device": "cpu", "threads": 1, **axes})


@contextmanager
def worker(**axes: Value) -> Iterator[Bench]:
    with talking_to_worker(tiny_job("torch", device="cpu", **axes), timeout_s=TIMEOUT_S) as talk:
        yield Bench(talk, job)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with worker() as bench:
        yield bench


class TestHonoured(SetupSuite):
    NARROW: ClassVar[dict[str, float]] = {"bf16-mixed": 0.02, "bf16": 0.02, "fp16-mixed": 0.02}

    def test_what_auto_means(self, bench: Bench):
        prepared = bench.prepare(threads="auto")
        version = torch.__version__.partition("+")[0]
        seen = {axis: observed(prepared, axis) for axis in ("framework", "device", "layout", "precision", "algorithm")}
        assert seen == {
            "framework": f"torch@{version}",
            "device": "cpu",
            "layout": "nchw",
            "precision": "fp32",
            "algorithm": "heuristic",
        }
        assert observed(prepared, "compile") == "off"
        assert int(observed(prepared, "threads")) >= 1
        assert int(observed(prepared, "inter_threads")) >= 1
        assert observed(prepared, "affinity") == format_cpus(sorted(os.sched_getaffinity(0)))

    @pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16", "fp16-mixed", "fp64"])
    def test_precision(self, bench: Bench, precision: str):
        assert observed(bench.prepare(precision=precision), "precision") == precision

    def test_engine_onednn(self, bench: Bench):
        prepared = bench.prepare(engine="onednn")
        assert observed(prepared, "engine") == "onednn"
        assert prepared.details["onednn_primitives"]["convolution"]

    def test_input_from_host_memory_costs_time_in_the_data_phase(self, bench: Bench):
        """Four megabytes to copy, against looking at what is already there."""
        taken_s: dict[str, float] = {}
        for place in ("resident", "host"):
            bench.prepare(input=place, batch=1024, phase="forward")
            taken_s[place] = min(bench.talk.phases(5)["data"])
        assert taken_s["host"] > 0
        assert taken_s["host"] > 5 * taken_s["resident"]

    def test_fused_momentum_is_momentum(self, bench: Bench):
        fused = bench.losses(8, optimizer="momentum-fused")
        assert fused == pytest.approx(bench.losses(8, optimizer="momentum"), rel=1e-5)


def test_fused_momentum_begins_as_momentum_does_after_an_overflow():
    """A loss scale is too large at first, and the step that it skips may leave nothing behind."""
    after: list[torch.Tensor] = []
    for optimizer in ("momentum", "momentum-fused"):
        request = complete({"device": "cpu", "precision": "fp16-mixed", "optimizer": optimizer})
        weight = torch.nn.Parameter(torch.ones(300))
        update, scaler = optimizer_of([weight], settings.apply(request)), torch.amp.GradScaler("cpu")
        del [torch.full((300,), 7.0) for _ in range(50)][:]  # what is in memory that is taken next
        for size in (1e38, 1.0, 1.0):
            update.zero_grad()
            scaler.scale((size * weight).sum()).backward()
            scaler.step(update)
            scaler.update()
        after.append(weight.detach())
    assert torch.equal(*after)
    assert not torch.equal(after[0], torch.ones(300))


def test_input_grad_gives_the_image_a_gradient():
    """Nothing of the protocol shows it, so the backend is used in this process."""
    samples, labels = synthetic_batch(tiny(), 4, 0)
    for asked, expected in (("on", True), ("off", False)):
        request = complete({"framework": "torch", "device": "cpu", "batch": 4, "input_grad": asked})
        backend = TorchBackend()
        backend.build(
            Job(
                graph=tiny().to_worker_json(),
                weights=initial_parameters(tiny(), 0),
                samples=samples,
                labels=labels,
                request=dict(request),
                scratch="",
            )
        )
        backend.first_step()
        image = backend._steps._batch._placed
        assert (image.grad is not None) == expected
        assert image.requires_grad == expected
        assert backend.observe()["input_grad"]["value"] == asked


LIMITED = {"threads": 1, "inter_threads": 3, "isa": "avx2", "algorithm": "deterministic"}


class TestWholeProcess(WholeProcessSuite):
    LIMITED = LIMITED

    def test_no_wider_instructions_were_seen(self, limited: tuple[Bench, Prepared]):
        _, prepared = limited
        assert ISA_ORDER.index(str(observed(prepared, "isa"))) <= ISA_ORDER.index("avx2")
        assert observed(prepared, "engine") == "onednn"
        assert "avx512" not in str(prepared.details["onednn_primitives"])

    def test_without_the_limit_wider_ones_are_seen(self, bench: Bench):
        if "avx512f" not in Path("/proc/cpuinfo").read_text():
            pytest.skip("this CPU has nothing wider than AVX2")
        assert ISA_ORDER.index(str(observed(bench.prepare(), "isa"))) > ISA_ORDER.index("avx2")

    def test_the_limit_is_set_for_each_of_the_three_libraries(self):
        variables = torch_environment(complete({"isa": "avx2"}))
        assert variables == {
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
        }
        assert torch_environment(complete({})) == {}


@pytest.fixture(scope="module")
def native() -> Iterator[Bench]:
    with worker(engine="native") as bench:
        yield bench


class TestNativeEngine(NativeEngineSuite):
    def test_no_onednn_primitive_ran(self, native: Bench):
        assert native.prepare(engine="native").details["onednn_primitives"] == {}


@pytest.mark.slow
def test_compiled_it_computes_the_same(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And what was compiled is kept where the job says."""
    uncompiled = bench.losses()
    monkeypatch.setattr(
        bench, "_make_job", lambda **axes: structs.replace(job(**axes), compile_cache=str(tmp_path / "programs"))
    )
    prepared = bench.prepare(compile="default")
    assert list((tmp_path / "programs").rglob("*.so"))
    assert observed(prepared, "compile") == "default"
    assert bench.talk.losses(0) + bench.talk.losses(3) == pytest.approx(uncompiled, rel=1e-4)
    step_s = min(bench.talk.block(samples=5).step_s)
    assert prepared.first_step_s > 10 * step_s
    whole_s = min(sum(parts) for parts in zip(*bench.talk.phases(5).values(), strict=True))
    assert step_s / 10 < whole_s < step_s * 20  # on a busy machine


CANNOT: Refusals = [
    *CANNOT_ON_A_CPU,
    ({"engine": "xla"}, "torch_xla only"),
    ({"compile": "graph"}, "no graph that is recorded and left uncompiled"),
]


class TestRefused:
    @pytest.mark.parametrize("device", ["cpu", "auto"])
    @pytest.mark.parametrize(("axes", "reason"), CANNOT, ids=str)
    def test_with_the_reason(self, bench: Bench, device: str, axes: dict[str, Value], reason: str):
        """The worker refuses by itself, too: only it knows what `auto` will be."""
        if device == "auto" and torch.cuda.is_available():
            pytest.skip("auto means the GPU here")
        with pytest.raises(JobFailed, match=reason) as refusal:
            bench.prepare(device=device, **axes)
        assert refusal.value.outcome == "unsupported"

    def test_a_gpu_that_is_not_there_is_missing_and_not_unsupported(self, bench: Bench):
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        with pytest.raises(MissingError, match=r"device gpu:0: .*install a CUDA build of torch.* or use device=cpu"):
            bench.prepare(device="gpu:0")
        assert MissingError.exit_code == 4

    def test_cpus_that_are_not_there_are_missing(self):
        job = tiny_job("torch", device="cpu", affinity="9998-9999")
        with talking_to_worker(job, timeout_s=TIMEOUT_S) as talk, pytest.raises(MissingError, match="may use CPUs"):
            talk.hello()


class TestAfterRefusals(RefusedSuite):
    FRAMEWORK: ClassVar[str] = "torch"
    CANNOT: ClassVar[Refusals] = CANNOT
    HONOURED: ClassVar[dict[str, set[Value]]] = {
        **RefusedSuite.HONOURED,
        "precision": {"auto", "fp32", "bf16-mixed", "bf16", "fp16-mixed", "fp64"},
        "engine": {"auto", "onednn", "native"},
        "algorithm": {"auto", "heuristic", "deterministic"},
        "compile": {  # one mode is tried: each takes a minute
            *("auto", "off", "default", "reduce-overhead", "coordinate-descent"),
            *("max-autotune", "max-autotune-no-cudagraphs"),
        },
        "optimizer": {"momentum", "momentum-fused", "sgd", "adam", "adamw", "own"},
        "space_to_depth": {"off", "on"},  # in the tests of the lowering
    }
    ELSEWHERE: ClassVar[tuple[str, ...]] = (*RefusedSuite.ELSEWHERE, "wait")  # tests/checks/test_parallel_training.py


# Lines of oneDNN 3.12 (torch 2.13 on a Xeon), 3.2 and 2.6, cut at the right.
NEWER = """\
onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd69a3df32adcccb623b12cd7baa22)
onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2
onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,attri
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:acdb::f0 dst:f32::blocked:Acdb32a::f0,attr
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,src:f32::blocked:acdb::f0 w
onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,backward_weights,src:f32::blocked:acdb::f0 wei:f32:a:
"""
WITH_TIMES = """\
onednn_verbose,v1,1794716572190.487061,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32:a:block
onednn_verbose,v1,1794716572190.635010,primitive,exec,cpu,reorder,jit:blk,undef,src:f32::blocked:aBcd16b::f0 dst:f32::
"""
WITHOUT_A_VERSION = """\
onednn_verbose,primitive,create:cache_miss,cpu,convolution,jit:avx2,forward_training,src_f32:p:blocked:aBcd8b::f0
onednn_verbose,primitive,exec:check,primitive,unused primitive execution argument (4113),src/common/primitive_exec_typ
onednn_verbose,primitive,exec,cpu,convolution,jit:avx2,forward_training,src_f32:p:blocked:aBcd8b::f0 wei_f32:p:blocked
onednn_verbose,primitive,exec,cpu,matmul,brg:avx512_core_amx,undef,src_bf16::blocked:ab::f0 wei_bf16::blocked:ba::f0
"""
OLDER = """\
onednn_verbose,info,oneDNN v2.6.0 (commit 52b5f107dd9cf10910aaa19cb47f3abf9b349815)
onednn_verbose,info,prim_template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,attributes,au
onednn_verbose,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:Acdb32a:f0,,,256x128x3x3,10.31
onednn_verbose,exec,cpu,convolution,brgconv:avx512_core,forward_inference,src_f32::blocked:acdb:f0 wei_f32::blocked:Ac
"""
NARROWED = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward_training,src:f32:a:blocked:aBcd8b::f0 "
    "wei:f32:a:blocked:ABcd8b8a::f0 bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd8b::f0,attr-scratchpad:user "
    "attr-fpmath:bf16,alg:convolution_direct,mb2_ic16oc32_ih8oh6kh3sh1dh0ph0_iw8ow6kw3sw1dw0pw0,0.0161133\n"
)


class TestLog:
    @pytest.mark.parametrize(
        ("log", "primitives", "isa"),
        [
            (NEWER, {"convolution": ["brg_conv_fwd:avx512_core", "jit:avx512_core"]}, "avx512_core"),
            (WITH_TIMES, {"convolution": ["jit:avx512_core"]}, "avx512_core"),
            (WITHOUT_A_VERSION, {"convolution": ["jit:avx2"], "matmul": ["brg:avx512_core_amx"]}, "avx512_core_amx"),
            (OLDER, {"convolution": ["brgconv:avx512_core"]}, "avx512_core"),
            ("", {}, None),
            ("step 1\nloss 2.3, onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,\n", {}, None),
        ],
        ids=["newer", "with times", "without a version", "older", "empty", "someone else's"],
    )
    def test_what_ran(self, log: str, primitives: dict[str, list[str]], isa: str | None):
        assert implementations(log) == primitives
        assert widest_isa(primitives) == isa

    def test_number_types_that_were_read(self):
        assert onednn_dtypes(NARROWED) == {torch.float32}
        assert onednn_dtypes(WITHOUT_A_VERSION) == {torch.float32, torch.bfloat16}
        assert onednn_dtypes("") == set()

    def test_products_that_may_be_narrower(self):
        """As with ONEDNN_DEFAULT_FPMATH_MODE=BF16, under which fp32 is one in name only."""
        assert narrowed_products(NARROWED) == {"bf16"}
        assert narrowed_products(NARROWED.replace("fpmath:bf16", "fpmath:strict")) == set()
        assert narrowed_products(WITHOUT_A_VERSION) == set()

    def test_reference_code_has_no_instruction_set(self):
        assert widest_isa({"convolution": ["ref:any"], "pooling": ["simple:any"]}) is None

    def test_two_implementations_in_one(self):
        """oneDNN names a backward pass that is done by a forward one after both."""
        fused = {"convolution": ["brg_conv_bwd:avx512_core_amx+brg_conv_fwd:avx512_core", "jit:avx2"]}
        assert widest_isa(fused) == "avx512_core_amx"


class TestOwnGpu:
    """Which GPU torch takes, by scripted numbers of them."""

    @pytest.fixture
    def gpus(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        taken: list[int] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
        monkeypatch.setattr(torch.cuda, "set_device", taken.append)
        return taken

    def group(self, rank: int) -> Group:
        """Of two nodes with eight processes each."""
        request = {"device": "auto", "transport": "nccl", "interface": "auto"}
        return Group(rank, 16, rank % 8, [], request, "worker", share=rank, shares=16)

    @pytest.mark.parametrize(
        ("device", "rank", "index"), [("auto", 0, 0), ("auto", 3, 3), ("auto", 11, 3), ("gpu:2", 2, 2)]
    )
    def test_a_process_takes_that_of_its_place(self, gpus: list[int], device: str, rank: int, index: int):
        assert settings._device(device, self.group(rank)) == torch.device("cuda", index)
        assert gpus == [index]

    def test_there_are_too_few(self, gpus: list[int]):
        with pytest.raises(Missing, match="device gpu:4: rank 12 is process 5 of its node, and the framework sees 4"):
            settings._device("auto", self.group(12))
        with pytest.raises(Missing, match=r"device gpu:7: .* use gpu:0 to the last of them"):
            settings._device("gpu:7", None)
        assert gpus == []


@pytest.mark.parametrize(("asked", "switches"), [("tf32", ("tf32", "tf32")), ("tf32-conv", ("tf32", "ieee"))])
def test_compiled_on_a_gpu_tf32_is_told_by_the_switches(
    monkeypatch: pytest.MonkeyPatch, asked: str, switches: tuple[str, str]
) -> None:
    """Compiled code has no hooks that see number types, so only torch's own switches tell fp32 from TF32."""
    convolution, product = switches
    monkeypatch.setattr(torch.backends.cudnn, "conv", SimpleNamespace(fp32_precision=convolution))
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision=product))
    on_gpu = replace(settings.apply(complete({"framework": "torch", "device": "cpu"})), device=torch.device("cuda"))
    network = torch.nn.Linear(1, 1)
    effects = Effects(
        request=complete({"framework": "torch", "precision": asked}),
        settings=on_gpu,
        seen=Observed(),
        network=network,
        model=network,
        loss=torch.zeros(()),
        opaque=False,
    )
    assert effects.of_precision() == {"value": asked, "source": "set"}


def test_blocks_of_pixels_keep_channels_last() -> None:
    blocks = blocks_of(ops.Conv(channels=4, kernel=(3, 3), stride=(2, 2), pad=(1, 1, 1, 1)), (3, 8, 8))
    assert blocks is not None
    layer = BlockConv(3, 4, 3)
    layer.blocks = blocks
    plain = layer(torch.ones(2, 3, 8, 8))
    last = layer(torch.ones(2, 3, 8, 8).contiguous(memory_format=torch.channels_last))
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert not last.is_contiguous()
    torch.testing.assert_close(plain, last)
