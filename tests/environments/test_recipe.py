"""Recipes: what they can say, and that a broken one is told in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kitchen import Kitchen, toml

from deepstone.environments import cookbook
from deepstone.environments.cookbook import all_recipes, find_recipe
from deepstone.environments.recipe import Recipe, Step, parse_recipe
from deepstone.errors import UsageError

ORIGIN = Path("my.toml")
GOOD: dict[str, Any] = {
    "name": "torch@1.1.0",
    "framework": "torch",
    "version": "1.1.0",
    "kind": "venv",
    "python": ["3.6"],
    "steps": [{"packages": ["torch==1.1.0"]}],
    "size_bytes": 1_300_000_000,
    "minutes": 2.5,
    "year": 2019,
}

INTEL = """
name = "tensorflow@1.12.0-intel"
framework = "tensorflow"
version = "1.12.0"
kind = "venv"
python = ["3.6"]
size_bytes = 600_000_000
minutes = 3
year = 2018
notes = "Its wheel has two dist-info folders, which later versions of pip refuse."

[variables]
KMP_BLOCKTIME = "1"

[[steps]]
pip = "21.3.1"
packages = ["tensorflow==1.12.0", "numpy==1.16.6", "protobuf==3.17.3"]

[[steps]]
pip = "18.1"
packages = ["intel-tensorflow==1.12.0"]
options = ["--force-reinstall"]
"""


def parse(**changes: Any) -> Recipe:
    fields = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return parse_recipe(toml(fields).encode(), ORIGIN)


def test_a_recipe_of_two_steps_with_two_versions_of_pip_and_variables() -> None:
    recipe = parse_recipe(INTEL.encode(), ORIGIN)
    assert recipe.name == "tensorflow@1.12.0-intel"
    assert recipe.variables == {"KMP_BLOCKTIME": "1"}
    assert recipe.python == ("3.6",)
    assert not recipe.default
    assert recipe.steps == (
        Step(pip="21.3.1", packages=("tensorflow==1.12.0", "numpy==1.16.6", "protobuf==3.17.3")),
        Step(pip="18.1", packages=("intel-tensorflow==1.12.0",), options=("--force-reinstall",)),
    )
    assert not any(step.dependencies for step in recipe.steps)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": None}, "version is missing: a version"),
        ({"framework": "torhc"}, "framework must be a framework that Deepstone has a backend for, not 'torhc'"),
        ({"framework": "fake"}, "framework must be"),
        ({"name": "torch@1.2.0"}, "name must be torch@1.1.0 or torch@1.1.0-VARIANT, not torch@1.2.0"),
        ({"name": "torch@../../etc"}, "name must be a name such as torch@1.1.0"),
        ({"kind": "image"}, "kind must be venv or chroot, not 'image'"),
        ({"suite": "bullseye"}, "suite: no such key"),
        ({"python": []}, "python must be versions, the best first"),
        ({"python": ["python3"]}, "python must be versions"),
        ({"steps": []}, "steps must be calls of pip"),
        ({"steps": [{"packages": ["numpy<2"]}]}, "steps 1: packages must be exact pins"),
        ({"steps": [{"packages": ["numpy==2.*"]}]}, "exact pins"),
        ({"steps": [{"packages": ["torch==1.1.0"]}, {"packages": ["-r file"]}]}, "steps 2: packages must be exact"),
        ({"steps": [{"packages": ["torch==1.1.0"], "options": ["--target=/usr"]}]}, "keep to the environment"),
        ({"steps": [{"packages": ["torch==1.1.0"], "pips": "18.1"}]}, "steps 1: pips: no such key; did you mean pip"),
        ({"size_bytes": 0}, "size_bytes must be a number of bytes, not 0"),
        ({"size_bytes": True}, "size_bytes must be"),
        ({"minutes": -1}, "minutes must be a number above 0"),
        ({"variables": {"KMP_BLOCKTIME": 1}}, "variables must be a table of names and texts"),
        ({"defualt": True}, "defualt: no such key; did you mean default?"),
        ({"notes": "x\u0000y"}, "notes must be text"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as error:
        parse(**changes)
    assert str(error.value).startswith("recipe my.toml: ")
    assert str(error.value).isprintable()


def test_what_a_build_is_told_decides_what_comes_out() -> None:
    plain, built = parse(), {"packages": ["torch==1.1.0"], "variables": {"WITH": "1"}}
    assert plain.sha == "3354396035ec6e3a78613a7929802bc09ace9711ec66d275d0f8a4c8175001dc"
    shas = {parse(steps=[{**built, **more}]).sha for more in ({}, {"toolchain": "set(A 1)"}, {"variables": {}})}
    assert len(shas | {plain.sha}) == 3


LITERALS = st.one_of(
    st.text(max_size=30).map(json.dumps),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["true", "[]", "{}", "[[]]", "[{}]", '[""]', "1979-05-27", "inf", "9" * 5000, "[" * 2000, "{a={a=[{}]}}", ""]
    ),
)
LINES = st.lists(st.tuples(st.sampled_from([*GOOD, "variables", "default", "notes", "x"]), LITERALS), max_size=4)


@given(LINES)
def test_whatever_stands_in_a_recipe_it_is_read_or_refused(lines: list[tuple[str, str]]) -> None:
    changed = dict(lines)
    text = toml({key: value for key, value in GOOD.items() if key not in changed})
    text += "".join(f"{key} = {literal}\n" for key, literal in changed.items())
    _read_or_refused(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are(data: bytes) -> None:
    _read_or_refused(data)


def _read_or_refused(data: bytes) -> None:
    try:
        recipe = parse_recipe(data, ORIGIN)
    except UsageError as error:
        message = str(error)
    else:
        message = recipe.name
        assert recipe.steps
    assert message.isprintable()


class TestCookbook:
    def test_ours_are_sound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(cookbook.VARIABLE, raising=False)
        recipes = {recipe.name: recipe for recipe in all_recipes()}
        for framework in ("torch", "tensorflow", "jax"):
            recipe = find_recipe(framework)
            assert recipe.default
            assert recipes[recipe.name] == recipe
            packages = [package for step in recipe.steps for package in step.packages]
            names = [package.partition("==")[0].lower() for package in packages]
            assert "numpy" in names
            assert len(set(names)) == len(names)

    @pytest.mark.parametrize("library", ["horovod", "deepspeed"])
    def test_a_library_names_the_environment_that_has_it(self, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(cookbook.VARIABLE, raising=False)
        recipe = find_recipe(library)
        assert recipe.framework == "torch"
        assert any(package.startswith(f"{library}==") for step in recipe.steps for package in step.packages)

    def test_an_unknown_name_is_told_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="tensorflw: no such environment to add; did you mean tensorflow"):
            find_recipe("tensorflw")

    def test_own_recipes_come_before_ours(self, kitchen: Kitchen) -> None:
        ours = find_recipe("torch").name
        kitchen.recipe("9.9.9")
        assert find_recipe("torch").name == "torch@9.9.9"
        assert find_recipe(ours).name == ours
        kitchen.recipe("9.9.8")
        assert find_recipe("torch@9.9.8").version == "9.9.8"

    def test_two_defaults_are_one_too_many(self, kitchen: Kitchen) -> None:
        kitchen.recipe("9.9.9")
        kitchen.recipe("9.9.8", default=True)
        with pytest.raises(UsageError, match="two of them are the default of torch"):
            find_recipe("torch")

    def test_a_folder_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(cookbook.VARIABLE, "/nowhere")
        with pytest.raises(UsageError, match="cannot read the recipes in /nowhere: no such file or directory"):
            all_recipes()
