"""A worker that runs a loop written by hand beside a backend. Python 3.6: it runs where the framework does.

Run as `python legacy_worker.py SERVE_PATH BACKEND_MODULE LOOP_PATH READ_FD WRITE_FD`. It answers what worker/serve.py
answers, by that very code, and two requests more: `make_by_hand` (with what `prepare` takes) and `by_hand`.
"""

import importlib.util
import json
import sys
import time
import traceback
from typing import Any, Dict, List


def loaded(name: str, path: str) -> Any:
    """A module by its path, so that the folder it lies in is no place to import from."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TwoLoops:
    def __init__(self, serve: Any, backend_module: str, loop_path: str) -> None:
        self._worker = serve.Worker(backend_module)
        self._serve = serve
        self._loop_path = loop_path
        self._step: Any = None
        self._wait: Any = None
        self._loss: Any = None

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        known = {"make_by_hand": self._make, "by_hand": self._run}
        before_s = time.process_time()
        try:
            name = request["do"]
            reply = known[name](request) if name in known else self._worker.answer(request)
        except Exception as error:  # whatever the loop by hand raises, the controller tells
            traceback.print_exc()
            return dict(self._serve.failed("crashed", "%s: %s" % (type(error).__name__, error)))
        reply.setdefault("event", request["do"])
        reply["cpu_used_s"] = time.process_time() - before_s
        return dict(reply)

    def _make(self, request: Dict[str, Any]) -> Dict[str, Any]:
        import numpy as np

        from deepstone.graph.batch import synthetic_batch

        flat = np.load(request["weights"]["path"], mmap_mode="r")
        weights: Dict[str, Dict[str, Any]] = {}
        for layer, name, offset, shape in request["weights"]["slices"]:
            size = int(np.prod(shape))
            weights.setdefault(layer, {})[name] = np.array(flat[offset : offset + size]).reshape(shape)
        axes = request["request"]
        images, labels = synthetic_batch(request["input_shape"], request["classes"], axes["batch"], axes["seed"])
        make = loaded("loop_by_hand", self._loop_path).make
        self._step, self._wait, self._loss = make(weights, images, labels, axes["threads"])
        return {}

    def _run(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Steps as a hand-written loop has them: nothing else in the loop, waiting at both ends."""
        self._wait()
        start = time.perf_counter()
        for _ in range(request["steps"]):
            self._step()
        self._wait()
        total_s = time.perf_counter() - start
        return {"total_s": total_s, "loss": repr(self._loss())}


def main(arguments: List[str]) -> None:
    serve_path, backend_module, loop_path, read_fd, write_fd = arguments
    del sys.path[0]  # bench/ holds no package of a framework's, and shall not be asked for one
    serve = loaded("serve", serve_path)
    serve.borrow_package()
    loops = TwoLoops(serve, backend_module, loop_path)
    with open(int(read_fd), encoding="utf-8") as requests, open(int(write_fd), "w", encoding="utf-8") as replies:
        for line in requests:
            request = json.loads(line)
            if request["do"] == "close":
                break
            replies.write(json.dumps(loops.answer(request)) + "\n")
            replies.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
