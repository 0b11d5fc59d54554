"""Reads from oneDNN's log which primitives it runs, and for which instruction set. Its old name is MKL-DNN.

With its switch on, the library prints to file descriptor 1, so that descriptor is redirected to a file. In the syntax
of Python 3.6.
"""

import contextlib
import ctypes
import os
import sys
import tempfile
from typing import Any, Dict, Generator, List, Optional

# of oneDNN 1.1 and later, and of earlier versions
_SWITCHES = ("dnnl_set_verbose", "mkldnn_set_verbose", "mkldnn_verbose_set")
_HEADS = ("dnnl_verbose,", "mkldnn_verbose,", "onednn_verbose,")

# From narrow to wide, as in the names of implementations: "jit:avx512_common", "brgemm:avx512_core".
_WIDTHS = ("sse42", "sse41", "avx", "avx2", "avx512_common", "avx512_core", "avx512_core_vnni", "avx512_core_bf16")


class OnednnLog:
    """The library's log."""

    def __init__(self) -> None:
        self.primitives: Dict[str, List[str]] = {}  # operation -> implementations; reorders left out
        self.isa: Optional[str] = None  # the widest among them
        self.available = False  # False: the library has no accessible switch

    def read(self, text: str) -> None:
        for line in text.splitlines():
            if not line.startswith(_HEADS):
                continue
            fields = line.split(",")
            # "dnnl_verbose,exec,cpu,convolution,jit:avx2,…"; before oneDNN 1.0 no device is named
            what = fields[3:5] if len(fields) > 4 and fields[2] in ("cpu", "gpu") else fields[2:4]
            if fields[1] != "exec" or len(what) < 2:
                continue
            operation, implementation = what
            if operation == "reorder":
                continue
            known = self.primitives.setdefault(operation, [])
            if implementation not in known:
                known.append(implementation)
                known.sort()
            for part in implementation.replace("+", ":").split(":"):
                self._widen(part)

    def _widen(self, isa: str) -> None:
        if isa in _WIDTHS and (self.isa is None or _WIDTHS.index(isa) > _WIDTHS.index(self.isa)):
            self.isa = isa


@contextlib.contextmanager
def logging_onednn(library: str) -> Generator[OnednnLog, None, None]:
    """`library` is the path of the shared object that contains oneDNN. Other output is passed on afterwards."""
    log = OnednnLog()
    switch = _switch(library)
    if switch is None:
        yield log
        return
    with captured_stdout() as captured:
        try:
            switch(1)
            yield log
        finally:
            switch(0)
    log.available = True
    log.read(captured[0])
    others: List[str] = [line for line in captured[0].splitlines() if not line.startswith(_HEADS)]
    if others:
        os.write(1, ("\n".join(others) + "\n").encode("utf-8", "replace"))


@contextlib.contextmanager
def captured_stdout() -> Generator[List[str], None, None]:
    """After the context, the list has the text that the process wrote to standard output, including C libraries."""
    captured: List[str] = []
    sys.stdout.flush()
    saved_fd = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield captured
        finally:
            ctypes.CDLL(None).fflush(None)  # libraries print through C's own buffer
            os.dup2(saved_fd, 1)
            os.close(saved_fd)
        file.seek(0)
        captured.append(file.read().decode("utf-8", "replace"))


def _switch(library: str) -> Optional[Any]:
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return None
    for name in _SWITCHES:
        found = getattr(loaded, name, None)
        if found is not None:
            return found
    return None
