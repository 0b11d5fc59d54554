"""Environments that are a system of their own. A script stands for debootstrap, which takes minutes and a network; what
it makes is a real system, of this machine's C library and Python, and is entered for real.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kitchen import OWN_PYTHON, Kitchen, NoProgress, toml

from deepstone.environments import chroot
from deepstone.environments.add import build
from deepstone.environments.chroot import ARCHIVE
from deepstone.environments.cookbook import find_recipe
from deepstone.environments.enter import OF_THE_SYSTEM
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.environments.manifest import write_manifest
from deepstone.environments.places import Place
from deepstone.environments.recipe import parse_recipe
from deepstone.environments.remove import mounts_within, remove
from deepstone.errors import MissingError, StoreError, UsageError

NAME = "torch@9.9.9"
INTERPRETER = Path(sys.executable).resolve()
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and entering a system take root")
with_python_outside = pytest.mark.skipif(
    INTERPRETER.parts[1] in OF_THE_SYSTEM, reason="this Python lies where the other system's files would be"
)

# Called as debootstrap is: --variant, --include, the suite, the folder, a mirror.
MAKE_A_SYSTEM = """
mkdir -p "$4/mnt" "$4/usr/bin" "$4/usr/lib/frameworks/torch" "$4/usr/lib/frameworks/numpy" "$4/var/lib/dpkg" "$4/etc"
echo "I: Retrieving libc6 2.31"
for file in $LIBRARIES; do mkdir -p "$4$(dirname $file)"; cp -L $file "$4$file"; done
echo "I: Extracting libc6..."
ln -s "$INTERPRETER" "$4/usr/bin/python$PYTHON_VERSION"
echo "__version__ = '9.9.9'" > "$4/usr/lib/frameworks/torch/__init__.py"
echo "__version__ = '0.1'" > "$4/usr/lib/frameworks/numpy/__init__.py"
printf 'Package: torch\\nVersion: 9.9.9-1\\n\\nPackage: other\\nVersion: 2\\n' > "$4/var/lib/dpkg/status"
mount -t tmpfs inside "$4/mnt"
"""
MOUNT_AND_WAIT = """
mkdir -p "$4/proc"
mount -t tmpfs inside "$4/proc"
touch "$4/../reached"
sleep 600
"""


def libraries() -> str:
    """What the interpreter needs of a system: its loader and the C library with its kin."""
    said = subprocess.run(["ldd", INTERPRETER], capture_output=True, text=True, check=True).stdout
    paths = [word for line in said.splitlines() for word in line.split() if word.startswith("/")]
    folder = next(Path(path).parent for path in paths if "libc.so" in path)
    return " ".join([*paths, *(str(path) for path in folder.glob("lib[dpruz]*.so.[012]") if path.name in KIN)])


MAY_NOT_MOUNT = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
KIN = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libz.so.1")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Whoever runs the tests."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def system_recipe(kitchen: Kitchen, **changes: object) -> None:
    fields = {
        "name": NAME,
        "framework": "torch",
        "version": "9.9.9",
        "kind": "chroot",
        "suite": "bullseye",
        "packages": ["torch", "libopenblas0-pthread"],
        "python": [OWN_PYTHON],
        "size_bytes": 10_000_000,
        "minutes": 0.1,
        "year": 2017,
        "default": True,
        "variables": {"PYTHONPATH": "/usr/lib/frameworks"},
    } | changes
    (kitchen.recipes / "torch.toml").write_text(toml(fields))


@pytest.fixture
def debootstrap(kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that stands for it, first on PATH; a test writes what it does."""
    system_recipe(kitchen)
    tools = kitchen.folder / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("LIBRARIES", libraries())
    monkeypatch.setenv("INTERPRETER", str(INTERPRETER))
    monkeypatch.setenv("PYTHON_VERSION", OWN_PYTHON)
    return tools / "debootstrap"


def does(script: Path, what: str) -> None:
    script.write_text(f'#!/bin/sh\nset -e\necho "$@" >> {script}.asked\n{what}')
    script.chmod(0o755)


def mounted() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


