"""The worker: a script that runs steps for the controller, in any framework's Python from 3.6 on.

    controller                          worker
        │ ── {"do": "preload", …} ────────▶ │ imports the framework before there is a job (only where it helps)
        │ ── {"do": "hello", …} ──────────▶ │ imports the framework
        │ ── {"do": "prepare", …} ────────▶ │ builds, runs the first step
        │ ── {"do": "block", "samples": n} ▶│ ████ timed steps ████
        │ ◀────────── {"event": "block", …} │ sleeps in read(), burns no CPU
        │ ── {"do": "close"} ─────────────▶ │

Messages are lines of JSON over two inherited descriptors, never stdout. Every request gets exactly one reply:
the event of the same name, or {"event": "failed", "outcome", "reason"}. Nothing here decides how long to measure:
warm-up, stopping, statistics and doubts live in the controller, between blocks.

Run as `python serve.py BACKEND_MODULE READ_FD WRITE_FD`.
"""

import ctypes
import importlib
import json
import os
import platform
import re
import sys
import time
import traceback
import types
from typing import Any, Callable, Dict, List

PROTOCOL = 1

_REPEATED = re.compile(r"(.{8,60}?)\1+")  # each of a chain of steps that fail may say so again

# What the axes of several processes are in effect where there is one. That of `accumulate` is the backend's own.
ALONE = {
    "processes": 1,
    "nodes": 1,
    "launcher": "local",
    "scheme": "none",
    "servers": "none",
    "pipeline": "none",
    "microbatches": "none",
    "schedule": "none",
    "library": "none",
    "transport": "none",
    "collective": "none",
    "interface": "none",
    "overlap": "none",
    "bucket": "none",
    "compression": "none",
}


def allocator_in_use() -> str:
    """Which library serves malloc: the one that has its address. Named as the axis does, else as its file."""
    address = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
            if first <= address < last:
                name = os.path.basename(line.split()[-1])
                known = [allocator for allocator in ("jemalloc", "tcmalloc") if allocator in name]
                return known[0] if known else "glibc" if name.startswith(("libc.", "libc-")) else name
    return "unknown"


def borrow_package() -> None:
    """Make `deepstone` importable without putting the folder that holds it, and so its neighbours, on the path.

    The controller may live in another Python whose site-packages would shadow this framework's own.
    """
    if sys.path and os.path.abspath(sys.path[0] or os.curdir) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    if "deepstone" not in sys.modules:
        package = types.ModuleType("deepstone")
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
        sys.modules["deepstone"] = package


