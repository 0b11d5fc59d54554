"""Runs a command with the programs and libraries of another system: enter.py SYSTEM COMMAND…

This is a separate script, and it imports only modules that load fast. It builds the root of the command on a tmpfs, in
a private mount namespace: /usr, /etc and the like from SYSTEM, every other folder from this machine. So files keep
their names, the process keeps its id and descriptors, and the kernel removes all mounts when the last process inside
ends.
"""

from __future__ import annotations

import ctypes
import os
import sys

# Folders that belong to a system and not to its user.
OF_THE_SYSTEM = ("bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr")

CANNOT_ENTER = 126
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_UNBINDABLE, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 17, 1 << 18
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  (pathlib is slow)


def check(result: int, doing: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def mount(libc: ctypes.CDLL, source: str, target: str, flags: int, kind: str = "") -> None:
    words = [os.fsencode(word) or None for word in (source, target, kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), None), f"mount {source} on {target}")


def bind(libc: ctypes.CDLL, path: str, place: str) -> None:
    """Bind a folder of one root into another, or copy a link. Plain files in a root are ignored."""
    if os.path.islink(path):  # noqa: PTH114
        os.symlink(os.readlink(path), place)  # noqa: PTH211, PTH115
    elif os.path.isdir(path):  # noqa: PTH112
        os.mkdir(place)  # noqa: PTH102
        mount(libc, path, place, _MS_BIND | _MS_REC)


def is_hidden(path: str) -> bool:
    """Whether the other system's folders hide this folder of the machine."""
    return path.split("/")[1] in OF_THE_SYSTEM


def make_root(libc: ctypes.CDLL, system: str, needed: list[str]) -> str:
    """Build the root over a folder that the other system does not use."""
    root = os.path.join(system, "mnt")  # noqa: PTH118
    mount(libc, "tmpfs", root, 0, "tmpfs")
    mount(libc, "", root, _MS_UNBINDABLE)  # otherwise it would be bound along with the folder that contains the system
    for name in os.listdir("/"):  # noqa: PTH208
        if name not in OF_THE_SYSTEM:
            bind(libc, f"/{name}", f"{root}/{name}")
    for name in OF_THE_SYSTEM:
        bind(libc, f"{system}/{name}", f"{root}/{name}")
    for folder in needed:
        if is_hidden(folder):
            os.makedirs(root + folder, exist_ok=True)  # noqa: PTH103
            mount(libc, folder, root + folder, _MS_BIND | _MS_REC)
    return root


def main(system: str, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    working = os.getcwd()  # noqa: PTH109
    try:
        check(libc.unshare(_CLONE_NEWNS), "a mount namespace")
        mount(libc, "", "/", _MS_REC | _MS_PRIVATE)
        root = make_root(libc, system, [os.path.realpath(_PACKAGE), working])
        os.chroot(root)
        os.chdir(working)
        os.execv(command[0], command)
    except OSError as error:
        remedy = "; it takes root, and in a container the right to mount (CAP_SYS_ADMIN)"
        reason = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        sys.stderr.write(f"cannot enter {system}: {reason}{remedy if error.errno in (1, 13) else ''}\n")
        sys.exit(CANNOT_ENTER)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
