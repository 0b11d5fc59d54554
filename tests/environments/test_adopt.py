"""An interpreter that others made is noted, not touched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kitchen import Kitchen, NoProgress

from deepstone.environments.add import Installation, adopt
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment, own_environment
from deepstone.environments.remove import remove
from deepstone.errors import MissingError, UsageError
from deepstone.exchange.load import load_model
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.job import Machine
from deepstone.runner.new_job import make_job
from deepstone.setups.request import complete


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A venv as a module of a cluster would give it: its packages are found by a variable that the module sets."""
    venv = tmp_path / "opt" / "torch"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    packages = tmp_path / "opt" / "packages"
    packages.mkdir()
    (packages / "torch.py").write_text("__version__ = '2.4.0+cu121'")
    (packages / "numpy.py").write_text("__version__ = '1.26.4'")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    return venv


def taken(kitchen: Kitchen, wanted: str, path: Path, **more: object) -> Environment:
    installation = Installation(path=path, language="python")
    return adopt(wanted, installation, kitchen.root, NoProgress(), **more).environment  # type: ignore[arg-type]


def test_an_interpreter_or_its_venv(kitchen: Kitchen, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = cluster / "bin" / "python"
    adopted = taken(kitchen, "torch", python)
    assert (adopted.name, adopted.kind, adopted.version) == ("torch@2.4.0+cu121", "adopted", "2.4.0+cu121")
    assert adopted.program == python
    assert adopted.lock["numpy"] == "1.26.4"
    assert taken(kitchen, "torch", cluster) == adopted
    assert find_environment("torch@2.4.0") == adopted
    # What the module had set is kept for when it is not loaded.
    packages = os.environ["PYTHONPATH"]
    monkeypatch.delenv("PYTHONPATH")
    assert adopted.variables_over(os.environ)["PYTHONPATH"] == packages
    remove(adopted.name, kitchen.root, NoProgress())
    assert python.exists()
    assert kitchen.leftovers() == []


def test_under_a_name(kitchen: Kitchen, cluster: Path) -> None:
    assert taken(kitchen, "torch@2.4.0", cluster, name="torch@2.4.0-cluster").name == "torch@2.4.0-cluster"
    assert find_environment("torch@2.4.0-cluster").program == cluster / "bin" / "python"
    for wrong in ("torch@2.5.0", "cluster", "torch@2.4.0/x", "jax@2.4.0"):
        with pytest.raises(UsageError, match=r"must be torch@2\.4\.0 or torch@2\.4\.0-WORD"):
            taken(kitchen, "torch", cluster, name=wrong)
    with pytest.raises(UsageError, match=r"has 312 characters; give a name of at most 100"):
        taken(kitchen, "torch", cluster, name=f"torch@2.4.0-{'x' * 300}")


def test_it_does_not_take_the_place_of_another(kitchen: Kitchen, cluster: Path, tmp_path: Path) -> None:
    taken(kitchen, "torch", cluster)
    other = tmp_path / "other-python"
    other.write_text((cluster / "bin" / "python").read_text())
    other.chmod(0o755)
    with pytest.raises(UsageError, match=r"is there already .*--name torch@2\.4\.0\+cu121-WORD"):
        taken(kitchen, "torch", other)
    assert taken(kitchen, "torch", other, again=True).program == other


@pytest.mark.parametrize(
    ("wanted", "path", "kind", "says"),
    [
        ("torch", "/nowhere/python", MissingError, "/nowhere/python does not exist"),
        ("torch", "/etc", MissingError, "/etc is a folder without bin/python"),
        ("torch", "/etc/passwd", MissingError, "/etc/passwd cannot be run: permission denied"),
        ("torch", "/bin/true", MissingError, "/bin/true is not a Python that runs"),
        ("torhc", sys.executable, UsageError, "torhc: no such framework; did you mean torch"),
        ("fake", sys.executable, UsageError, "fake: no such framework"),
        ("jax", sys.executable, MissingError, r"\(Python .*\) has no jax$"),
    ],
)
def test_what_cannot_be_adopted_is_told_in_one_line(
    kitchen: Kitchen, wanted: str, path: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as error:
        taken(kitchen, wanted, Path(path))
    assert "\n" not in str(error.value)
    assert not kitchen.root.exists() or kitchen.leftovers() == []


def test_a_version_that_it_has_not(kitchen: Kitchen, cluster: Path) -> None:
    with pytest.raises(MissingError, match=r"has torch 2\.4\.0\+cu121, not 2\.5\.0"):
        taken(kitchen, "torch@2.5.0", cluster)


def test_one_of_the_version_that_deepstone_has_itself_is_selected_by_its_name(
    kitchen: Kitchen, cluster: Path, tmp_path: Path
) -> None:
    own = own_environment("torch")
    if own is None:
        pytest.skip("there is no torch beside Deepstone")
    (tmp_path / "opt" / "packages" / "torch.py").write_text(f"__version__ = {own.version!r}")
    adopted = taken(kitchen, "torch", cluster)
    assert adopted.name == own.name
    assert find_environment(adopted.name).program == cluster / "bin" / "python"
    assert find_environment("torch").program == own.program


def test_one_with_a_plain_version_is_not_hidden_by_a_build_of_it(
    kitchen: Kitchen, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = taken(kitchen, "torch", cluster)
    (tmp_path / "opt" / "packages" / "torch.py").write_text("__version__ = '2.4.0'")
    other = tmp_path / "other-python"
    other.write_text((cluster / "bin" / "python").read_text())
    other.chmod(0o755)
    plain = taken(kitchen, "torch", other)
    assert find_environment("torch@2.4.0").program == plain.program
    assert find_environment("torch@2.4.0+cu121").program == build.program


def test_it_is_named_when_its_framework_is_gone(kitchen: Kitchen, cluster: Path, tmp_path: Path) -> None:
    adopted = taken(kitchen, "torch", cluster, name="torch@2.4.0-cluster")
    (tmp_path / "opt" / "packages" / "torch.py").unlink()
    job = make_job(load_model("cifarnet"), complete({"framework": adopted.name}), Machine.here(), ("deepstone",))
    with talking_to_worker(job, timeout_s=60) as worker, pytest.raises(MissingError) as error:
        worker.hello()
    assert adopted.name in str(error.value)
    assert str(adopted.program) in str(error.value)


def test_it_is_named_when_it_only_hangs(kitchen: Kitchen, cluster: Path) -> None:
    adopted = taken(kitchen, "torch", cluster, name="torch@2.4.0-cluster")
    adopted.program.write_text("#!/bin/sh\nsleep 600\n")
    job = make_job(load_model("cifarnet"), complete({"framework": adopted.name}), Machine.here(), ("deepstone",))
    with talking_to_worker(job, timeout_s=1) as worker, pytest.raises(JobFailed) as failed:
        worker.hello()
    assert failed.value.outcome == "timeout"
    assert f"{adopted.name}: {adopted.program}" in failed.value.reason


def test_a_model_file_is_looked_at_by_the_one_that_was_named(kitchen: Kitchen, cluster: Path, tmp_path: Path) -> None:
    adopted = taken(kitchen, "torch", cluster, name="torch@2.4.0-cluster")
    adopted.program.write_text("#!/bin/sh\nexit 77\n")
    path = tmp_path / "net.py"
    path.write_text("import torch\n")
    with pytest.raises(UsageError, match="exited with code 77"):
        load_model(f"{path}:make", frameworks=["jax", adopted.name])
