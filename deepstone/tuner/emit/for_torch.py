"""A training script in torch: eager or compiled, mixed precision, channels last, several processes by torchrun."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deepstone.graph.ops import Module, ModuleLoss
from deepstone.runner.job import Job
from deepstone.runner.team import rank_jobs
from deepstone.setups.axes import AUTO
from deepstone.setups.world import World
from deepstone.tuner.emit.script import Facts, before_import, facts_of, header, indented, refuse_others, refuse_values
from deepstone.tuner.emit.torch_network import TorchNetwork

_AUTOCAST: Final = {"bf16-mixed": "torch.bfloat16", "fp16-mixed": "torch.float16"}
_NO_SCRIPT: Final = (
    ("checkpointing", ("on",), "where to cut depends on your network; see torch.utils.checkpoint"),
    ("phase", ("forward", "gradient"), "a script trains; use phase=train"),
)
_NO_SCRIPT_OF_SEVERAL: Final = (
    ("scheme", ("sharded", "server", "server-async", "pipeline", "hybrid"), "a script trains data parallel"),
    ("overlap", ("off",), "torch's DistributedDataParallel always overlaps"),
    ("collective", ("reduce-broadcast",), "torch's DistributedDataParallel has no such mode"),
    ("compression", ("powersgd", "onebit"), "only fp16 has a hook of torch's own without further settings"),
    ("transport", ("mpi",), "torchrun starts processes that talk by gloo or nccl"),
)
_WRITTEN: Final = (
    *("precision", "layout", "engine", "algorithm", "compile", "threads", "inter_threads", "affinity", "optimizer"),
    *("accumulate", "processes", "launcher", "scheme", "transport", "overlap", "collective", "bucket", "compression"),
    "space_to_depth",
)
_COMPILED: Final = {"coordinate-descent": 'options={"coordinate_descent_tuning": True}'}
_OPTIMIZERS: Final = {
    "momentum": "torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)",
    "momentum-fused": "torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)",
    "sgd": "torch.optim.SGD(model.parameters(), lr=1e-4)",
    "adam": "torch.optim.Adam(model.parameters(), lr=1e-4)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)",
    "own": "own.optimizer(model.parameters())",
}


def torch_script(job: Job, found: str) -> str:
    refuse_values(job, *_NO_SCRIPT)
    world = World.of(job.request)
    if world.is_parallel:
        refuse_values(job, *_NO_SCRIPT_OF_SEVERAL)
    refuse_others(job, _WRITTEN)
    facts, network = facts_of(job), None if _own(job) else _network_of(job)
    run = (
        f"torchrun --standalone --nproc-per-node {world.processes} train.py" if world.is_parallel else "python train.py"
    )
    parts = [
        header(job, facts, found, run),
        _imports(job, facts),
        _settings(job, facts),
        _network(job, network),
        _data(job, facts),
        _step(job, network),
        _main(job),
    ]
    return "\n".join(parts)


def _settings(job: Job, facts: Facts) -> str:
    world = World.of(job.request)
    of_each = f"  # of each of {world.processes} processes" if world.is_parallel else ""
    lines = [f"BATCH = {facts.batch // world.data_ranks}{of_each}", "STEPS = 30", f"DEVICE = {_device(job)}"]
    return "\n".join([*lines, *_switches(job), *_joining(job), "", ""])


def _imports(job: Job, facts: Facts) -> str:
    before, own = before_import("torch", facts), _own(job)
    world = World.of(job.request)
    plain = ["inspect"] if job.model.graph.own_step else []
    plain += ["os"] if world.is_parallel and not before else []
    plain += ["contextlib"] if world.is_parallel and int(job.request["accumulate"]) > 1 else []
    plain += ["sys"] if own else []
    lines = [f"import {name}" for name in sorted([*plain, "time"])]
    lines += ["", "import torch"]
    lines += ["import torch.distributed as dist"] if world.is_parallel else []
    lines += [] if own else ["from torch import nn"]
    if job.request["compression"] == "fp16":
        lines.append("from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook")
    lines += [] if job.model.graph.own_step else ["from torch.nn import functional as F"]
    lines += ["from torch.nn.parallel import DistributedDataParallel"] if world.is_parallel else []
    if own:
        path = Path(own.path)
        lines += ["", f'sys.path.insert(0, "{path.parent}")', f"import {path.stem} as own  # your file"]
    return (f"{before}\n" if before else "") + "\n".join([*lines, ""])


def _own(job: Job) -> Module | ModuleLoss | None:
    return next((each.op for each in job.model.graph.layers if isinstance(each.op, Module | ModuleLoss)), None)


def _network_of(job: Job) -> TorchNetwork:
    request = job.request
    return TorchNetwork(
        job.model.graph,
        dropout=request["dropout"] == "on",
        space_to_depth=request["space_to_depth"] == "on",
        double=request["precision"] == "fp64",
    )


def _network(job: Job, network: TorchNetwork | None) -> str:
    own = _own(job)
    if own is not None:
        return f"def make_model():\n    return own.{own.function}()\n\n"
    assert network is not None
    return f"{network.code()}\n\n{_INITIAL}"


_INITIAL: Final = '''def make_model():
    """The network with its first weights: normally distributed, as He et al. 2015 have it; biases are 0."""
    model = Network()
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model

'''


def _data(job: Job, facts: Facts) -> str:
    if job.model.graph.own_step:
        return _OWN_DATA
    channels, height, width = facts.shape
    kind = _weights(job)
    order = ", memory_format=torch.channels_last" if job.request["layout"] == "nhwc" else ""
    return f'''def place(images, labels):
    """Where, and how, a step expects its batch."""
    return images.to(DEVICE{kind}{order}), labels.to(DEVICE)


def batches():
    """Your images and labels come here, BATCH at a time. These are random, and always the same."""
    batch = place(torch.randn(BATCH, {channels}, {height}, {width}), torch.randint(0, {facts.classes}, (BATCH,)))
    while True:
        yield batch

'''


_OWN_DATA: Final = '''def place(batch):
    """Where a step expects its batch."""
    return {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def random_input(spec):
    """A random input, as INPUTS in your file describes it."""
    spec = spec if isinstance(spec, dict) else {"shape": spec}
    if "shape" not in spec:
        return spec["value"]
    sides = spec["shape"] if "batch" in spec["shape"] else ("batch", *spec["shape"])
    shape, kind = [BATCH if side == "batch" else side for side in sides], spec.get("type", "float32")
    if "value" in spec:
        return torch.full(shape, spec["value"], dtype=getattr(torch, kind))
    if kind == "int64":
        return torch.randint(0, spec["vocabulary"], shape)
    return torch.rand(shape) < 0.5 if kind == "bool" else torch.randn(shape)


def batches():
    """Your data come here: dictionaries of tensors. These are random, and always the same."""
    batch = place({name: random_input(spec) for name, spec in own.INPUTS.items()})
    while True:
        yield (batch,)

'''


def _device(job: Job) -> str:
    device = str(job.request["device"])
    if device == "cpu" or (device == AUTO and not job.machine.gpus):
        return 'torch.device("cpu")'
    if World.of(job.request).is_parallel:
        return 'torch.device("cuda", int(os.environ["LOCAL_RANK"]))'
    return f'torch.device("cuda", {device.partition(":")[2] or 0})'


def _switches(job: Job) -> list[str]:
    """What holds for the whole process."""
    request, lines = job.request, list[str]()
    on_gpu = "cuda" in _device(job)
    first = rank_jobs(job)[0].request if World.of(request).is_parallel else request
    if first["threads"] != AUTO:
        lines.append(f"torch.set_num_threads({first['threads']})")
    if request["inter_threads"] != AUTO:
        lines.append(f"torch.set_num_interop_threads({request['inter_threads']})")
    if request["engine"] == "native":
        lines += (
            ["torch.backends.cudnn.enabled = False"]
            if on_gpu
            else ["torch.backends.mkldnn.set_flags(False)", "torch.backends.nnpack.set_flags(False)"]
        )
    algorithm = str(request["algorithm"])
    if algorithm.startswith("benchmark"):
        lines.append("torch.backends.cudnn.benchmark = True")
        lines += ["torch.backends.cudnn.benchmark_limit = 0  # try all"] if algorithm == "benchmark-all" else []
    elif algorithm == "deterministic":
        lines.append("torch.use_deterministic_algorithms(True)")
    return lines + (_fp32_precision(str(request["precision"])) if on_gpu else [])


def _fp32_precision(precision: str) -> list[str]:
    if precision == AUTO:
        return []
    convolutions = "tf32" if precision in ("tf32", "tf32-conv") else "ieee"
    products = "tf32" if precision == "tf32" else "ieee"
    return [
        f'torch.backends.cudnn.conv.fp32_precision = "{convolutions}"',
        f'torch.backends.cuda.matmul.fp32_precision = "{products}"',
    ]


def _step(job: Job, network: TorchNetwork | None) -> str:
    request, own = job.request, job.model.graph.own_step
    given = "batch" if own else "images, labels"
    lines = ["def make_step(model):", f'    """One training step of a network: step({given}) gives the loss."""']
    body = ["model.train()", f"model.to(DEVICE{_weights(job)})"]
    body += ["model.to(memory_format=torch.channels_last)"] if request["layout"] == "nhwc" else []
    body += _replicas(job)
    body += [f"optimizer = {_OPTIMIZERS[str(request['optimizer'])]}  # yours may be another one"]
    body += _scaler(job)
    body += ["", *_loss(job, network), ""]
    return "\n".join(lines) + "\n" + indented([*body, *_training(job), "", "return step"]) + "\n\n"


def _scaler(job: Job) -> list[str]:
    if job.request["precision"] != "fp16-mixed":
        return []
    lines = ["scaler = torch.amp.GradScaler(DEVICE.type)"]
    if job.request["optimizer"] == "momentum-fused":
        lines += [
            "for weight in model.parameters():  # a fused step that overflows leaves new buffers without values",
            '    optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)',
        ]
    return lines


def _weights(job: Job) -> str:
    return {"bf16": ", torch.bfloat16", "fp64": ", torch.float64"}.get(str(job.request["precision"]), "")


def _joining(job: Job) -> list[str]:
    if not World.of(job.request).is_parallel:
        return []
    transport = str(job.request["transport"])
    chosen = transport if transport != AUTO else "nccl" if "cuda" in _device(job) else "gloo"
    return [f'dist.init_process_group("{chosen}")']


def _replicas(job: Job) -> list[str]:
    if not World.of(job.request).is_parallel:
        return []
    bucket = job.request["bucket"]
    limit = "" if bucket == AUTO else f", bucket_cap_mb={bucket}"
    lines = [f"model = DistributedDataParallel(model{limit})"]
    if job.request["compression"] == "fp16":
        lines.append("model.register_comm_hook(None, fp16_compress_hook)")
    return lines


def _loss(job: Job, network: TorchNetwork | None) -> list[str]:
    """The loss of a batch, compiled if the setup says so."""
    narrow = job.request["precision"] == "bf16"
    wide = ".float()" if narrow else ""
    lines = ["def loss_of(images, labels):", f"    return F.cross_entropy(model(images){wide}, labels)"]
    if network is not None:
        lines[1:] = [f"    {line}" for line in network.loss("model(images)", narrow)]
    if job.model.graph.own_step:
        lines = [
            "names = inspect.signature(model.forward).parameters",
            "",
            "def loss_of(batch):",
            "    outputs = model(**{name: value for name, value in batch.items() if name in names})",
            '    if hasattr(own, "loss"):',
            "        return own.loss(outputs, batch)",
            "    if isinstance(outputs, torch.Tensor):",
            "        return outputs",
            '    return outputs["loss"] if isinstance(outputs, dict) else outputs[0]',
        ]
    mode = str(job.request["compile"])
    compiled = _COMPILED.get(mode, f'mode="{mode}"')
    return lines if mode in (AUTO, "off") else [*lines, "", f"loss_of = torch.compile(loss_of, {compiled})"]


def _training(job: Job) -> list[str]:
    request = job.request
    parts, given = int(request["accumulate"]), "batch" if job.model.graph.own_step else "images, labels"
    autocast = _AUTOCAST.get(str(request["precision"]))
    within = f"with torch.autocast(DEVICE.type, {autocast}):" if autocast else ""
    scaled = request["precision"] == "fp16-mixed"
    backward = "scaler.scale(loss).backward()" if scaled else "loss.backward()"
    update = ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    if parts == 1:
        loss = [within, f"    loss = loss_of({given})"] if within else [f"loss = loss_of({given})"]
        lines = ["optimizer.zero_grad()", *loss, backward, *update, "return loss.detach()"]
    else:
        lines = [
            "optimizer.zero_grad()",
            "total = 0.0",
            *_in_parts(job, parts, within, backward),
            *update,
            "return total",
        ]
    return [f"def step({given}):", *("    " + line for line in lines)]


def _in_parts(job: Job, parts: int, within: str, backward: str) -> list[str]:
    """The gradients of parts of the batch are added up; several processes exchange them with the last part only."""
    call = f"images.chunk({parts})[number], labels.chunk({parts})[number]"
    if job.model.graph.own_step:
        call = f"{{name: value.chunk({parts})[number] for name, value in batch.items()}}"
    loss = f"loss = loss_of({call}) / {parts}"
    inner = [within, f"    {loss}"] if within else [loss]
    inner += [backward, "total = total + loss.detach()"]
    head = f"for number in range({parts}):"
    if not World.of(job.request).is_parallel:
        return [head, *("    " + line for line in inner)]
    synced = f"with model.no_sync() if number < {parts - 1} else contextlib.nullcontext():"
    return [head, f"    {synced}", *("        " + line for line in inner)]


def _main(job: Job) -> str:
    is_parallel = World.of(job.request).is_parallel
    things = "samples" if job.model.graph.own_step else "images"
    wait = ["torch.cuda.synchronize()"] if "cuda" in _device(job) else []
    lines = ["def main():", "    torch.manual_seed(0)", "    step, data = make_step(make_model()), batches()"]
    lines += ["    first = float(step(*next(data)))"]
    lines += ["    for _ in range(9):  # warms up, and compiles", "        step(*next(data))"]
    lines += [f"    {line}" for line in wait]
    lines += ["    begin = time.perf_counter()", "    for _ in range(STEPS):", "        loss = step(*next(data))"]
    lines += [f"    {line}" for line in wait]
    lines += ["    took = time.perf_counter() - begin"]
    rate = f"{{BATCH * STEPS{' * dist.get_world_size()' if is_parallel else ''} / took:.1f}} {things}/s"
    said = f'print(f"loss {{first:.4f}} to {{float(loss):.4f}}, {rate}")'
    if is_parallel:
        lines += ["    if dist.get_rank() == 0:", f"        {said}", "    dist.destroy_process_group()"]
    else:
        lines.append(f"    {said}")
    return "\n".join([*lines, "", "", 'if __name__ == "__main__":', "    main()", ""])
