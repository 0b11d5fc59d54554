"""A training script in TensorFlow: one `tf.function`, eager, recorded or compiled with XLA."""

from __future__ import annotations

from typing import Final

from deepstone.errors import UsageError
from deepstone.runner.job import Job
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.tuner.emit.script import Facts, before_import, facts_of, header, refuse_others, refuse_values

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
_POLICIES: Final = {"bf16-mixed": "mixed_bfloat16", "bf16": "bfloat16"}


def tensorflow_script(job: Job, found: str) -> str:
    refuse_values(job, *_NO_SCRIPT)
    if World.of(job.request).is_parallel:
        raise UsageError("--emit: processes: a script depends on how you start TensorFlow's workers; use processes=1")
    refuse_others(job, _WRITTEN)
    facts = facts_of(job)
    before = before_import("TensorFlow", facts)
    parts = [
        header(job, facts, found, "python train.py"),
        (f"{before}\n" if before else "") + "import time\n\nimport tensorflow as tf\n",
        _settings(job, facts),
        _network(job, facts),
        _data(job, facts),
        _step(job),
        _MAIN,
    ]
    return "\n".join(parts)


def _settings(job: Job, facts: Facts) -> str:
    request, lines = job.request, [f"BATCH = {facts.batch}", "STEPS = 30"]
    if not facts.on_gpu:
        lines.append('tf.config.set_visible_devices([], "GPU")')
    if request["threads"] != AUTO:
        lines.append(f"tf.config.threading.set_intra_op_parallelism_threads({request['threads']})")
    if request["inter_threads"] != AUTO:
        lines.append(f"tf.config.threading.set_inter_op_parallelism_threads({request['inter_threads']})")
    precision = str(request["precision"])
    if facts.on_gpu and precision in ("fp32", "tf32"):
        lines.append(f"tf.config.experimental.enable_tensor_float_32_execution({precision == 'tf32'})")
    if request["algorithm"] == "deterministic":
        lines.append("tf.config.experimental.enable_op_determinism()")
    if precision in _POLICIES:
        lines.append(f'tf.keras.mixed_precision.set_global_policy("{_POLICIES[precision]}")')
    if request["layout"] == "nchw":
        lines.append('tf.keras.backend.set_image_data_format("channels_first")')
    return "\n".join([*lines, "", ""])


def _network(job: Job, facts: Facts) -> str:
    return f'''def make_model():
    """Your network comes here. This small one stands in for {job.model.name}."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense({facts.classes}),
        ]
    )

'''


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


def _step(job: Job) -> str:
    parts, compile_mode = int(job.request["accumulate"]), _compile_mode(job)
    lines = [
        "def make_step(model, example):",
        '    """One training step of a network: step(images, labels) gives the loss. `example`: a batch."""',
        "    model(example[0])  # makes the variables",
        "    trained = model.trainable_variables",
        "    variables = [each.value if isinstance(each, tf.keras.Variable) else each for each in trained]",
        *_velocities(job),
        "",
        "    def loss_and_gradients(images, labels):",
        "        with tf.GradientTape() as tape:",
        "            scores = tf.cast(model(images, training=True), tf.float32)",
        "            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)",
        "            loss = tf.reduce_mean(losses)",
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
        "            # One kernel; tf.keras.optimizers.SGD(1e-4, momentum=0.9) does the same in several.",
        "            tf.raw_ops.ResourceApplyMomentum(",
        "                var=variable.handle,",
        "                accum=velocity.handle,",
        "                lr=tf.constant(1e-4, variable.dtype),",
        "                grad=gradient,",
        "                momentum=tf.constant(0.9, variable.dtype),",
        "            )",
    ]


_MAIN: Final = """def main():
    tf.keras.utils.set_random_seed(0)
    data = batches()
    step = make_step(make_model(), next(data))
    for _ in range(10):  # warms up, and compiles
        loss = step(*next(data))
    loss.numpy()
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step(*next(data))
    loss.numpy()
    took = time.perf_counter() - begin
    print(f"loss {float(loss):.4f}, {BATCH * STEPS / took:.1f} images/s")


if __name__ == "__main__":
    main()
"""
