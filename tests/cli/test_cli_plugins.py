"""Plug-ins: the example package, installed as a user would, and packages that are broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import Cli

from deepstone.plugins import WithPlugins, declared

EXAMPLE = Path(__file__).resolve().parent.parent / "plugin_example"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, in a folder of its own; pip needs no network for that."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")  # pip leaves a folder `build` beside what it builds
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=240)
    return folder / "site"


def with_packages(cli: Cli, *folders: Path) -> Cli:
    return replace(cli, more={"PYTHONPATH": ":".join(map(str, folders))})


def broken(folder: Path, group: str, name: str, target: str, module: str | None = None) -> Path:
    """A package with this entry point, whose module has this content, or is not there."""
    info = folder / "broken_plugin-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{group}]\n{name} = {target}\n")
    if module is not None:
        (folder / "broken_plugin.py").write_text(module)
    return folder


def test_the_example_runs(cli: Cli, installed: Path) -> None:
    user = with_packages(cli, installed)
    record = user("run", "cifarnet", "framework=example", "batch=2", "--budget", "0.2", "--json").assert_ok().json
    assert record["outcome"] == "ok"
    assert record["setup"]["effective"]["framework"]["value"].startswith("example@")
    assert record["setup"]["effective"]["precision"] == {"value": "fp64", "source": "observed"}
    assert record["environment"]["framework"]["plugin"] == "deepstone_example-0.1"
    record = user("run", "example-net", "framework=fake", "batch=2", "--json").assert_ok().json
    assert record["workload"]["model"] == "example-net"
    assert record["workload"]["source"] == "zoo"


def test_the_example_refuses_what_it_does_not_honour(cli: Cli, installed: Path) -> None:
    record = with_packages(cli, installed)("run", "example-net", "framework=example", "layout=nhwc", "--json")
    assert record.code == 1
    assert "layout=nhwc" in record.json["failure"]["reason"]


def test_names_of_plugins_are_known(reader: Cli, installed: Path) -> None:
    user = with_packages(reader, installed)
    assert [each["name"] for each in user("models", "--json").assert_ok().json][-1] == "example-net"
    axes = {axis["name"]: axis for axis in user("axes", "--json").assert_ok().json}
    assert axes["framework"]["values"][-1] == "example"
    user("run", "cifarnet", "framework=exampel").assert_error(2, "did you mean example")
    reader("run", "cifarnet", "framework=example").assert_error(2, "no such framework")


@pytest.mark.parametrize(
    ("target", "module", "told"),
    [
        ("broken_plugin:BACKEND", None, "No module named 'broken_plugin'"),
        ("broken_plugin:BACKEND", "raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("broken_plugin:BACKEND", "BACKEND = 3", "is a int, not a BackendInfo"),
        ("broken_plugin", "BACKEND = 3", ""),
    ],
)
def test_a_broken_backend_is_one_line(reader: Cli, tmp_path: Path, target: str, module: str | None, told: str) -> None:
    user = with_packages(reader, broken(tmp_path, "deepstone.backends", "broken", target, module))
    user("run", "cifarnet", "framework=broken").assert_error(
        4, "plug-in broken of broken_plugin-2.0", told, "pip uninstall broken_plugin"
    )
    assert "broken" not in user("env", "list").assert_ok().out


def test_a_broken_model_disturbs_no_other(reader: Cli, tmp_path: Path) -> None:
    user = with_packages(reader, broken(tmp_path, "deepstone.models", "broken", "broken_plugin:MODEL"))
    done = user("models").assert_ok()
    assert "cifarnet" in done.out
    assert done.err.count("\n") == 1
    assert done.err.startswith("deepstone: plug-in broken of broken_plugin-2.0: it does not load: ModuleNotFoundError")
    user("models", "broken").assert_error(4, "plug-in broken")


def test_a_model_that_cannot_be_made(reader: Cli, tmp_path: Path) -> None:
    module = "from deepstone.models.zoo import ZooModel\nMODEL = ZooModel(name='odd', make=lambda: 1 / 0, source='s')\n"
    user = with_packages(reader, broken(tmp_path, "deepstone.models", "odd", "broken_plugin:MODEL", module))
    user("models", "odd").assert_error(2, "model odd of a plug-in cannot be made: ZeroDivisionError")
    assert "cifarnet" in user("models").assert_ok().out


def test_a_name_of_ours_stays_ours(reader: Cli, tmp_path: Path) -> None:
    user = with_packages(reader, broken(tmp_path, "deepstone.models", "cifarnet", "broken_plugin:MODEL"))
    assert "cifar10_full" in user("models").assert_ok().out
    assert "has a cifarnet of its own" in user("models").err


def test_asking_for_a_name_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(tmp_path, "deepstone.odd", "later", "broken_plugin:X", "raise AssertionError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    declared.cache_clear()
    _forget()
    try:
        entries = WithPlugins[int]({"own": 1}, "deepstone.odd", int)
        assert entries["own"] == 1
        assert "later" in entries
        assert "never" not in entries
        assert entries.names() == ["own", "later"]
        assert "broken_plugin" not in sys.modules
        assert list(entries) == ["own"]
        assert [error.why for error in entries.broken()] == ["it does not load: AssertionError: imported"]
    finally:
        declared.cache_clear()
        _forget()


def _forget() -> None:
    from deepstone import plugins

    plugins._entry_points.cache_clear()
