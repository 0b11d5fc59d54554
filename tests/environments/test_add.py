"""Environments are made by the real venv and pip, from wheels a few lines long; what fails leaves nothing behind.

The real venv makes one of them; the others are copies of one that it made.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kitchen import Kitchen, NoProgress

from deepstone.environments.add import Built, build
from deepstone.environments.cookbook import find_recipe
from deepstone.environments.manifest import read_manifest
from deepstone.environments.places import Place
from deepstone.environments.remove import remove, resolve
from deepstone.errors import MissingError, StoreError, UsageError


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, float]] = []

    def stage(self, stage: str, detail: str, share: float) -> None:
        self.told.append((stage, detail, share))

    def message(self, text: str) -> None:
        raise AssertionError(text)


def cook(kitchen: Kitchen, name: str, *, again: bool = False) -> Built:
    return build(find_recipe(name), kitchen.root, NoProgress(), again=again)


@pytest.mark.slow
def test_from_a_recipe_to_an_environment_and_away(kitchen: Kitchen, request: pytest.FixtureRequest) -> None:
    """One test for a whole life, since to make a venv takes seconds."""
    kitchen.torch()
    kitchen.wheel("numpy", "0.2")
    steps = [kitchen.step("numpy==0.1"), kitchen.step("torch==9.9.9", dependencies=True)]
    name = kitchen.recipe(steps=steps, variables={"KMP_BLOCKTIME": "1"})
    recorder = Recorder()
    built = build(find_recipe("torch"), kitchen.root, recorder)
    environment = built.manifest.environment

    assert built.is_new
    assert (environment.name, environment.kind, environment.version) == (name, "venv", "9.9.9")
    assert environment.variables == {"KMP_BLOCKTIME": "1"}
    assert {"torch": "9.9.9", "numpy": "0.1"}.items() <= environment.lock.items()
    assert built.manifest == read_manifest(Place(root=kitchen.root, name=name))
    assert built.manifest.size_bytes > 5_000_000  # pip alone is larger
    assert sorted(path.name for path in (kitchen.root / name).iterdir()) == ["environment.json", "venv"]
    imported = [*environment.command, "-c", "import torch; print(torch.__file__)"]
    assert name in subprocess.run(imported, capture_output=True, text=True, check=True).stdout

    stages = list(dict.fromkeys(stage for stage, _, _ in recorder.told))
    assert stages == ["making a venv", "downloading", "installing", "trying it"]
    assert ("downloading", "torch 9.9.9") in {(stage, detail) for stage, detail, _ in recorder.told}
    shares = [share for _, _, share in recorder.told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1

    before = environment.program.stat().st_ino
    there = cook(kitchen, name)
    assert (there.is_new, there.is_outdated) == (False, False)
    kitchen.recipe(notes="changed", steps=steps, variables={"KMP_BLOCKTIME": "1"})
    assert not cook(kitchen, name).is_outdated
    kitchen.recipe(steps=steps, variables={"KMP_BLOCKTIME": "0"})
    assert cook(kitchen, name).is_outdated
    assert environment.program.stat().st_ino == before

    request.getfixturevalue("copied_venvs")
    kitchen.recipe(steps=[kitchen.step("numpy==0.2", "torch==9.9.9")])
    again = cook(kitchen, name, again=True)
    assert again.is_new
    assert again.manifest.environment.lock["numpy"] == "0.2"

    (kitchen.root / name / "environment.json").write_text("{")
    assert cook(kitchen, name).is_new  # one that is damaged is made anew without being asked

    assert resolve("torch", kitchen.root) == name
    remove(name, kitchen.root, NoProgress())
    assert kitchen.leftovers() == []
    assert not Place(root=kitchen.root, name=name).log.exists()
    with pytest.raises(UsageError, match="no such environment; there is none"):
        resolve(name, kitchen.root)


@pytest.mark.usefixtures("copied_venvs")
class TestFailures:
    """Each says in one line what was wrong, and leaves nothing but the log."""

    def fails(self, kitchen: Kitchen, kind: type[Exception], says: str, name: str = "torch") -> str:
        with pytest.raises(kind, match=says) as error:
            cook(kitchen, name)
        assert "\n" not in str(error.value)
        assert kitchen.leftovers() == []
        return str(error.value)

    def test_a_package_that_is_not_to_be_had(self, kitchen: Kitchen) -> None:
        """The first step is done when the second fails."""
        kitchen.wheel("numpy", "0.1")
        kitchen.recipe(steps=[kitchen.step("numpy==0.1"), kitchen.step("torch==9.9.9")])
        told = self.fails(
            kitchen, MissingError, r"^cannot install torch@9\.9\.9: No matching distribution found for torch"
        )
        log = Path(told.rpartition("see ")[2])
        assert "Successfully installed numpy-0.1" in log.read_text()

    def test_a_wheel_that_is_broken(self, kitchen: Kitchen) -> None:
        kitchen.torch()
        (kitchen.wheels / "torch-9.9.9-py3-none-any.whl").write_bytes(b"PK\x03\x04 half a wheel")
        self.fails(kitchen, MissingError, r"cannot install torch@9\.9\.9: .*(invalid|bad)")

    def test_an_index_that_does_not_answer(self, kitchen: Kitchen) -> None:
        options = ["--index-url=http://127.0.0.1:9/simple", "--retries=0", "--timeout=2"]
        kitchen.recipe(steps=[{"packages": ["torch==9.9.9"], "options": options}])
        self.fails(kitchen, MissingError, r"cannot install torch@9\.9\.9: No matching distribution found")

    def test_a_framework_that_does_not_import(self, kitchen: Kitchen) -> None:
        kitchen.torch()
        kitchen.wheel("torch", "9.9.9", {"torch/__init__.py": "raise ImportError('libmpi.so.12: cannot open')\n"})
        self.fails(kitchen, MissingError, r"torch@9\.9\.9 was installed and does not work: .*libmpi\.so\.12")

    def test_a_framework_of_another_version_than_the_recipe_says(self, kitchen: Kitchen) -> None:
        kitchen.torch()
        kitchen.wheel("torch", "9.9.9", {"torch/__init__.py": "__version__ = '9.9.8'\n"})
        self.fails(kitchen, MissingError, r"torch@9\.9\.9: torch 9\.9\.8 was installed; its recipe is wrong")

    def test_a_missing_interpreter(self, kitchen: Kitchen) -> None:
        kitchen.recipe(python=["3.5"])
        self.fails(kitchen, MissingError, r"cannot make torch@9\.9\.9: no Python 3\.5 found")

    def test_a_disk_with_too_little_room(self, kitchen: Kitchen) -> None:
        kitchen.recipe(size_bytes=2**50)
        told = self.fails(kitchen, StoreError, r"cannot make torch@9\.9\.9: it needs 1,229 TiB and .* are free in ")
        assert told.endswith("make room, or set DEEPSTONE_ENVIRONMENTS to another folder")

    def test_a_folder_that_is_a_file(self, kitchen: Kitchen) -> None:
        kitchen.recipe()
        kitchen.root.write_text("")
        with pytest.raises(StoreError, match="it is a file and not a folder: set DEEPSTONE_ENVIRONMENTS"):
            cook(kitchen, "torch")


@pytest.mark.usefixtures("copied_venvs")
def test_what_a_killed_one_left_is_cleared(kitchen: Kitchen) -> None:
    kitchen.torch()
    half = kitchen.root / "torch@9.9.9" / "venv" / "lib"
    half.mkdir(parents=True)
    (half / "old").write_text("")
    aside = kitchen.root / "removed" / "torch@1.0.0.abc"
    aside.mkdir(parents=True)
    assert cook(kitchen, "torch").is_new
    assert kitchen.leftovers() == ["torch@9.9.9"]
    assert not (half / "old").exists()


@pytest.mark.usefixtures("copied_venvs")
def test_a_step_may_need_another_pip(kitchen: Kitchen) -> None:
    """pip is itself a package: here a wheel that takes notes and then does nothing."""
    kitchen.torch()
    spy = "import pathlib, sys\npathlib.Path(sys.prefix, 'asked').write_text(' '.join(sys.argv[1:]))\nsys.exit(0)\n"
    kitchen.wheel("pip", "99.1", {"pip/__init__.py": "", "pip/__main__.py": spy})
    steps = [kitchen.step("numpy==0.1", "torch==9.9.9"), kitchen.step("torch==9.9.9", pip="99.1")]
    # Only found when pip does not ask its configured places: its first call has no options of the recipe.
    kitchen.recipe(steps=steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(kitchen.wheels))
        patch.setenv("PIP_TARGET", str(kitchen.folder / "astray"))
        environment = cook(kitchen, "torch").manifest.environment
    asked = (kitchen.root / "torch@9.9.9" / "venv" / "asked").read_text()
    assert "--no-deps" in asked
    assert environment.lock["pip"] == "99.1"
    assert not (kitchen.folder / "astray").exists()
