"""A training script in TensorFlow: one `tf.function`, eager, recorded or compiled with XLA."""

from __future__ import annotations

from typing import Final

from deepstone.errors import UsageError
from deepstone.runner.job import Job
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.tuner.emit.script import Facts, facts_of, in_one_process, refuse_others, refuse_values
from deepstone.tuner.emit.tensorflow_network import TensorflowNetwork

_NO_SCRIPT: Final = (
    ("checkpointing", ("on",), "where to cut depends on your network; see tf.recompute_grad"),
    ("phase", ("forward", "gradient"), "a script trains; use phase=train"),
    ("precision", ("fp64",), "training in double precision is for checks"),
    ("optimizer", ("adam", "adamw", "own"), "only plain and momentum SGD are written out"),
)
_WRITTEN: Final = (
    *("precision", "layout", "engine", "algorithm", "compile", "threads", "inter_threads", "affinity", "optimizer"),
    "accumulate",
)


def tensorflow_script(job: Job, found: str) -> str:
    refuse_values(job, *_NO_SCRIPT)
    if World.of(job.request).is_parallel:
        raise UsageError("--emit: processes: a script depends on how you start TensorFlow's workers; use processes=1")
    refuse_others(job, _WRITTEN)
    facts = facts_of(job)
    network = _network_of(job, facts)
    code, data, step = f"{network.code()}\n", _data(job, facts), _step(job, network)
    numpy = "import numpy as np\n" if "np." in code else ""
    imports = f"import time\n\n{numpy}import tensorflow as tf\n"
    return in_one_process(job, facts, found, "TensorFlow", imports, _settings(job, facts), code, data, step, _MAIN)


def _settings(job: Job, facts: Facts) -> str:
    request, lines = job.request, [f"BATCH = {facts.batch}", "STEPS = 30"]
    if not facts.on_gpu:
        lines.append('tf.config.set_visible_devices([], "GPU")')
    elif index := int(str(request["device"]).partition(":")[2] or 0):
        lines.append(f'tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[{index}], "GPU")')
    if request["threads"] != AUTO:
        lines.append(f"tf.config.threading.set_intra_op_parallelism_threads({request['threads']})")
    if request["inter_threads"] != AUTO:
        lines.append(f"tf.config.threading.set_inter_op_parallelism_threads({request['inter_threads']})")
    precision = str(request["precision"])
    if facts.on_gpu and precision in ("fp32", "tf32"):
        lines.append(f"tf.config.experimental.enable_tensor_float_32_execution({precision == 'tf32'})")
    if request["algorithm"] == "deterministic":
        lines.append("tf.config.experimental.enable_op_determinism()")
    return "\n".join([*lines, "", ""])


def _network_of(job: Job, facts: Facts) -> TensorflowNetwork:
    request = job.request
    xla = _compile_mode(job) == "default"
    return TensorflowNetwork(
        job.model.graph,
        dropout=request["dropout"] == "on",
        nchw=request["layout"] == "nchw",
        precision=str(request["precision"]),
        limited=not facts.on_gpu and not xla,
        xla=xla,
    )


def _data(job: Job, facts: Facts) -> str:
    channels, height, width = facts.shape
    nchw = job.request["layout"] == "nchw"
    shape = f"{channels}, {height}, {width}" if nchw else f"{height}, {width}, {channels}"
    kind = "tf.bfloat16" if job.request["precision"] == "bf16" else "tf.float32"
    return f'''def place(images, labels):
    """How a step expects its batch."""
    return tf.cast(images, {kind}), tf.cast(labels, tf.int32)


def batches():
    """Your images and labels come here, BATCH at a time. These are random, and always the same."""
    images = tf.random.normal((BATCH, {shape}))
    batch = place(images, tf.random.uniform((BATCH,), maxval={facts.classes}, dtype=tf.int32))
    while True:
        yield batch

'''


def _step(job: Job, network: TensorflowNetwork) -> str:
    parts, compile_mode = int(job.request["accumulate"]), _compile_mode(job)
    lines = [
        "def make_step(model):",
        '    """One training step of a network: step(images, labels) gives the loss."""',
        "    variables = model.trainable_variables",
        *_velocities(job),
        "",
        "    def loss_of(images, labels):",
        *(f"        {line}" for line in network.loss(f"model({_images(job)})")),
        "",
        "    def loss_and_gradients(images, labels):",
        "        with tf.GradientTape() as tape:",
        "            loss = loss_of(images, labels)",
        "        return loss, tape.gradient(loss, variables)",
        "",
        "    def step(images, labels):",
        *("        " + line for line in _gradients(parts)),
        *_update(job),
        "        return loss",
        "",
        f"    return {_recorded(compile_mode)}",
    ]
    return "\n".join([*lines, "", ""])


def _images(job: Job) -> str:
    return "tf.cast(images, tf.bfloat16)" if job.request["precision"] == "bf16-mixed" else "images"


def _compile_mode(job: Job) -> str:
    """`auto` is a recorded graph; engine=xla compiles."""
    asked = str(job.request["compile"])
    return "default" if job.request["engine"] == "xla" else "graph" if asked == AUTO else asked


def _recorded(mode: str) -> str:
    if mode == "off":
        return "step"
    return f"tf.function(step, jit_compile={mode == 'default'}, autograph=False)"


def _velocities(job: Job) -> list[str]:
    if job.request["optimizer"] == "sgd":
        return []
    return ["    velocities = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]"]


def _gradients(parts: int) -> list[str]:
    if parts == 1:
        return ["loss, gradients = loss_and_gradients(images, labels)"]
    return [
        f"images = tf.reshape(images, [{parts}, -1, *images.shape[1:]])",
        f"labels = tf.reshape(labels, [{parts}, -1])",
        "",
        "def add(number, total, sums):",
        "    loss, gradients = loss_and_gradients(images[number], labels[number])",
        "    return number + 1, total + loss, [a + b for a, b in zip(sums, gradients)]",
        "",
        "start = 0, tf.zeros(()), [tf.zeros_like(variable) for variable in variables]",
        f"_, loss, gradients = tf.while_loop(lambda number, *_: number < {parts}, add, start, parallel_iterations=1)",
        f"loss, gradients = loss / {parts}, [gradient / {parts} for gradient in gradients]",
    ]


def _update(job: Job) -> list[str]:
    if job.request["optimizer"] == "sgd":
        return [
            "        for variable, gradient in zip(variables, gradients):",
            "            variable.assign_sub(1e-4 * gradient)",
        ]
    return [
        "        for variable, velocity, gradient in zip(variables, velocities, gradients):",
        "            # One kernel for both lines: velocity = 0.9 * velocity + gradient; variable -= 1e-4 * velocity.",
        "            tf.raw_ops.ResourceApplyMomentum(",
        "                var=variable.handle,",
        "                accum=velocity.handle,",
        "                lr=tf.constant(1e-4, variable.dtype),",
        "                grad=gradient,",
        "                momentum=tf.constant(0.9, variable.dtype),",
        "            )",
    ]


_MAIN: Final = """def main():
    tf.random.set_seed(0)
    step, data = make_step(Network()), batches()
    first = float(step(*next(data)))
    for _ in range(9):  # warms up, and compiles
        loss = step(*next(data))
    loss.numpy()
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step(*next(data))
    loss.numpy()
    took = time.perf_counter() - begin
    print(f"loss {first:.4f} to {float(loss):.4f}, {BATCH * STEPS / took:.1f} images/s")


if __name__ == "__main__":
    main()
"""
