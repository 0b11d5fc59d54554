"""Debian's packages come from where this machine's apt gets them, whichever way its sources are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepstone.environments.chroot import ARCHIVE, mirrors, without_password

DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n'
LINES = """
# deb http://old.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb https://packages.example/apt cloud-bookworm main
deb [arch=amd64 signed-by=/a/key.gpg] http://own.example/debian/ bookworm main contrib
deb http://later.example/debian bookworm main
"""
PARAGRAPHS = """
Types: deb
URIs: https://node.example/node
Suites: nodistro
Components: main

Types: deb deb-src
# http://snapshot.example/debian
URIs: http://own.example/debian
Suites: bookworm bookworm-updates
Components: main
 contrib

Types: deb
URIs: http://own.example/debian-security
Suites: bookworm-security
Components: main
"""


def machine(folder: Path, release: str, **sources: str) -> Path:
    (folder / "etc/apt/sources.list.d").mkdir(parents=True)
    (folder / "etc/os-release").write_text(release)
    for name, text in sources.items():
        place = "etc/apt/sources.list" if name == "lines" else f"etc/apt/sources.list.d/debian.{name}"
        (folder / place).write_text(text)
    return folder


@pytest.mark.parametrize(
    "sources",
    [{"lines": LINES}, {"sources": PARAGRAPHS}, {"list": LINES}, {"lines": "deb cdrom:[disc]/ bookworm main" + LINES}],
)
def test_the_main_archive_of_this_debian_comes_first(tmp_path: Path, sources: dict[str, str]) -> None:
    assert mirrors(machine(tmp_path, DEBIAN, **sources)) == ["http://own.example/debian", ARCHIVE]


@pytest.mark.parametrize(
    ("release", "sources"),
    [
        ("ID=ubuntu\nVERSION_CODENAME=bookworm\n", {"lines": LINES}),
        (DEBIAN, {}),
        (DEBIAN, {"sources": PARAGRAPHS.replace("Types: deb deb-src", "Enabled: no\nTypes: deb")}),
        (DEBIAN, {"lines": "deb mirror+file:/etc/apt/mirrors bookworm main"}),
        (DEBIAN, {"lines": "\0deb ] [ nonsense\ndeb\ndeb x\n", "sources": ":\n::\n\n \n"}),
    ],
)
def test_else_it_is_left_to_debootstrap(tmp_path: Path, release: str, sources: dict[str, str]) -> None:
    assert mirrors(machine(tmp_path, release, **sources)) == ["", ARCHIVE]


def test_a_machine_without_apt(tmp_path: Path) -> None:
    assert mirrors(tmp_path) == ["", ARCHIVE]


def test_passwords_are_not_shown() -> None:
    assert without_password("E: http://me:secret@own.example/debian") == "E: http://own.example/debian"
