"""Runs inside a probed interpreter: python -c THIS RESULT_FILE PACKAGE. In the syntax of Python 2.7.

Imports NumPy and the framework, lists all distributions, and writes the result to a file, since frameworks print.
"""
# pyright: reportTypeCommentUsage=false

import json
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


def main(target, package):
    # type: (str, str) -> None
    sys.path[:] = [entry for entry in sys.path if entry]  # a local folder of the same name must not be imported
    versions = {}  # type: dict[str, str]
    failures = {}  # type: dict[str, str]
    for name in ("numpy", package):
        try:
            versions[name] = str(__import__(name).__version__)
        except Exception as error:
            failures[name] = "%s: %s" % (type(error).__name__, error)
    found = {
        "python": platform.python_version(),
        "versions": versions,
        "failures": failures,
        "distributions": distributions(),
    }
    with open(target, "w") as file:
        json.dump(found, file)


main(sys.argv[1], sys.argv[2])
