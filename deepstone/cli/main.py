"""The `deepstone` command: gathers the commands, and turns what a user can cause into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

import deepstone
from deepstone.cli import axes, compare, doctor, models, results, run
from deepstone.errors import DeepstoneError

app = typer.Typer(
    name="deepstone",
    help="How fast a deep network trains here, where the time goes, and the proof.",
    epilog="First steps: deepstone doctor · deepstone models · deepstone run alexnet-owt batch=16",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"deepstone {deepstone.__version__}\n")
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before a command."""


app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("models", epilog=models.EXAMPLES)(models.models)
app.command("axes", epilog=axes.EXAMPLES)(axes.axes)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("compare", epilog=compare.EXAMPLES, cls=compare.TwoSidedCommand)(compare.compare)
app.add_typer(results.app, name="results")


class Terminated(BaseException):
    """SIGTERM, as an exception: so that workers are ended and files are closed on the way out."""


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def main() -> None:
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        app()
    except DeepstoneError as error:
        sys.stderr.write(f"deepstone: {' '.join(str(error).split())}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("deepstone: interrupted; runs already stored are kept\n")
        sys.exit(130)
    except Terminated:
        sys.stderr.write("deepstone: terminated; runs already stored are kept\n")
        sys.exit(143)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is wrong with us.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
