"""A training script in JAX: one compiled step that reuses the memory of what it replaces."""

from __future__ import annotations

from typing import Final

from deepstone.errors import UsageError
from deepstone.runner.job import Job
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.tuner.emit.script import Facts, before_import, facts_of, header, indented, refuse_others, refuse_values

_SEVERAL: Final = "processes: a JAX script for several processes depends on how you start them; use processes=1"
_NO_SCRIPT: Final = (
    ("checkpointing", ("on",), "where to cut depends on your network; see jax.checkpoint"),
    ("phase", ("forward", "gradient"), "a script trains; use phase=train"),
    ("precision", ("tf32-conv", "fp64"), "JAX has one switch for the precision of fp32 products; use fp32 or tf32"),
)
_NO_OPTAX: Final = "JAX itself has no optimizers; only plain and momentum SGD are written out"
_WRITTEN: Final = (
    "precision",
    "layout",
    "engine",
    "algorithm",
    "compile",
    "threads",
    "affinity",
    "optimizer",
    "accumulate",
)
_COMPILER: Final = {
    "heuristic": '{"xla_gpu_autotune_level": 0}',
    "deterministic": '{"xla_gpu_deterministic_ops": True}',
}


def jax_script(job: Job, found: str) -> str:
    refuse_values(job, *_NO_SCRIPT, ("optimizer", ("adam", "adamw", "own"), _NO_OPTAX))
    if World.of(job.request).is_parallel:
        raise UsageError(f"--emit: {_SEVERAL}")
    refuse_others(job, _WRITTEN)
    facts = facts_of(job)
    before = before_import("JAX", facts)
    imports = "import time\nfrom functools import partial\n\nimport jax\nimport jax.numpy as jnp\nfrom jax import lax\n"
    parts = [
        header(job, facts, found, "python train.py"),
        (f"{before}\n" if before else "") + imports,
        _settings(job, facts),
        _network(job, facts),
        _data(job, facts),
        _step(job),
        _MAIN,
    ]
    return "\n".join(parts)


def _settings(job: Job, facts: Facts) -> str:
    lines = [f"BATCH = {facts.batch}", "STEPS = 30"]
    precision = str(job.request["precision"])
    if facts.on_gpu and precision in ("fp32", "tf32"):
        name = "highest" if precision == "fp32" else "high"
        lines.append(f'jax.config.update("jax_default_matmul_precision", "{name}")')
    return "\n".join([*lines, "", ""])


def _is_nchw(job: Job) -> bool:
    return job.request["layout"] == "nchw"  # auto is NHWC, the order of Flax


def _network(job: Job, facts: Facts) -> str:
    channels, _, _ = facts.shape
    numbers = '("NCHW", "OIHW", "NCHW")' if _is_nchw(job) else '("NHWC", "HWIO", "NHWC")'
    shape = "(32, {0}, 3, 3)" if _is_nchw(job) else "(3, 3, {0}, 32)"
    image_axes = "(2, 3)" if _is_nchw(job) else "(1, 2)"
    return f'''def init_model(key):
    """Your parameters come here. These are of a small network that stands in for {job.model.name}."""
    first, second = jax.random.split(key)
    return {{
        "conv": 0.2 * jax.random.normal(first, {shape.format(channels)}),
        "dense": 0.1 * jax.random.normal(second, (32, {facts.classes})),
        "bias": jnp.zeros({facts.classes}),
    }}


def apply_model(params, images):
    """Your network comes here: it maps images to scores."""
    order = {numbers}
    x = lax.conv_general_dilated(images, params["conv"], (2, 2), "SAME", dimension_numbers=order)
    x = jax.nn.relu(x).mean({image_axes})
    return x @ params["dense"] + params["bias"]

'''


def _data(job: Job, facts: Facts) -> str:
    channels, height, width = facts.shape
    shape = f"{channels}, {height}, {width}" if _is_nchw(job) else f"{height}, {width}, {channels}"
    kind = ", jnp.bfloat16" if job.request["precision"] == "bf16" else ""
    device = 'jax.local_devices(backend="cpu")[0]' if not facts.on_gpu else _gpu(job)
    return f'''def place(images, labels):
    """Where, and how, a step expects its batch."""
    batch = jnp.asarray(images{kind}), jnp.asarray(labels, jnp.int32)
    return jax.device_put(batch, {device})


def batches():
    """Your images and labels come here, BATCH at a time. These are random, and always the same."""
    images, labels = jax.random.split(jax.random.key(0))
    shape = (BATCH, {shape})
    batch = place(jax.random.normal(images, shape), jax.random.randint(labels, (BATCH,), 0, {facts.classes}))
    while True:
        yield batch

'''


def _gpu(job: Job) -> str:
    device = str(job.request["device"])
    return f'jax.local_devices(backend="gpu")[{0 if device == AUTO else device.partition(":")[2] or 0}]'


def _step(job: Job) -> str:
    precision, parts = str(job.request["precision"]), int(job.request["accumulate"])
    options = _COMPILER.get(str(job.request["algorithm"]), "")
    compiled = f", compiler_options={options}" if options else ""
    loss = ["def loss_of(params, images, labels):"]
    if precision == "bf16-mixed":
        loss += ["    params, images = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (params, images))"]
    wide = ".astype(jnp.float32)" if precision.startswith("bf16") else ""
    loss += [
        f"    scores = jax.nn.log_softmax(apply(params, images){wide})",
        "    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()",
    ]
    update = ["params = jax.tree.map(lambda p, v: p - jnp.asarray(1e-4, p.dtype) * v, params, velocity)"]
    momentum = str(job.request["optimizer"]) == "momentum"
    velocity = "0.9 * v + g" if momentum else "g"
    body = [
        *_gradients(parts),
        f"velocity = jax.tree.map(lambda v, g: {velocity}, velocity, gradients)",
        *update,
        "return params, velocity, loss",
    ]
    kind = ["params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)"] if precision == "bf16" else []
    lines = [
        "def make_step(params, apply):",
        '    """One training step of a network: step(images, labels) gives the loss; step.state is what it trains."""',
        *("    " + line for line in kind),
        "",
        *("    " + line for line in loss),
        "",
        f"    @partial(jax.jit, donate_argnums=(0, 1){compiled})",
        "    def train(params, velocity, images, labels):",
        *("        " + line for line in body),
        "",
        "    def step(images, labels):",
        "        params, velocity, loss = train(*step.state, images, labels)",
        "        step.state = params, velocity",
        "        return loss",
        "",
        "    step.state = params, jax.tree.map(jnp.zeros_like, params)",
        "    return step",
    ]
    return "\n".join([*lines, "", ""])


def _gradients(parts: int) -> list[str]:
    if parts == 1:
        return ["loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)"]
    return [
        "def add(so_far, part):",
        "    return jax.tree.map(jnp.add, so_far, jax.value_and_grad(loss_of)(params, *part)), None",
        "",
        f"parts = [array.reshape({parts}, -1, *array.shape[1:]) for array in (images, labels)]",
        "start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)",
        f"loss, gradients = jax.tree.map(lambda x: x / {parts}, lax.scan(add, start, parts)[0])",
    ]


_MAIN: Final = f"""def main():
{indented(["step, data = make_step(init_model(jax.random.key(0)), apply_model), batches()"])}
    for _ in range(10):  # warms up, and compiles
        step(*next(data))
    jax.block_until_ready(step.state)
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step(*next(data))
    jax.block_until_ready((step.state, loss))
    took = time.perf_counter() - begin
    print(f"loss {{float(loss):.4f}}, {{BATCH * STEPS / took:.1f}} images/s")


if __name__ == "__main__":
    main()
"""
