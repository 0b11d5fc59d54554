"""The worker: a script that runs steps for the controller, in any framework's Python from 3.6 on.

    controller                          worker
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

import importlib
import json
import os
import platform
import sys
import time
import traceback
import types
from typing import Any, Callable, Dict, List

PROTOCOL = 1


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

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one request. Whatever goes wrong becomes a reply too: the controller decides what it means."""
        known: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "block": self._block,
            "phases": self._phases,
            "losses": self._losses,
            "dump": self._dump,
            "layer": self._layer,
            "memory": self._memory,
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
        reason = f"{type(error).__name__}: {error}"
        if self._backend is not None and self._backend.is_unsupported(error):
            return failed("unsupported", reason)
        out_of_memory = isinstance(error, MemoryError) or (
            self._backend is not None and self._backend.is_out_of_memory(error)
        )
        return failed("oom" if out_of_memory else "crashed", reason)

    def _hello(self, request: Dict[str, Any]) -> Dict[str, Any]:
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
        import_s = time.perf_counter() - start
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "framework": self._backend.versions(),
            "import_s": import_s,
        }

    def _prepare(self, request: Dict[str, Any]) -> Dict[str, Any]:
        start = time.perf_counter()
        self._backend.build(self._job(request))
        self._backend.synchronize()
        reply: Dict[str, Any] = {"build_s": time.perf_counter() - start}
        if request.get("first_step", True):
            start = self._backend.clock()
            self._backend.first_step()
            reply["first_step_s"] = self._backend.clock() - start
            reply["effective"] = self._backend.observe()
            reply["details"] = self._backend.details()
        phases = self._backend.phases()
        reply["phases"] = list(phases) if phases is not None else False
        return reply

    def _job(self, request: Dict[str, Any]) -> Any:
        import numpy as np

        from deepstone.graph.batch import synthetic_batch

        graph, axes = request["graph"], request["request"]
        flat = np.load(request["weights"]["path"], mmap_mode="r")
        weights: Dict[str, Dict[str, Any]] = {}
        for layer, name, offset, shape in request["weights"]["slices"]:
            size: int = int(np.prod(shape))  # pyright: ignore[reportUnknownArgumentType]
            weights.setdefault(layer, {})[name] = flat[offset : offset + size].reshape(shape)
        images, labels = synthetic_batch(request["input_shape"], request["classes"], axes["batch"], axes["seed"])
        return self._base.Job(
            graph=graph, weights=weights, images=images, labels=labels, request=axes, scratch=request["scratch"]
        )

    def _block(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`samples` timed groups of `steps_per_sample` steps, after `lead` untimed steps."""
        backend = self._backend
        step = backend.step(request.get("program") or backend.phase())
        for _ in range(request.get("lead", 0)):
            step()
        timing = time_steps(backend, step, request["samples"], request["steps_per_sample"])
        timing["cpu_s"] = time.process_time()
        return timing

    def _phases(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`steps` steps with a mark at the end of every phase. Their whole time is never reported as speed."""
        backend = self._backend
        names = backend.phases()
        marks: List[Any] = [backend.marks(len(names) + 1) for _ in range(request["steps"])]
        backend.synchronize()
        for mark in marks:
            mark.set(0)
            backend.step_in_phases(mark.set_after)
        backend.synchronize()
        gaps = [mark.gaps_s() for mark in marks]
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

    def _dump(self, request: Dict[str, Any]) -> Dict[str, Any]:
        import numpy as np

        files: Dict[str, str] = {}
        for name, array in self._backend.arrays(request["kind"]).items():
            path = os.path.join(request["folder"], f"{request['kind']}-{len(files)}.npy")
            np.save(path, array)
            files[name] = path
        return {"files": files}

    def _layer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """One layer by itself on given arrays; what it gives is left in files beside them."""
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

    def _memory(self, request: Dict[str, Any]) -> Dict[str, Any]:
        memory = dict(self._backend.memory())
        memory["host_peak_bytes"] = host_peak_bytes()
        return {"memory": memory}

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()


def time_steps(backend: Any, step: Callable[[], None], samples: int, steps_per_sample: int) -> Dict[str, Any]:
    """Time groups of steps on the device's clock, synchronized at both ends. Nothing else happens in the loop."""
    marks = backend.marks(samples + 1)
    mark = marks.set
    backend.synchronize()
    start = backend.clock()
    mark(0)
    for position in range(1, samples + 1):
        for _ in range(steps_per_sample):
            step()
        mark(position)
    enqueued = backend.clock()
    backend.synchronize()
    end = backend.clock()
    return {
        "start_s": start,
        "steps_per_sample": steps_per_sample,
        "step_s": [gap / steps_per_sample for gap in marks.gaps_s()],
        "enqueue_s": enqueued - start - marks.waited_s,
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