@as_root
@with_python_outside
def test_from_a_recipe_to_a_system_and_away(kitchen: Kitchen, debootstrap: Path) -> None:
    before = mounted()
    does(debootstrap, MAKE_A_SYSTEM)
    environment = build(find_recipe("torch"), kitchen.root, NoProgress()).manifest.environment
    assert (environment.name, environment.kind, environment.version) == (NAME, "chroot", "9.9.9")
    assert environment.lock["debian:torch"] == "9.9.9-1"
    assert "debian:other" not in environment.lock
    assert not any("/" in name for name in environment.lock)  # a record could not hold it
    assert sorted(path.name for path in (kitchen.root / NAME).iterdir()) == ["environment.json", "system"]
    asked = Path(f"{debootstrap}.asked").read_text().split()
    assert asked[:3] == ["--variant=minbase", "--include=torch,libopenblas0-pthread", "bullseye"]
    assert find_environment("torch@9.9.9") == environment

    assert_is_apart_and_sees_our_files(environment, kitchen.folder)
    assert mounted() == before
    assert list((kitchen.root / NAME / "system" / "mnt").iterdir()) == []

    remove(NAME, kitchen.root, NoProgress())
    assert kitchen.leftovers() == []


def assert_is_apart_and_sees_our_files(environment: Environment, folder: Path) -> None:
    """The same process and descriptors, the same names of files, another /usr."""
    read_fd, write_fd = os.pipe()
    program = """
import os, sys
os.write(int(sys.argv[1]), b"through a pipe")
print(os.getpid(), os.getcwd(), os.path.exists("/usr/lib/frameworks"), os.path.exists("/usr/share"), sep="\\n")
open("written", "w").write("from inside")
"""
    running = subprocess.Popen(
        [*environment.command, "-c", program, str(write_fd)],
        env=environment.variables_over(os.environ),
        cwd=folder,
        pass_fds=[write_fd],
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = running.communicate(timeout=200)
    os.close(write_fd)
    assert out.split("\n")[:4] == [str(running.pid), str(folder), "True", "False"]
    assert os.read(read_fd, 100) == b"through a pipe"
    os.close(read_fd)
    assert (folder / "written").read_text() == "from inside"


@as_root
@with_python_outside
def test_the_package_is_seen_where_the_systems_files_hide_it(kitchen: Kitchen, debootstrap: Path) -> None:
    """As it is where Deepstone was installed into /usr/local. A folder of /usr stands for it, as working directory."""
    does(debootstrap, MAKE_A_SYSTEM)
    environment = build(find_recipe("torch"), kitchen.root, NoProgress()).manifest.environment
    said = subprocess.run(
        [*environment.command, "-c", "import os; print(len(os.listdir('.')))"],
        env=environment.variables_over(os.environ),
        cwd="/usr/share",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert int(said) == len(list(Path("/usr/share").iterdir())) > 0


class TestWithout:
    def test_root(self, kitchen: Kitchen) -> None:
        system_recipe(kitchen)
        recipe = find_recipe("torch")
        with tempfile.TemporaryDirectory() as open_folder:
            Path(open_folder).chmod(0o777)
            with (
                ordinary_user(),
                pytest.raises(MissingError, match="takes root to make; run deepstone as root") as error,
            ):
                build(recipe, Path(open_folder), NoProgress())
            assert sorted(path.name for path in Path(open_folder).iterdir()) == ["locks", "logs", "removed"]
        assert "\n" not in str(error.value)

    def test_root_when_it_is_to_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory() as open_folder:
            Path(open_folder).chmod(0o755)
            place = Place(root=Path(open_folder), name="caffe@1.0.0")
            python = place.system / "usr" / "bin" / "python3"
            python.parent.mkdir(parents=True)
            python.touch()
            made = Environment(
                framework="caffe", version="1.0.0", program=python, lock={"python": "3.9"}, kind="chroot"
            )
            write_manifest(place, made, recipe_sha="", size_bytes=1)
            monkeypatch.setenv("DEEPSTONE_ENVIRONMENTS", open_folder)
            monkeypatch.setattr(sys, "path", [])  # the packages of whoever runs the tests are not for everybody to see
            with ordinary_user(), pytest.raises(MissingError, match="takes root to run; run deepstone as root"):
                find_environment("caffe")

    @as_root
    def test_debootstrap(self, kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
        system_recipe(kitchen)
        monkeypatch.setenv("PATH", str(kitchen.folder))
        monkeypatch.setattr(chroot, "_SYSTEM_TOOLS", ())
        with pytest.raises(MissingError, match="debootstrap is not installed; on Debian or Ubuntu: apt install"):
            build(find_recipe("torch"), kitchen.root, NoProgress())

    @as_root
    def test_the_right_to_mount(self, kitchen: Kitchen, debootstrap: Path) -> None:
        """As root in a container."""
        does(debootstrap, MAKE_A_SYSTEM)
        command = [*MAY_NOT_MOUNT, sys.executable, "-m", "deepstone", "env", "add", "torch"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 4
        assert "cannot make torch@9.9.9: root may not mount here (unshare: " in done.stderr.splitlines()[-1]
        assert not Path(f"{debootstrap}.asked").exists()

    @as_root
    def test_a_mirror_that_answers(self, kitchen: Kitchen, debootstrap: Path) -> None:
        """The archive of old releases is asked last."""
        does(debootstrap, 'echo "E: Failed getting release file ${5:-http://default}/dists/bullseye/Release"; exit 1\n')
        with pytest.raises(MissingError, match=r"^cannot make torch@9\.9\.9: Failed getting .* is there a network\?"):
            build(find_recipe("torch"), kitchen.root, NoProgress())
        first, second = Path(f"{debootstrap}.asked").read_text().splitlines()
        assert ARCHIVE not in first
        assert second.endswith(ARCHIVE)
        assert kitchen.leftovers() == []

    @as_root
    def test_room(self, kitchen: Kitchen, debootstrap: Path) -> None:
        """What ran out of it says so only in debootstrap's own log."""
        log = '"$4/debootstrap/debootstrap.log"'
        does(debootstrap, f'mkdir -p "$4/debootstrap"; echo "tar: x: No space left on device" > {log}; exit 1\n')
        with pytest.raises(StoreError, match="no space left on device; make room"):
            build(find_recipe("torch"), kitchen.root, NoProgress())
        assert kitchen.leftovers() == []
        assert "No space left" in Place(root=kitchen.root, name=NAME).log.read_text()

    @as_root
    def test_a_package_of_that_name(self, kitchen: Kitchen, debootstrap: Path) -> None:
        does(debootstrap, 'echo "W: hm"; echo "E: Internal error: something else"; echo more; exit 1\n')
        with pytest.raises(MissingError, match=r"cannot make torch@9\.9\.9: Internal error: something else; see "):
            build(find_recipe("torch"), kitchen.root, NoProgress())
        assert len(Path(f"{debootstrap}.asked").read_text().splitlines()) == 1


@as_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_while_something_is_mounted(kitchen: Kitchen, debootstrap: Path, number: int) -> None:
    before = mounted()
    does(debootstrap, MOUNT_AND_WAIT)
    adding = subprocess.Popen([sys.executable, "-m", "deepstone", "env", "add", "torch"], stderr=subprocess.PIPE)
    reached = kitchen.root / NAME / "reached"
    end_s = time.monotonic() + 60
    while not reached.exists():
        assert adding.poll() is None
        assert time.monotonic() < end_s
        time.sleep(0.01)
    adding.send_signal(number)
    adding.communicate(timeout=200)
    assert mounted() == before
    if number == signal.SIGINT:
        assert kitchen.leftovers() == []
        return
    assert kitchen.leftovers() == [NAME]
    remove(NAME, kitchen.root, NoProgress())
    assert kitchen.leftovers() == []


@as_root
class TestRemovalOfWhatSomebodyMountedInto:
    @pytest.fixture
    def precious(self, kitchen: Kitchen) -> Iterator[Path]:
        """A folder of the user's, bound into an environment."""
        precious = kitchen.folder / "precious"
        precious.mkdir()
        (precious / "thesis").write_text("years of work")
        inside = kitchen.root / NAME / "system" / "a home"
        inside.mkdir(parents=True)
        subprocess.run(["mount", "--bind", precious, inside], check=True)
        yield precious
        subprocess.run(["umount", inside], capture_output=True, check=False)

    def test_it_is_unmounted_and_not_removed(self, kitchen: Kitchen, precious: Path) -> None:
        assert mounts_within(kitchen.root / NAME) == [kitchen.root / NAME / "system" / "a home"]
        remove(NAME, kitchen.root, NoProgress())
        assert (precious / "thesis").read_text() == "years of work"
        assert kitchen.leftovers() == []
        assert mounts_within(kitchen.folder) == []

    def test_in_use_it_is_refused(self, kitchen: Kitchen, precious: Path) -> None:
        inside = kitchen.root / NAME / "system" / "a home"
        with (
            (inside / "thesis").open(),
            pytest.raises(StoreError, match=r"a home is mounted there and cannot be unmou"),
        ):
            remove(NAME, kitchen.root, NoProgress())
        assert (precious / "thesis").read_text() == "years of work"
        assert (inside / "thesis").exists()

    def test_what_is_set_aside_is_not_swept_either(self, kitchen: Kitchen, precious: Path) -> None:
        aside = kitchen.root / "removed" / "earlier"
        aside.parent.mkdir(exist_ok=True)
        (kitchen.root / NAME).rename(aside)
        other = kitchen.root / "jax@1.0" / "environment.json"
        other.parent.mkdir()
        other.touch()
        remove("jax@1.0", kitchen.root, NoProgress())
        assert (precious / "thesis").read_text() == "years of work"
        subprocess.run(["umount", aside / "system" / "a home"], check=True)


@as_root
def test_a_root_that_may_not_mount_is_told_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    enter = Path(chroot.__file__).with_name("enter.py")
    command = [*MAY_NOT_MOUNT, sys.executable, "-I", "-S", enter, tmp_path, "/bin/true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert done.stderr.startswith(f"cannot enter {tmp_path}: a mount namespace: Operation not permitted; it takes root")
    assert done.stderr.count("\n") == 1


GOOD = {
    "name": "caffe@1.0.0",
    "framework": "caffe",
    "version": "1.0.0",
    "kind": "chroot",
    "suite": "bullseye",
    "packages": ["caffe", "libstdc++6", "python3-numpy"],
    "python": ["3.9"],
    "size_bytes": 1_000_000_000,
    "minutes": 4,
    "year": 2017,
}


def test_a_recipe_of_this_kind() -> None:
    recipe = parse_recipe(toml(GOOD).encode(), Path("my.toml"))
    assert (recipe.suite, recipe.packages) == ("bullseye", ("caffe", "libstdc++6", "python3-numpy"))
    assert recipe.steps == ()
    other = parse_recipe(toml({**GOOD, "suite": "buster"}).encode(), Path("my.toml"))
    assert other.sha != recipe.sha


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"suite": "../etc"}, "suite must be a release of Debian"),
        ({"suite": "--help"}, "suite must be"),
        ({"packages": ["caffe=1.0"]}, "packages must be names of Debian's packages"),
        ({"packages": ["a,b"]}, "packages must be"),
        ({"packages": []}, "packages must be"),
        ({"steps": [{"packages": ["torch==1.1.0"]}]}, "steps: no such key"),
        ({"kind": "vm"}, "kind must be venv or chroot, not 'vm'"),
    ],
)
def test_what_is_wrong_with_one(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_recipe(toml({**GOOD, **changes}).encode(), Path("my.toml"))


def test_the_files_of_a_system_are_not_led_astray() -> None:
    made = Environment(
        framework="caffe", version="1", program=Path("/e/system/usr/bin/python3"), lock={}, kind="chroot"
    )
    given = {"PATH": "/bin", "LD_PRELOAD": "x.so", "PYTHONPATH": "/p", "HOME": "/h"}
    assert made.variables_over(given) == {"HOME": "/h", "PYTHONNOUSERSITE": "1"}
    assert made.command[0] == sys.executable
    assert made.command[-2:] == ("/e/system", "/usr/bin/python3")
    assert stat.S_ISREG(Path(made.command[3]).stat().st_mode)