class Worker:
    """Answers requests one at a time."""

    def __init__(self, backend_module: str) -> None:
        self._backend_module = backend_module
        self._backend: Any = None
        self._base: Any = None
        self._import_s = self._preload_s = 0.0
        self._group: Any = None  # the processes that train together, if there are several
        self._whole_batch = 0  # of all of them
        self._isolated: Any = None  # the layer, ceiling or convolution that `isolated_block` times
        self._level_before_bytes = 0  # of the host's memory, before the network was built
        self._batch_bytes = 0
        self._host_peak_bytes: Any = 0  # before arrays were copied to be looked at

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one request. Whatever goes wrong becomes a reply too: the controller decides what it means."""
        known: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "preload": self._preload,
            "hello": self._hello,
            "rendezvous": self._rendezvous,
            "group": self._join_group,
            "clock": self._clock,
            "prepare": self._prepare,
            "block": self._block,
            "phases": self._phases,
            "losses": self._losses,
            "restore": self._restore,
            "buckets": self._buckets,
            "network": self._network,
            "assignment": self._assignment,
            "transfer": self._transfer,
            "beside": self._beside,
            "open_timeline": self._open_timeline,
            "timeline": self._timeline,
            "logged_times": self._logged_times,
            "close_timeline": self._close_timeline,
            "observe": self._observe,
            "dump": self._dump,
            "sample": self._sample,
            "layer": self._layer,
            "layers": self._layers,
            "isolated": self._isolate,
            "isolated_block": self._isolated_block,
            "trace": self._trace,
            "ceiling": self._ceiling,
            "convolution": self._convolution,
            "memory": self._memory,
            "memory_peak": self._memory_peak,
            "memory_by_layer": self._memory_by_layer,
        }
        name = request.get("do", "")
        try:
            if name not in known:
                return failed("unsupported", f"this worker does not know how to do {name!r}")
            reply = known[name](request)
        except Exception as error:
            return self._explain(error)
        reply["event"] = name
        return reply

    def _explain(self, error: Exception) -> Dict[str, Any]:
        if self._base is not None and isinstance(error, self._base.Unsupported):
            return failed("unsupported", str(error))
        if self._base is not None and isinstance(error, self._base.Missing):
            return failed("missing", str(error))
        traceback.print_exc()
        reason = _REPEATED.sub(r"\1", f"{type(error).__name__}: {error}")
        if self._backend is not None and self._backend.is_unsupported(error):
            return failed("unsupported", reason)
        out_of_memory = isinstance(error, MemoryError) or (
            self._backend is not None and self._backend.is_out_of_memory(error)
        )
        return failed("oom" if out_of_memory else "crashed", reason)

    def _preload(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Import the framework, and what it imports when a network is built. Asked again, it answers at once."""
        if self._backend is None:
            backend = self._imported(request)
            start = time.perf_counter()
            backend.preload()
            self._preload_s = time.perf_counter() - start
        return {}

    def _hello(self, request: Dict[str, Any]) -> Dict[str, Any]:
        backend = self._imported(request) if self._backend is None else self._backend
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "framework": backend.versions(),
            "import_s": self._import_s,
            "preload_s": self._preload_s,
        }

    def _imported(self, request: Dict[str, Any]) -> Any:
        if request.get("protocol") != PROTOCOL:
            raise ValueError(f"controller speaks protocol {request.get('protocol')}, worker {PROTOCOL}")
        if request.get("affinity"):  # before the import: thread pools size themselves by it
            os.sched_setaffinity(0, request["affinity"])
        start = time.perf_counter()
        self._base = importlib.import_module("deepstone.backends.base")
        try:
            self._backend = importlib.import_module(self._backend_module).make_backend()
        except ImportError as error:
            raise self._base.Missing(f"the framework does not import: {error}") from error
        self._import_s = time.perf_counter() - start
        return self._backend

    def _rendezvous(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"port": self._backend.open_rendezvous(request["address"], request["rank"], request["world"])}

    def _join_group(self, request: Dict[str, Any]) -> Dict[str, Any]:
        fields = ("rank", "world", "local_rank", "addresses", "request", "role", "share", "shares")
        self._group = self._base.Group(**{name: request[name] for name in fields})
        return dict(self._backend.join(self._group))

    def _clock(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The clock that timestamps are taken from, to be compared with those of other hosts."""
        return {"clock_s": self._backend.clock()}

    def _restore(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self._backend.restore()
        return {}

    def _network(self, request: Dict[str, Any]) -> Dict[str, Any]:
        with open("/proc/net/dev") as file:
            lines = [line.partition(":") for line in file]
        return {"sent_bytes": {name.strip(): int(counts.split()[8]) for name, colon, counts in lines if colon}}

    def _buckets(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"bytes": list(self._backend.buckets())}

    def _assignment(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return dict(self._backend.assignment())

    def _transfer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """An operation that the transport lacks is an answer and no failure: the others can still be measured."""
        try:
            return dict(self._backend.transfer(request["operation"], request["bytes"]))
        except self._base.Unsupported as reason:
            return {"unsupported": str(reason)}

    def _beside(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Computing and communication at the same time, or either of them by the same loop."""
        wanted = (request[name] for name in ("transfer", "transfers", "program", "steps"))
        try:
            return dict(self._backend.beside(*wanted))
        except self._base.Unsupported as reason:
            return {"unsupported": str(reason)}

    def _open_timeline(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Not a failure where it is unsupported: the job is measured all the same."""
        self._save_host_peak()
        try:
            return {"programs": list(self._backend.open_timeline())}
        except self._base.Unsupported as error:
            return {"programs": {"absent": str(error)}}

    def _timeline(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`steps` steps with a timestamp at both ends of every part, after `lead` that are not told of."""
        step = self._backend.timeline_step(request["program"])
        self._backend.barrier()
        for _ in range(request.get("lead", 1)):
            step()
        found = [step() for _ in range(request["steps"])]
        return {"steps": [[each.begin_s, each.end_s, [list(span) for span in each.spans]] for each in found]}

    def _logged_times(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            return {"logged": self._backend.logged_times(request["steps"])}
        except self._base.Unsupported as error:
            return {"logged": {"absent": str(error)}}

    def _close_timeline(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self._backend.close_timeline()
        forget_host_peak()
        return {}

    def _prepare(self, request: Dict[str, Any]) -> Dict[str, Any]:
        self._level_before_bytes = host_bytes("VmRSS")
        if request.get("compile_cache"):
            self._backend.keep_programs(request["compile_cache"])
        start = time.perf_counter()
        self._backend.build(self._job(request))
        self._backend.synchronize()
        reply: Dict[str, Any] = {"build_s": time.perf_counter() - start}
        if request.get("first_step", True):
            start = self._backend.clock()
            self._backend.first_step()
            reply["first_step_s"] = self._backend.clock() - start
            reply["effective"] = self._in_effect()
            reply["details"] = self._backend.details()
        phases = self._backend.phases()
        reply["phases"] = list(phases) if phases is not None else False
        return reply

    def _job(self, request: Dict[str, Any]) -> Any:
        import numpy as np

        from deepstone.graph.batch import perturbed, synthetic_batch

        graph, axes = request["graph"], request["request"]
        data_seed, perturbation = request.get("data_seed", axes["seed"]), request.get("perturbation", 0.0)
        like_photographs = bool(request.get("like_photographs", False))
        flat = np.load(request["weights"]["path"], mmap_mode="r")
        weights: Dict[str, Dict[str, Any]] = {}
        for layer, name, offset, shape in request["weights"]["slices"]:
            size: int = int(np.prod(shape))  # pyright: ignore[reportUnknownArgumentType]
            values = flat[offset : offset + size].reshape(shape)
            weights.setdefault(layer, {})[name] = perturbed(values, perturbation, layer) if perturbation else values
        samples: Any = None
        labels: Any = None
        self._whole_batch = axes["batch"]
        if self._group is not None:
            axes = dict(axes, batch=axes["batch"] // self._group.shares)
        if request["input_shape"]:  # else the model's own file says what its inputs are, and the backend makes them
            shape, classes = request["input_shape"], request["classes"]
            samples, labels = synthetic_batch(
                shape, classes, self._whole_batch, data_seed, like_photographs=like_photographs
            )
            if self._group is not None:
                first = self._group.share * axes["batch"]
                own = slice(first, first + axes["batch"])
                samples, labels = samples[own].copy(), labels[own].copy()  # so that the parts of others are freed
            self._batch_bytes = samples.nbytes + labels.nbytes
        keeps_gradients = bool(request.get("keep_gradients", False))
        return self._base.Job(
            graph=graph,
            weights=weights,
            samples=samples,
            labels=labels,
            request=axes,
            scratch=request["scratch"],
            group=self._group,
            keeps_gradients=keeps_gradients,
            data_seed=data_seed,
            perturbation=perturbation,
            like_photographs=like_photographs,
        )

    def _block(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`samples` timed groups of `steps_per_sample` steps, after `lead` untimed steps."""
        backend = self._backend
        step = backend.step(request.get("program") or backend.phase())
        if self._group is not None:
            backend.barrier()
        for _ in range(request.get("lead", 0)):
            step()
        timing = time_steps(backend, step, request["samples"], request["steps_per_sample"])
        timing["cpu_s"] = time.process_time()
        return timing

    def _phases(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`steps` steps with a timestamp at the end of every phase. Their whole time is never reported as speed."""
        backend = self._backend
        names = backend.phases()
        steps: List[Any] = [backend.timestamps(len(names) + 1) for _ in range(request["steps"])]
        backend.synchronize()
        for timestamps in steps:
            timestamps.set(0)
            backend.step_in_phases(timestamps.set_after)
        backend.synchronize()
        gaps = [timestamps.gaps_s() for timestamps in steps]
        return {"phase_s": {name: [gap[i] for gap in gaps] for i, name in enumerate(names)}}

    def _losses(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The loss of each of `steps` further steps; of the last step already run when `steps` is 0."""
        step = self._backend.step(self._backend.phase())
        losses: List[Any] = []
        for _ in range(request["steps"]):
            step()
            losses.append(self._backend.loss())
        if not losses:
            losses.append(self._backend.loss())
        return {"losses": [repr(float(loss)) for loss in losses]}  # as text: JSON has no NaN

    def _observe(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What is in effect by now: of the process' state and, where a step can be observed, of one more step."""
        self._backend.observe_again()
        return {"effective": self._in_effect()}

    def _in_effect(self) -> Dict[str, Any]:
        """What the backend tells, and what the worker itself has seen to: the share of the batch, and being alone."""
        found = dict(self._backend.observe())
        if self._group is not None:
            found["batch"] = self._base.as_set(self._whole_batch)
        else:
            found.update({axis: self._base.as_observed(value) for axis, value in ALONE.items()})
        found["allocator"] = self._base.as_observed(allocator_in_use())
        if found["wait"]["value"] == "auto":  # only backends of engines with OpenMP know it
            found["wait"] = self._base.as_set("not used")
        limit = os.environ.get("DEEPSTONE_POWER_IN_EFFECT")  # the keeper has read it back
        found["power_limit"] = self._base.as_observed(int(limit)) if limit else self._base.as_set("the board's own")
        return found

    def _dump(self, request: Dict[str, Any]) -> Dict[str, Any]:
        import numpy as np

        files: Dict[str, str] = {}
        for name, array in self._backend.arrays(request["kind"]).items():
            path = os.path.join(request["folder"], f"{request['kind']}-{len(files)}.npy")
            np.save(path, array)
            files[name] = path
        return {"files": files}

    def _sample(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """At most `most` values of every array, evenly spaced: enough to see what steps did to them."""
        import numpy as np

        self._save_host_peak()
        names: List[str] = []
        sizes: List[int] = []
        picked: List[Any] = []
        for name, array in sorted(self._backend.arrays(request["kind"]).items()):
            flat = np.ravel(array)
            count = min(flat.size, request["most"])
            names.append(name)
            sizes.append(count)
            picked.append(flat[np.arange(count) * flat.size // max(count, 1)].astype(np.float64))
        path = os.path.join(request["folder"], "sample.npy")
        np.save(path, np.concatenate(picked) if picked else np.zeros(0))
        forget_host_peak()
        return {"names": names, "sizes": sizes, "path": path}

    def _layer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """One layer in isolation on given arrays; its results are left in files beside them."""
        import numpy as np

        inputs = {name: np.load(path) for name, path in request["inputs"].items()}
        upstream = np.load(request["upstream"]) if request["upstream"] else None
        result = self._backend.layer(request["name"], inputs, upstream)
        files: List[List[str]] = []
        arrays = [("output", "", result.output)]
        for kind, found in (("input", result.inputs), ("parameter", result.parameters), ("buffer", result.buffers)):
            arrays += [(kind, name, array) for name, array in found.items()]
        for kind, name, array in arrays:
            path = os.path.join(request["folder"], f"result-{len(files)}.npy")
            np.save(path, array)
            files.append([kind, name, path])
        return {"files": files}

    def _layers(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What each layer took inside each of `steps` steps; these steps' time is never reported as speed."""
        found = self._backend.in_place(request["steps"])
        passes = list(dict.fromkeys(key for step in found.steps for key in step.layers))
        others = list(dict.fromkeys(name for step in found.steps for name in step.other))
        reply: Dict[str, Any] = {
            part: [getattr(step, part) for step in found.steps] for part in ("total_s", "data_s", "update_s", "gaps_s")
        }
        reply["other"] = {name: [step.other.get(name, 0.0) for step in found.steps] for name in others}
        reply["layers"] = [
            [name, direction, [step.layers.get((name, direction), 0.0) for step in found.steps]]
            for name, direction in passes
        ]
        reply["method"], reply["rule"] = found.method, found.rule
        if found.parts:
            reply["parts"] = [vars(part) for part in found.parts]
            reply["containers"] = [list(entry) for entry in found.containers.items()]
        return reply

    def _isolate(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Make one layer ready to be timed in isolation; the one before it is freed."""
        self._isolated = None
        self._isolated = self._backend.isolated_layer(request["name"])
        return {"programs": list(self._isolated.programs), "beside": self._isolated.beside}

    def _isolated_block(self, request: Dict[str, Any]) -> Dict[str, Any]:
        isolated = self._isolated
        step = isolated.programs[request["program"]]
        for _ in range(request.get("lead", 0)):
            step()
        return time_steps(isolated.timing, step, request["samples"], request["steps_per_sample"])

    def _trace(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return dict(self._backend.trace(request["steps"], request["path"]))

    def _ceiling(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Make a program ready that `isolated_block` times; the one before it is freed."""
        self._isolated = None
        self._isolated = self._backend.ceiling(request["wanted"])
        return {"programs": list(self._isolated.programs)}

    def _convolution(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What can be tried on one pass of a convolution; with `algorithm`, try it: `isolated_block` then times it."""
        if request.get("algorithm"):
            return dict(self._isolated.attempt(request["algorithm"]))
        self._isolated = None
        self._isolated = self._backend.convolution(request["name"], request["direction"])
        return dict(self._isolated.facts)

    def _memory(self, request: Dict[str, Any]) -> Dict[str, Any]:
        memory = dict(self._backend.memory())
        memory["host_peak_bytes"] = self._peak_so_far(host_peak_bytes())
        return {"memory": memory}

    def _save_host_peak(self) -> None:
        """What comes next takes memory that no step takes, so the kernel will be told to forget it."""
        self._host_peak_bytes = self._peak_so_far(host_peak_bytes())

    def _peak_so_far(self, peak_bytes: Any) -> Any:
        return max(peak_bytes, self._host_peak_bytes) if isinstance(peak_bytes, int) else peak_bytes

    def _memory_peak(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The most memory that `steps` further steps had at once; of all steps so far if another process ran them.

        On the host: what the process grew by since before the network was built, without files that are mapped and
        without the worker's own copy of the batch.
        """
        so_far = self._peak_so_far(host_peak_bytes())
        forgotten = not request["steps"] or forget_host_peak()
        step = self._backend.step(self._backend.phase())
        for _ in range(request["steps"]):
            step()
        self._backend.synchronize()
        memory = dict(self._backend.memory())
        grown = host_bytes("VmHWM") - self._level_before_bytes - self._batch_bytes
        memory["host_growth_bytes"] = grown
        if not forgotten:
            memory["host_growth_bytes"] = {"absent": "this kernel does not let go of a peak"}
        elif grown < 0:  # what was freed meanwhile hides what steps need
            memory["host_growth_bytes"] = {
                "absent": "the process has less memory now than before the network was built"
            }
        memory["host_peak_bytes"] = max(so_far, host_peak_bytes()) if forgotten else so_far
        return {"memory": memory, "available_bytes": self._backend.available_bytes()}

    def _memory_by_layer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"layers": [[name, memory] for name, memory in self._backend.memory_by_layer()]}

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


def time_steps(backend: Any, step: Callable[[], None], samples: int, steps_per_sample: int) -> Dict[str, Any]:
    """Time groups of steps on the device's clock, synchronized at both ends. Nothing else happens in the loop."""
    timestamps = backend.timestamps(samples + 1)
    set_timestamp = timestamps.set
    backend.synchronize()
    start = backend.clock()
    set_timestamp(0)
    for position in range(1, samples + 1):
        for _ in range(steps_per_sample):
            step()
        set_timestamp(position)
    enqueued = backend.clock()
    backend.synchronize()
    end = backend.clock()
    return {
        "start_s": start,
        "steps_per_sample": steps_per_sample,
        "step_s": [gap / steps_per_sample for gap in timestamps.gaps_s()],
        "enqueue_s": enqueued - start - timestamps.waited_s,
        "total_s": end - start,
    }


def host_peak_bytes() -> Any:
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError as error:
        return {"absent": f"cannot read /proc/self/status: {error}"}
    return {"absent": "this kernel does not report VmHWM"}


def host_bytes(name: str) -> int:
    """VmRSS (now) or VmHWM (at most so far) of this process less the files it has mapped; 0 where it is not told."""
    try:
        with open("/proc/self/status") as status:
            kib = {line.partition(":")[0]: line.split()[1] for line in status if line.endswith(" kB\n")}
    except OSError:
        return 0
    return (int(kib.get(name, 0)) - int(kib.get("RssFile", 0))) * 1024


def forget_host_peak() -> bool:
    """Have the kernel count the peak of the host's memory from now on; False where it does not."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def failed(outcome: str, reason: str) -> Dict[str, Any]:
    return {"event": "failed", "outcome": outcome, "reason": reason}


def main() -> None:
    module, read_fd, write_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    borrow_package()
    worker = Worker(module)
    with open(read_fd, encoding="utf-8") as requests, open(write_fd, "w", encoding="utf-8") as replies:
        for line in requests:  # sleeps here between requests
            request = json.loads(line)
            if request.get("do") == "close":
                worker.close()
                replies.write('{"event": "close"}\n')
                break
            replies.write(json.dumps(worker.answer(request)) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
