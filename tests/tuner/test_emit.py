"""The code of a setup: every script runs as it stands, sets what the setup says, or is refused in one line."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from emitted import EXAMPLES, code_of, job_of, python_of, run_alone, run_in_torch
from msgspec.structs import replace
from tune_example import BEST, DEFAULT, OTHER, look, near, tuned

from deepstone.absent import Absent
from deepstone.errors import DeepstoneError, UsageError
from deepstone.results.tune import ObjectiveName, Tuned, TuneLimit, TuneObjective
from deepstone.setups.axes import Value
from deepstone.tuner.emit import EMITTED, Chosen, check_emitted, chosen_setup, emit

# Words of a setup, and lines that its script must have.
IN_TORCH = {
    "batch=4": ["torch.optim.SGD", "loss.backward()"],
    "batch=4 threads=1 inter_threads=1 layout=nhwc precision=bf16-mixed optimizer=momentum-fused accumulate=2": [
        'os.environ["OMP_NUM_THREADS"] = "1"',
        "torch.set_num_threads(1)",
        "torch.set_num_interop_threads(1)",
        "memory_format=torch.channels_last",
        "torch.autocast(DEVICE.type, torch.bfloat16)",
        "fused=True",
        "range(2)",
    ],
    "batch=4 precision=bf16 engine=native affinity=0": [
        "torch.bfloat16",
        "torch.backends.mkldnn.set_flags(False)",
        "os.sched_setaffinity(0, [0])",
    ],
    "batch=4 precision=fp16-mixed optimizer=momentum-fused": [
        "torch.amp.GradScaler",
        'optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)',
    ],
    "batch=4 precision=fp16-mixed algorithm=deterministic optimizer=adamw": [
        "scaler.scale(loss).backward()",
        "torch.use_deterministic_algorithms(True)",
        "AdamW",
    ],
    "batch=4 isa=avx2": ['os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"'],
}
ON_GPU = {
    "device=gpu precision=tf32 algorithm=benchmark compile=max-autotune": [
        'torch.device("cuda", 0)',
        "torch.backends.cudnn.benchmark = True",
        'torch.backends.cuda.matmul.fp32_precision = "tf32"',
        'mode="max-autotune"',
        "torch.cuda.synchronize()",
    ],
    "device=gpu:1 precision=tf32-conv engine=native": [
        'torch.device("cuda", 1)',
        'cudnn.conv.fp32_precision = "tf32"',
        'cuda.matmul.fp32_precision = "ieee"',
        "torch.backends.cudnn.enabled = False",
    ],
    "device=gpu processes=2 batch=8": ['dist.init_process_group("nccl")', '"cuda", int(os.environ["LOCAL_RANK"])'],
}
SEVERAL = "batch=8 processes=2 accumulate=2 bucket=5 compression=fp16"
IN_SEVERAL = {
    SEVERAL: [
        "torchrun --standalone --nproc-per-node 2 train.py",
        "BATCH = 4  # of each of 2 processes",
        'dist.init_process_group("gloo")',
        "bucket_cap_mb=5",
        "fp16_compress_hook",
        "model.no_sync()",
    ]
}
IN_OTHERS = {
    "framework=jax batch=4 threads=1 precision=bf16-mixed accumulate=2": ["lax.scan", "jnp.bfloat16", "PJRT_NPROC"],
    "framework=tensorflow batch=4 threads=1 precision=bf16-mixed engine=native accumulate=2": [
        "tf.cast(images, tf.bfloat16)",
        "set_intra_op_parallelism_threads(1)",
        'os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"',
        "tf.while_loop",
    ],
}
IN_OTHERS_IN_DEPTH = {
    "framework=jax batch=4 layout=nchw precision=bf16 optimizer=sgd": ["NCHW"],
    "framework=jax batch=4": ["donate_argnums"],
    "framework=tensorflow batch=4 compile=default layout=nchw": ["jit_compile=True", '"NCHW"'],
    "framework=tensorflow batch=4 compile=off precision=bf16 optimizer=sgd": ["return step"],
    "framework=tensorflow batch=4 inter_threads=1 algorithm=deterministic": ["enable_op_determinism"],
}


def _rate(printed: str) -> float:
    match = re.fullmatch(r"loss (\S+) to (\S+), (\S+) (images|samples)/s", printed)
    assert match, printed
    assert math.isfinite(float(match[1]))
    assert math.isfinite(float(match[2]))
    return float(match[3])


def _written(folder: Path, name: str, code: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(code)
    return path


def test_every_script_in_torch_runs_as_it_stands(tmp_path: Path) -> None:
    setups = [("cifarnet", words) for words in IN_TORCH]
    setups += [
        (f"{EXAMPLES}/my_model.py:make", "batch=2 precision=bf16-mixed"),
        (f"{EXAMPLES}/lstm.py:make", "batch=2"),
    ]
    paths = [_written(tmp_path, f"train{n}", _short(code_of(*each))) for n, each in enumerate(setups)]
    assert all(_rate(printed) > 0 for printed in run_in_torch(paths))


@pytest.mark.parametrize(
    ("words", "lines"), {**IN_TORCH, **ON_GPU, **IN_SEVERAL, **IN_OTHERS, **IN_OTHERS_IN_DEPTH}.items()
)
def test_a_script_sets_what_the_setup_says(words: str, lines: list[str]) -> None:
    code = code_of("cifarnet", words)
    ast.parse(code)
    assert max(map(len, code.splitlines())) <= 120
    assert [line for line in lines if line not in code] == []
    assert "deepstone" not in code


@pytest.mark.parametrize("words", IN_OTHERS)
def test_a_script_of_another_framework_runs_as_it_stands(words: str, tmp_path: Path) -> None:
    path = _written(tmp_path, "train", _short(code_of("cifarnet", words)))
    framework = words.split()[0].partition("=")[2]
    assert _rate(run_alone(python_of(framework), path).splitlines()[-1]) > 0


@pytest.mark.deep
@pytest.mark.parametrize("words", IN_OTHERS_IN_DEPTH)
def test_more_scripts_of_other_frameworks_run(words: str, tmp_path: Path) -> None:
    path = _written(tmp_path, "train", code_of("cifarnet", words))
    framework = words.split()[0].partition("=")[2]
    assert _rate(run_alone(python_of(framework), path).splitlines()[-1]) > 0


@pytest.mark.deep
def test_several_processes_run_under_torchrun(tmp_path: Path) -> None:
    code = code_of("cifarnet", SEVERAL)
    path = _written(tmp_path, "train", _short(code))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert _rate(run_alone(torchrun, path)) > 0


@pytest.mark.deep
def test_a_compiled_script_runs(tmp_path: Path) -> None:
    path = _written(tmp_path, "train", code_of("cifarnet", "batch=4 compile=default layout=nhwc"))
    assert _rate(run_in_torch([path])[0]) > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("checkpointing=on", "checkpoint"),
        ("phase=forward", "phase=train"),
        ("processes=2 batch=8 overlap=off", "DistributedDataParallel"),
        ("processes=2 batch=8 scheme=sharded", "data parallel"),
        ("processes=2 batch=8 compression=onebit", "fp16"),
        ("processes=4 batch=8 nodes=2 launcher=mpirun", "nodes=1"),
        ("input_grad=on", "does not set it"),
        ("framework=jax processes=2 batch=8", "processes=1"),
        ("framework=jax optimizer=adam", "SGD"),
        ("framework=tensorflow processes=2 batch=8", "processes=1"),
    ],
)
def test_what_a_script_cannot_do_is_refused_in_one_line(words: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        code_of("cifarnet", words)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_only_three_frameworks_have_code() -> None:
    assert EMITTED == ("torch", "jax", "tensorflow")
    with pytest.raises(UsageError, match="tensorflow"):
        check_emitted("tensorflw")
    with pytest.raises(UsageError):
        emit(job_of("cifarnet", "framework=fake"), "")


def _short(code: str) -> str:
    """With fewer steps, since a test looks at no rate."""
    return code.replace("STEPS = 30", "STEPS = 2").replace("range(9):  # warms up", "range(2):  # warms up")


def _framework_of(setup: Mapping[str, Value]) -> str:
    return str(setup.get("framework", "torch"))


def test_the_best_of_the_finals_in_a_framework_is_written() -> None:
    in_jax = chosen_setup(tuned(), "jax", _framework_of, "images")
    assert in_jax.setup == dict(BEST)
    assert "722 images/s" in in_jax.found
    assert "7.08x" in in_jax.found
    in_torch = chosen_setup(tuned(), "torch", _framework_of, "images")
    assert in_torch.setup == dict(OTHER)


def test_without_a_finalist_the_best_look_is_written_and_says_so() -> None:
    answer = tuned()
    none = replace(answer, finals=[final for final in answer.finals if final.is_default], best=answer.default)
    found = chosen_setup(none, "jax", _framework_of, "images")
    assert found.setup == dict(BEST)
    assert "not in the finals" in found.found
    with pytest.raises(UsageError, match="no setup in tensorflow"):
        chosen_setup(answer, "tensorflow", _framework_of, "images")


IN_JAX: dict[str, Value] = {"framework": "jax"}
SLOW: dict[str, Value] = {"framework": "jax", "threads": 1}
TWICE: dict[str, Value] = {**BEST, "batch": 512}


def _chosen(answer: Tuned, framework: str = "jax") -> Chosen:
    return chosen_setup(answer, framework, _framework_of, "images")


def _without_best() -> Tuned:
    """Of JAX only looks outside the finals; the best is the default, in torch."""
    answer = tuned()
    looks = [look for look in answer.looks if look.kind != "final" or look.setup != dict(BEST)]
    finals = [final for final in answer.finals if not final.is_best]
    return replace(answer, answer="nothing better", best=answer.default, finals=finals, looks=looks)


def test_a_gain_of_memory_is_written_as_memory() -> None:
    """Half the memory at four fifths of the speed is no twice of anything that is read as speed."""
    answer = replace(tuned(), objective=TuneObjective(name="memory"), ratio=near(2.0))
    found = _chosen(answer).found
    assert "2.0" not in found
    assert "0.500x" in found
    assert "memory" in found


def test_what_is_written_is_at_the_batch_that_was_asked_for() -> None:
    """Another batch is other training, in the finals and outside them."""
    answer = tuned()
    best = next(final for final in answer.finals if final.is_best)
    finals = [replace(final, setup=TWICE) if final is best else final for final in answer.finals]
    looks = [replace(each, setup=TWICE) if each.setup == dict(BEST) else each for each in answer.looks]
    free = replace(answer, answer="nothing better", best=answer.default, finals=finals, looks=looks)
    assert _chosen(free).setup == IN_JAX
    looks.append(look("search", {**IN_JAX, "batch": 512}, 9_000.0, 300.0))
    assert _chosen(replace(free, finals=[], looks=looks)).setup == IN_JAX


@pytest.mark.parametrize(
    ("limit", "large"),
    [
        (TuneLimit(name="memory", most=2.0**30), {"peak_bytes": 2**31}),
        (TuneLimit(name="power", most=200.0), {"samples_per_j": 1.0}),
    ],
)
def test_what_breaks_a_limit_is_not_written(limit: TuneLimit, large: dict[str, Any]) -> None:
    answer = replace(_without_best(), limits=[limit])
    metered = [replace(each, samples_per_j=1000.0) for each in answer.looks]
    answer = replace(answer, default=replace(answer.default, samples_per_j=near(1000.0)), looks=metered)
    looks = [replace(each, **large) if each.setup == dict(BEST) else each for each in answer.looks]
    assert _chosen(answer).setup == dict(BEST)
    assert _chosen(replace(answer, looks=looks)).setup == IN_JAX
    over = [replace(each, peak_bytes=2**31, samples_per_j=0.1) for each in looks]
    with pytest.raises(UsageError, match="within the limits"):
        _chosen(replace(answer, looks=over))


def test_the_default_beyond_the_limit_is_not_written() -> None:
    """It has a ratio of one, and a finalist that keeps the limit has none, because there is nothing to compare with."""
    answer = tuned()
    large = [replace(each, peak_bytes=2**31) if each.setup == dict(DEFAULT) else each for each in answer.looks]
    nothing = Absent("the default breaks a limit")
    finals = [replace(final, ratio=near(1.0) if final.is_default else nothing) for final in answer.finals]
    limits = [TuneLimit(name="memory", most=2.0**30)]
    within = replace(answer, looks=large, finals=finals, limits=limits, ratio=nothing)
    assert _chosen(within, "torch").setup == dict(OTHER)


def test_where_nothing_keeps_the_limits_nothing_is_written() -> None:
    answer = tuned()
    limits = [TuneLimit(name="memory", most=2.0**29)]
    none = replace(answer, answer="nothing better", best=answer.default, limits=limits)
    with pytest.raises(DeepstoneError, match="nothing was found within the limits"):
        _chosen(none, "torch")


def test_an_unproven_finalist_is_told_as_such_with_what_the_finals_measured() -> None:
    """Its luckiest round had 1,500 images a second, the finals 722."""
    answer = tuned()
    why_not = Absent("it is not shown to be the same training")
    finals = [replace(final, ratio=why_not) if final.is_best else final for final in answer.finals]
    lucky = [
        replace(each, samples_per_s=1500.0) if each.setup == dict(BEST) and each.round == 3 else each
        for each in answer.looks
    ]
    open_ = replace(answer, answer="nothing better", best=answer.default, finals=finals, looks=lucky)
    found = _chosen(open_)
    assert found.setup == dict(BEST)
    assert "not in the finals" not in found.found
    assert why_not.reason in found.found
    assert "722 images/s" in found.found
    assert "1,500" not in found.found
    # What may win comes first, even if it is slower.
    both = [replace(final, setup=IN_JAX) if final.setup == dict(OTHER) else final for final in finals]
    looks = [replace(each, setup=IN_JAX) if each.setup == dict(OTHER) else each for each in lucky]
    assert _chosen(replace(open_, finals=both, looks=looks)).setup == IN_JAX


@pytest.mark.parametrize("objective", ["throughput", "energy", "memory"])
def test_without_finals_what_is_sought_decides(objective: ObjectiveName) -> None:
    """The slow setup takes the least energy and the least memory."""
    few = {"samples_per_j": 9.0, "peak_bytes": 2**28}
    answer = _without_best()
    looks = [replace(each, samples_per_j=1.0, peak_bytes=2**30) for each in answer.looks]
    looks.append(replace(look("search", SLOW, 20.0, 300.0), **few))
    answer = replace(answer, looks=looks, objective=TuneObjective(name=objective))
    assert _chosen(answer).setup == (dict(BEST) if objective == "throughput" else SLOW)
    if objective == "energy":  # among those that are at most 1.5 times slower than the fastest
        fast = replace(answer, objective=TuneObjective(name=objective, slowdown=1.5))
        assert _chosen(fast).setup == dict(BEST)
