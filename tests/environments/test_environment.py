"""Names, and the variables that a process in an environment gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.environments.environment import NAME, Environment, names_version, newness


def environment(**fields: object) -> Environment:
    given = {"framework": "torch", "version": "2.4.0+cpu", "program": Path("/p"), "lock": {"python": "3.11.7"}}
    return Environment(**(given | fields))  # type: ignore[arg-type]


def test_a_name_comes_from_the_version_if_none_is_given() -> None:
    assert environment().name == "torch@2.4.0+cpu"
    assert environment(name="torch@2.4.0-cluster").name == "torch@2.4.0-cluster"
    assert environment().command == ("/p",)


def test_versions_sort_by_their_numbers() -> None:
    versions = ["2.9.0", "2.10.0", "1.12.0", "2.10.0.post1", "10.0"]
    assert sorted(versions, key=newness) == ["1.12.0", "2.9.0", "2.10.0", "2.10.0.post1", "10.0"]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("torch@2.4.0", True),
        ("torch@2.4.0+cpu", True),
        ("torch@2.4.0-cluster", True),
        ("torch@2.4.01", False),
        ("torch@2.4", False),
        ("jax@2.4.0", False),
    ],
)
def test_a_name_must_tell_the_version(name: str, fits: bool) -> None:
    assert names_version(name, "torch", "2.4.0+cpu") is fits


@given(st.text())
def test_a_name_cannot_lead_out_of_the_folder(text: str) -> None:
    if NAME.fullmatch(text):
        assert "/" not in text
        assert text[0] != "."
    assert not NAME.fullmatch(f"torch@1/{text}")


GIVEN = {"PYTHONPATH": "/elsewhere", "PYTHONHOME": "/h", "KMP_BLOCKTIME": "200", "HOME": "/home/u"}


class TestVariables:
    def test_those_of_a_recipe_override_the_users_own(self) -> None:
        made = environment(kind="venv", variables={"KMP_BLOCKTIME": "1"})
        assert made.variables_over(GIVEN) == {"KMP_BLOCKTIME": "1", "HOME": "/home/u"}

    def test_the_own_interpreter_keeps_all(self) -> None:
        assert environment().variables_over(GIVEN) == GIVEN

    def test_an_adopted_one_has_what_it_was_adopted_with(self) -> None:
        adopted = environment(kind="adopted", variables={"PYTHONPATH": "/module"})
        assert adopted.variables_over(GIVEN) == {**GIVEN, "PYTHONPATH": "/module"}
