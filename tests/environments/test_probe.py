"""What an interpreter has, asked by running it; old ones too."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from kitchen import Kitchen

from deepstone.backends.registry import BACKENDS, BackendInfo
from deepstone.environments import probe as probe_module
from deepstone.environments.probe import LIBRARY, Probed
from deepstone.errors import MissingError

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
OLD = sorted(folder / "bin" / "python" for version in ("2.7", "3.6", "3.7") for folder in PYENV.glob(f"{version}.*"))
LUAJIT = shutil.which("luajit")
FRAMEWORK = replace(BACKENDS["mxnet"], package="framework")
LUA_FRAMEWORK = replace(BACKENDS["torch7"], package="framework", part="part")

needs_luajit = pytest.mark.skipif(LUAJIT is None, reason="there is no luajit; on Debian: apt install luajit")


def probe(command: list[str], variables: Mapping[str, str], info: BackendInfo = FRAMEWORK) -> Probed:
    return probe_module.probe(command, info, variables)


def modules(folder: Path, **sources: str) -> dict[str, str]:
    """The variables with which any interpreter finds these modules."""
    folder.mkdir(exist_ok=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_versions_and_all_distributions(tmp_path: Path) -> None:
    found = probe([sys.executable], modules(tmp_path, framework="__version__ = '1.5'\nprint('noise')"))
    assert found.version == "1.5"
    assert found.lock["numpy"] == metadata.version("numpy")
    assert found.lock["typing-extensions"] == metadata.version("typing_extensions")
    assert found.lock["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("python", OLD, ids=lambda path: path.parts[-3])
def test_old_interpreters_answer_too(python: Path, tmp_path: Path) -> None:
    variables = modules(tmp_path, numpy="__version__ = '1.16'", framework="__version__ = '0.8'")
    found = probe([str(python)], variables)
    assert found.version == "0.8"
    assert found.lock["python"] == python.parts[-3]
    assert found.lock["numpy"] == "1.16"


def test_a_folder_of_the_same_name_in_the_current_one_is_not_it(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "framework").mkdir()
    (tmp_path / "framework" / "__init__.py").write_text("__version__ = '6.6.6'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingError, match=r"has no framework$"):
        probe([sys.executable], os.environ)


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        (
            {"framework": "raise ImportError('libcudart.so.12: cannot open\\nshared object')"},
            "cannot import framework: ",
        ),
        ({"framework": "import other"}, "cannot import framework: ModuleNotFoundError: No module named 'other'"),
        ({"framework": "import os, signal; os.kill(os.getpid(), signal.SIGILL)"}, "was ended by signal 4 while it"),
        (
            {"framework": "print('goodbye'); raise SystemExit(3)"},
            r"exited with code 3 while it imported framework: goodbye$",
        ),
        ({"framework": "__version__ = '1'", "numpy": "raise ImportError('broken')"}, "cannot import numpy: "),
    ],
)
def test_what_does_not_work_is_told_in_one_line(tmp_path: Path, sources: dict[str, str], says: str) -> None:
    with pytest.raises(MissingError, match=says) as error:
        probe([sys.executable], modules(tmp_path, **sources))
    assert "\n" not in str(error.value)


def test_what_is_no_python() -> None:
    with pytest.raises(MissingError, match="/bin/true is not a Python that runs"):
        probe(["/bin/true"], {})
    with pytest.raises(MissingError, match="/etc/passwd cannot be run: permission denied"):
        probe(["/etc/passwd"], {})


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sleep 600", "python did not answer within 1 s"),
        ("trap '' TERM; while :; do sleep 1; done", "python did not answer within 1 s"),
        ("exec yes", "python prints without end and does not answer"),
        ("exec cat /dev/zero", "python prints without end and does not answer"),
        ("echo Hello; exit 0", r"python is not a Python that runs \(exit code 0\): Hello$"),
        ("kill -SEGV $$", r"python is not a Python that runs \(ended by signal 11\)$"),
    ],
)
def test_what_hangs_or_floods_is_ended_and_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    if "within 1 s" in says:
        monkeypatch.setattr(probe_module, "_START_TIMEOUT_S", 1.0)
    with pytest.raises(MissingError, match=says) as error:
        probe([program(tmp_path, text)], os.environ)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("framework", "says"),
    [
        ("import time; time.sleep(600)", "did not answer within 2 s"),
        ("while True: print('y' * 100)", "prints without end"),
    ],
)
def test_so_is_a_framework_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, says: str
) -> None:
    monkeypatch.setattr(probe_module, "_TIMEOUT_S", 2.0 if "2 s" in says else 300.0)
    with pytest.raises(MissingError, match=says):
        probe([sys.executable], modules(tmp_path, framework=framework))


def test_a_package_that_only_has_the_name_is_not_the_framework(tmp_path: Path) -> None:
    variables = modules(tmp_path, framework="__version__ = '0.3'", numpy="__version__ = '1'")
    says = r"has no framework.backends; what it calls framework 0.3 is something else$"
    with pytest.raises(MissingError, match=says):
        probe([sys.executable], variables, replace(FRAMEWORK, part="framework.backends"))


def test_of_what_its_users_built_libraries_are_locked_by_hash(tmp_path: Path) -> None:
    (tmp_path / "framework" / "backends").mkdir(parents=True)
    for name in ("", "backends"):
        (tmp_path / "framework" / name / "__init__.py").write_text("__version__ = '2.6'")
    built = tmp_path / "framework" / "backends" / "mklEngine.so"
    variables = {**modules(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    info = replace(FRAMEWORK, part="framework.backends", built_by_users=True)

    def locked() -> dict[str, str]:
        lock = probe([sys.executable], variables, info).lock
        return {name: value for name, value in lock.items() if name.startswith(LIBRARY)}

    without = locked()
    assert any("blas" in name for name in without)  # that of NumPy, which computes for the framework
    built.write_bytes(b"one build")
    one = locked()
    built.write_bytes(b"another build")
    other = locked()
    name = f"{LIBRARY}mklEngine.so"
    assert set(one) - set(without) == {name}
    assert one[name] != other[name]
    assert one[name].startswith("sha256:")


def lua_modules(folder: Path, **sources: str) -> dict[str, str]:
    """The variables with which LuaJIT finds these modules and its own."""
    for name, source in sources.items():
        (folder / f"{name}.lua").write_text(source)
    return {**os.environ, "LUA_PATH": f"{folder}/?.lua;;"}


@needs_luajit
def test_a_framework_in_lua(tmp_path: Path) -> None:
    variables = lua_modules(tmp_path, framework="print 'noise' return {}", part="return {_VERSION = '1.2'}")
    found = probe([str(LUAJIT)], variables, LUA_FRAMEWORK)
    assert found.version == "7"  # it says none itself
    assert found.lock["lua"].startswith("LuaJIT 2.")
    assert found.lock["part"].startswith("sha256:")  # a version alone would not tell one checkout from another
    lua_modules(tmp_path, part="return {_VERSION = '1.2', changed = true}")
    assert probe([str(LUAJIT)], variables, LUA_FRAMEWORK).lock["part"] != found.lock["part"]


@needs_luajit
@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ({}, r"luajit \(LuaJIT 2.*\) has no framework$"),
        ({"framework": "return {}"}, r"has no part$"),
        ({"framework": "require 'other'"}, "cannot import framework: .*module 'other' not found"),
        ({"framework": "error 'libTH.so: cannot open'"}, "cannot import framework: .*libTH.so: cannot open"),
        ({"framework": "print 'goodbye' os.exit(3)"}, r"exited with code 3 while it imported framework: goodbye$"),
        ({"framework": "os.execute('kill -ILL $PPID')"}, "was ended by signal 4 while it imported framework"),
        ({"framework": "while true do end"}, "did not answer within 2 s"),
        ({"framework": "while true do print(('y'):rep(100)) end"}, "prints without end"),
    ],
)
def test_what_does_not_work_in_lua_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: dict[str, str], says: str
) -> None:
    monkeypatch.setattr(probe_module, "_TIMEOUT_S", 2.0 if "2 s" in says else 300.0)
    with pytest.raises(MissingError, match=says) as error:
        probe([str(LUAJIT)], lua_modules(tmp_path, **sources), LUA_FRAMEWORK)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sleep 600", "did not answer within 1 s"),
        ("exec yes", "prints without end and does not answer"),
        ("exec lua5.3 -e 'print(_VERSION)'", "is not a LuaJIT that runs"),
        ("kill -KILL $$", r"is not a LuaJIT that runs \(ended by signal 9\)$"),
    ],
)
def test_so_is_what_is_no_luajit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    if "within 1 s" in says:
        monkeypatch.setattr(probe_module, "_START_TIMEOUT_S", 1.0)
    with pytest.raises(MissingError, match=says):
        probe([program(tmp_path, text)], os.environ, LUA_FRAMEWORK)
