"""Recipes for frameworks that are a few lines long: real wheels, installed by the real pip, without a network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class NoProgress:
    """Shows nothing of the progress of a build."""

    def stage(self, stage: str, detail: str, share: float) -> None:
        del stage, detail, share

    def message(self, text: str) -> None:
        del text


@dataclass(frozen=True, kw_only=True)
class Kitchen:
    """A folder of recipes, a folder of wheels, and a folder that environments are made in."""

    folder: Path

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def recipes(self) -> Path:
        return self.folder / "recipes"

    @property
    def root(self) -> Path:
        return self.folder / "environments"

    @property
    def variables(self) -> dict[str, str]:
        """With them a command cooks here. pip must not ask a proxy for what lies on this machine."""
        here = {"DEEPSTONE_ENVIRONMENTS": str(self.root), "DEEPSTONE_RECIPES": str(self.recipes)}
        return {**here, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def wheel(self, name: str, version: str, files: Mapping[str, str | bytes] | None = None) -> Path:
        """As pip wants it: the files, and a folder that describes them. By default a package that knows its version."""
        content = {f"{name}/__init__.py": f"__version__ = {version!r}\n"} if files is None else dict(files)
        info = f"{name}-{version}.dist-info"
        content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: kitchen\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        record = "".join(f"{path},sha256={_digest(data)},\n" for path, data in content.items())
        content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
        self.wheels.mkdir(parents=True, exist_ok=True)
        path = self.wheels / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in content.items():
                archive.writestr(member, data)
        return path

    def recipe(self, version: str = "9.9.9", **changes: Any) -> str:
        """A recipe for a torch of this version, in one step with NumPy; its name."""
        fields: dict[str, Any] = {
            "name": f"torch@{version}",
            "framework": "torch",
            "version": version,
            "kind": "venv",
            "python": [OWN_PYTHON],
            "size_bytes": 40_000_000,
            "minutes": 0.1,
            "year": 2026,
            "default": version == "9.9.9",
            "steps": [self.step("numpy==0.1", f"torch=={version}")],
        } | changes
        self.recipes.mkdir(parents=True, exist_ok=True)
        (self.recipes / f"{fields['name']}.toml").write_text(toml(fields))
        return str(fields["name"])

    def step(self, *packages: str, links: str = "", **more: Any) -> dict[str, Any]:
        options = ["--no-index", f"--find-links={links or self.wheels}"]
        return {"packages": list(packages), "options": options, **more}

    def torch(self, version: str = "9.9.9") -> str:
        """Everything for a torch that installs and imports; its name."""
        self.wheel("numpy", "0.1")
        self.wheel("torch", version)
        return self.recipe(version)

    def leftovers(self) -> list[str]:
        """What lies in the folder of environments, apart from locks and logs."""
        return sorted(
            str(path.relative_to(self.root))
            for path in [*self.root.glob("*"), *self.root.glob("removed/*")]
            if path.name not in ("locks", "logs", "removed")
        )


def make_copying_python(folder: Path) -> Path:
    """An interpreter whose `-m venv` copies a venv that was made once: to make one takes seconds, most for pip."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    script = folder / "python"
    copy = f'if [ "$1 $2" = "-m venv" ]; then exec cp -r {folder}/venv "$3"; fi'
    script.write_text(f'#!/bin/sh\n{copy}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def toml(fields: Mapping[str, Any]) -> str:
    """Enough of TOML for a recipe: what JSON and TOML write alike, and steps as inline tables."""
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in fields.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value)


def _digest(data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


class Stall:
    """A server of wheels that sends half of one and then waits, so that a test can act in the middle of a download."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reached = threading.Event()
        self.go_on = threading.Event()


@contextmanager
def stalling_server(wheels: Path, name: str) -> Iterator[Stall]:
    """Stalls at files whose name begins so. A reader that went away is forgotten."""
    stall = Stall("")

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            path = Path(self.translate_path(self.path))
            if not path.name.startswith(name):
                super().do_GET()
                return
            data = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                stall.reached.set()
                stall.go_on.wait()
                self.wfile.write(data[len(data) // 2 :])

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=os.fspath(wheels)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stall.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield stall
    finally:
        stall.go_on.set()
        server.shutdown()
        server.server_close()
