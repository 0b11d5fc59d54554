"""Runs inside a probed interpreter: python -c THIS RESULT_FILE PACKAGE PART LIBRARIES. In the syntax of Python 2.7.

Imports NumPy, the framework and, if it is not empty, that part of it; lists all distributions and, if asked, the shared
libraries; and writes the result to a file, since frameworks print.
"""
# pyright: reportTypeCommentUsage=false

import json
import os
import platform
import re
import sys


def distributions():
    # type: () -> dict[str, str]
    """Return versions by name. Of two copies, the one that Python would import counts."""
    try:
        from importlib import metadata

        pairs = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
    except ImportError:
        pairs = old_distributions()
    found = {}  # type: dict[str, str]
    for name, version in pairs:
        if name and version:
            found.setdefault(re.sub("[-_.]+", "-", name).lower(), version)
    return found


def old_distributions():
    # type: () -> list[tuple[str, str]]
    """Before Python 3.8 only setuptools has the list, if it is installed."""
    try:
        import pkg_resources  # pyright: ignore
    except ImportError:
        return []
    return [(each.project_name, each.version) for each in pkg_resources.working_set]  # pyright: ignore


def libraries(package):
    # type: (str) -> list[str]
    """Return the shared libraries that are loaded, and those that the framework may load later."""
    with open("/proc/self/maps") as maps:
        paths = [line.split(None, 5)[5].strip() for line in maps if ".so" in line]
    for folder, _, names in os.walk(os.path.dirname(sys.modules[package].__file__ or "")):
        paths += [os.path.join(folder, name) for name in names if name.endswith(".so")]
    return sorted({path for path in paths if os.path.isfile(path)})


def main(target, package, part, with_libraries):
    # type: (str, str, str, str) -> None
    sys.path[:] = [entry for entry in sys.path if entry]  # a local folder of the same name must not be imported
    versions = {}  # type: dict[str, str]
    failures = {}  # type: dict[str, str]
    for name in (package, part, "numpy"):
        try:
            if name:
                versions[name.partition(".")[0]] = str(__import__(name).__version__)
        except Exception as error:
            failures[name] = "%s: %s" % (type(error).__name__, error)
    found = {
        "program": platform.python_version(),
        "versions": versions,
        "failures": failures,
        "distributions": distributions(),
        "libraries": libraries(package) if with_libraries and not failures else [],
    }
    with open(target, "w") as file:
        json.dump(found, file)


main(*sys.argv[1:])
