"""A training script in JAX: one compiled step that reuses the memory of what it replaces."""

from __future__ import annotations

from typing import Final

from deepstone.errors import UsageError
from deepstone.runner.job import Job
from deepstone.setups.axes import AUTO, JAX
from deepstone.setups.refusals import MOST_LAYERS_IN_PARTS
from deepstone.setups.world import World
from deepstone.tuner.emit.jax_network import JaxNetwork
from deepstone.tuner.emit.script import Facts, facts_of, in_one_process, refuse_others, refuse_values

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
    "space_to_depth",
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
    network = _network_of(job, facts)
    imports = "import time\nfrom functools import partial\n\nimport jax\nimport jax.numpy as jnp\n"
    imports += "import numpy as np\nfrom jax import lax\n"
    code, data, step = f"{network.code()}\n", _data(job, facts), _step(job, network)
    return in_one_process(job, facts, found, "JAX", imports, _settings(job, facts), code, data, step, _MAIN)


def _settings(job: Job, facts: Facts) -> str:
    device = _gpu(job) if facts.on_gpu else 'jax.local_devices(backend="cpu")[0]'
    lines = [f"BATCH = {facts.batch}", "STEPS = 30", f"DEVICE = {device}"]
    precision = str(job.request["precision"])
    if facts.on_gpu and precision in ("fp32", "tf32"):
        name = "highest" if precision == "fp32" else "high"
        lines.append(f'jax.config.update("jax_default_matmul_precision", "{name}")')
    return "\n".join([*lines, "", ""])


def _is_nchw(job: Job) -> bool:
    return job.request["layout"] == "nchw"  # auto is NHWC, the order of Flax


def _network_of(job: Job, facts: Facts) -> JaxNetwork:
    request, graph = job.request, job.model.graph
    return JaxNetwork(
        graph,
        dropout=request["dropout"] == "on",
        space_to_depth=request["space_to_depth"] == "on",
        nchw=_is_nchw(job),
        narrow=str(request["precision"]).startswith("bf16"),
        on_cpu=not facts.on_gpu,
        scans=len(graph) > MOST_LAYERS_IN_PARTS[JAX],
    )


def _data(job: Job, facts: Facts) -> str:
    channels, height, width = facts.shape
    shape = f"{channels}, {height}, {width}" if _is_nchw(job) else f"{height}, {width}, {channels}"
    kind = ", jnp.bfloat16" if job.request["precision"] == "bf16" else ""
    return f'''def place(images, labels):
    """Where, and how, a step expects its batch."""
    batch = jnp.asarray(images{kind}), jnp.asarray(labels, jnp.int32)
    return jax.device_put(batch, DEVICE)


def batches():
    """Your images and labels come here, BATCH at a time. These are random, and always the same."""
    rng = np.random.default_rng(0)
    batch = place(rng.standard_normal((BATCH, {shape}), np.float32), rng.integers(0, {facts.classes}, BATCH))
    while True:
        yield batch

'''


def _gpu(job: Job) -> str:
    device = str(job.request["device"])
    return f'jax.local_devices(backend="gpu")[{0 if device == AUTO else device.partition(":")[2] or 0}]'


def _step(job: Job, network: JaxNetwork) -> str:
    precision, parts = str(job.request["precision"]), int(job.request["accumulate"])
    options = _COMPILER.get(str(job.request["algorithm"]), "")
    compiled = f", compiler_options={options}" if options else ""
    stats = "stats, " if network.has_norms else ""
    key = ", key" if network.drops else ""
    velocity = "0.9 * v + g" if str(job.request["optimizer"]) == "momentum" else "g"
    body = [
        *(["key, own = jax.random.split(key)"] if key else []),
        *_gradients(parts, network),
        f"velocity = jax.tree.map(lambda v, g: {velocity}, velocity, gradients)",
        "params = jax.tree.map(lambda p, v: p - jnp.asarray(1e-4, p.dtype) * v, params, velocity)",
        f"return params, velocity, {stats}{'key, ' if key else ''}loss",
    ]
    kind = ["params = jax.tree.map(lambda p: jnp.asarray(p, jnp.bfloat16), params)"] if precision == "bf16" else []
    state = ["params", "jax.tree.map(jnp.zeros_like, params)"]
    state += ["initial_statistics(params)"] if stats else []
    state += ["jax.random.key(0)"] if key else []
    given = f"{stats}{'key, ' if key else ''}images, labels"
    donated = "(0, 1, 2)" if stats else "(0, 1)"
    lines = [
        "def make_step(params):",
        '    """One training step of a network: step(images, labels) gives the loss; step.state is what it trains."""',
        *("    " + line for line in kind),
        "",
        *("    " + line for line in _loss(network, precision)),
        "",
        f"    @partial(jax.jit, donate_argnums={donated}{compiled})",
        f"    def train(params, velocity, {given}):",
        *("        " + line for line in body),
        "",
        "    def step(images, labels):",
        "        *step.state, loss = train(*step.state, images, labels)",
        "        return loss",
        "",
        f"    step.state = jax.device_put([{', '.join(state)}], DEVICE)",
        "    return step",
    ]
    return "\n".join([*lines, "", ""])


def _loss(network: JaxNetwork, precision: str) -> list[str]:
    """A function of the loss; with running statistics, of these as well."""
    stats, key = "stats, " if network.has_norms else "", ", key" if network.drops else ""
    images = "images.astype(jnp.bfloat16)" if precision == "bf16-mixed" else "images"
    call = f"network(params, {stats}{images}{key})"
    head = f"def loss_of(params, {stats}images, labels{key}):"
    if not stats:
        return [head, *(f"    {line}" for line in network.loss(call))]
    *before, last = network.loss("scores")
    lines = [f"scores, stats = {call}", *before, f"{last}, stats"]
    return [head, *(f"    {line}" for line in lines)]


def _gradients(parts: int, network: JaxNetwork) -> list[str]:
    stats, own = "stats, " if network.has_norms else "", ", own" if network.drops else ""
    both = ", has_aux=True" if stats else ""
    if parts == 1:
        found = "(loss, stats), gradients" if stats else "loss, gradients"
        return [f"{found} = jax.value_and_grad(loss_of{both})(params, {stats}images, labels{own})"]
    key = ", jax.random.fold_in(own, number)" if own else ""
    loss = "(loss, stats), gradients" if stats else "loss, gradients"
    return [
        "def add(so_far, part):",
        f"    total, sums{', stats' if stats else ''} = so_far",
        "    number, images, labels = part",
        f"    {loss} = jax.value_and_grad(loss_of{both})(params, {stats}images, labels{key})",
        f"    return (total + loss, jax.tree.map(jnp.add, sums, gradients){', stats' if stats else ''}), None",
        "",
        f"parts = [jnp.arange({parts}), *(array.reshape({parts}, -1, *array.shape[1:]) for array in (images, labels))]",
        f"start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params){', stats' if stats else ''}",
        f"(loss, gradients{', stats' if stats else ''}), _ = lax.scan(add, start, parts)",
        f"loss, gradients = jax.tree.map(lambda x: x / {parts}, (loss, gradients))",
    ]


_MAIN: Final = """def main():
    step, data = make_step(init_network(np.random.default_rng(0))), batches()
    first = float(step(*next(data)))
    for _ in range(9):  # warms up, and compiles
        step(*next(data))
    jax.block_until_ready(step.state)
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step(*next(data))
    jax.block_until_ready((step.state, loss))
    took = time.perf_counter() - begin
    print(f"loss {first:.4f} to {float(loss):.4f}, {BATCH * STEPS / took:.1f} images/s")


if __name__ == "__main__":
    main()
"""
