"""What an interpreter has, asked by running it; old ones too."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from kitchen import Kitchen

from deepstone.environments import interpreters as probe_module
from deepstone.environments.interpreters import probe
from deepstone.errors import MissingError

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
OLD = sorted(folder / "bin" / "python" for version in ("2.7", "3.6", "3.7") for folder in PYENV.glob(f"{version}.*"))


def modules(folder: Path, **sources: str) -> dict[str, str]:
    """The variables with which any interpreter finds these modules."""
    folder.mkdir(exist_ok=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_versions_and_all_distributions(tmp_path: Path) -> None:
    found = probe([sys.executable], "framework", modules(tmp_path, framework="__version__ = '1.5'\nprint('noise')"))
    assert found.version == "1.5"
    assert found.lock["numpy"] == metadata.version("numpy")
    assert found.lock["typing-extensions"] == metadata.version("typing_extensions")
    assert found.lock["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("python", OLD, ids=lambda path: path.parts[-3])
def test_old_interpreters_answer_too(python: Path, tmp_path: Path) -> None:
    variables = modules(tmp_path, numpy="__version__ = '1.16'", framework="__version__ = '0.8'")
    found = probe([str(python)], "framework", variables)
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
        probe([sys.executable], "framework", os.environ)


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
        probe([sys.executable], "framework", modules(tmp_path, **sources))
    assert "\n" not in str(error.value)


def test_what_is_no_python() -> None:
    with pytest.raises(MissingError, match="/bin/true is not a Python that runs"):
        probe(["/bin/true"], "framework", {})
    with pytest.raises(MissingError, match="/etc/passwd cannot be run: permission denied"):
        probe(["/etc/passwd"], "framework", {})


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
        probe([program(tmp_path, text)], "framework", os.environ)
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
        probe([sys.executable], "framework", modules(tmp_path, framework=framework))
