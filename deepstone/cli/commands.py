"""Lists the commands, and turns what a user can cause into one line and an exit code."""

from __future__ import annotations

import itertools
import os
import re
import resource
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from msgspec import Struct

import deepstone
from deepstone.cli import completion
from deepstone.cli.declare import examples, with_groups
from deepstone.cli.help import Commands, HelpfulGroup
from deepstone.cli.output import note, write
from deepstone.cli.stopped import Stopped, on_signal, raise_stopped, raise_swallowed
from deepstone.errors import DeepstoneError, UsageError, close_names, out_of_descriptors


class _Entry(Struct, frozen=True, kw_only=True):
    """One command. Its module `deepstone.cli.NAME` has either a function of that name and EXAMPLES, or a group
    `app`."""

    name: str
    short_help: str
    command_class: str | None = None

    def load(self) -> Any:
        """Import the module and return the command as typer builds it."""
        module = import_module(f"deepstone.cli.{self.name}")
        group: Commands | None = getattr(module, "app", None)
        if group is not None:
            group.callback(invoke_without_command=True, short_help=self.short_help)(common_to_group)
            return typer.main.get_command(group)
        single = Commands()
        command_class = None if self.command_class is None else getattr(module, self.command_class)
        add = single.command(self.name, short_help=self.short_help, epilog=module.EXAMPLES, cls=command_class)
        add(with_groups(getattr(module, self.name)))
        return typer.main.get_command(single)


_ENTRIES = (
    _Entry(name="doctor", short_help="What this machine has and what runs on it."),
    _Entry(name="models", short_help="The model zoo, or one model layer by layer."),
    _Entry(name="axes", short_help="Everything in which two runs can differ."),
    _Entry(name="run", short_help="Measure a model."),
    _Entry(name="compare", short_help="Setups against each other, with a verdict.", command_class="SidesCommand"),
    _Entry(name="tune", short_help="Find the fastest setup, and why it is the fastest."),
    _Entry(name="scale", short_help="How much faster several processes train."),
    _Entry(name="comm", short_help="How long processes take to send each other data."),
    _Entry(name="layers", short_help="Where the time goes, layer by layer."),
    _Entry(name="memory", short_help="What a step takes of memory, layer by layer."),
    _Entry(name="conv", short_help="Every algorithm on every convolution."),
    _Entry(name="verify", short_help="Prove that frameworks compute the same thing."),
    _Entry(name="advise", short_help="The setups that are likely the fastest, without measuring."),
    _Entry(name="study", short_help="Many jobs, planned, measured and resumed."),
    _Entry(name="papers", short_help="The source studies' claims, with verdicts."),
    _Entry(name="draw", short_help="A saved result as SVG, PNG or HTML."),
    _Entry(name="report", short_help="What was measured, as one page."),
    _Entry(name="caffe", short_help="What `caffe time` prints, on any framework."),
    _Entry(name="env", short_help="Framework environments: list, add, remove, doctor."),
    _Entry(name="results", short_help="What was measured: list, show, export, import, delete."),
)


class _AllCommands(HelpfulGroup):
    """Imports a command when it is called. Help, and the suggestions for a misspelt name, import none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._entries = {entry.name: entry for entry in _ENTRIES}
        self._loaded: dict[str, Any] = {}
        self.commands = cast(Any, dict.fromkeys(self._entries))  # typer reads only the names

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self._entries and cmd_name not in self._loaded:
            self._loaded[cmd_name] = self._entries[cmd_name].load()
        return self._loaded.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.short_help) for entry in _ENTRIES])


app = Commands(
    name="deepstone",
    cls=_AllCommands,
    add_completion=True,
    help="How fast a deep network trains here, where the time goes, and the proof.",
    epilog=examples("deepstone doctor", "deepstone models", "deepstone run alexnet-owt batch=16"),
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_GUESS = re.compile(r"\.? *\(?(Did you mean|Possible options:) [^?)]*[?)]*")
_UNKNOWN = re.compile(r"No such (command|option):? '?([^' ]+)")
_LONGEST_PATH = 4096  # of a file system; a message may have to name one

# typer raises it for a command line that it cannot read. Versions of typer name it differently.
CommandLineError = cast(type[typer.BadParameter], typer.BadParameter.__base__)


def _version(requested: bool) -> None:
    if requested:
        write(f"deepstone {deepstone.__version__}\n")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def common(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before a command."""
    _want_command(ctx)


def common_to_group(ctx: typer.Context) -> None:
    _want_command(ctx)


def _want_command(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        sys.stderr.write(f"{ctx.get_help()}\n")
        raise typer.Exit(UsageError.exit_code)


def run_command_line() -> int:
    """Run the command line, print its error if it fails, and return the exit code. From here on a signal raises
    Stopped."""
    try:
        on_signal(raise_stopped)
        code = _invoke(typer.main.get_command(app))
        raise_swallowed()
        return code
    except DeepstoneError as error:
        note(f"deepstone: {_one_line(str(error))}")
        return error.exit_code
    except CommandLineError as error:
        note(f"deepstone: {_explained(error)}")
        return UsageError.exit_code
    except Stopped as stopped:
        note(f"deepstone: {stopped.what}; {stopped.kept}")
        return stopped.exit_code
    except BrokenPipeError:
        # The reader of our output is gone, which is no error of ours. The rest of the buffer is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ImportError) as error:
        if not out_of_descriptors(error):
            raise
        note(f"deepstone: {_descriptor_advice()}")
        return UsageError.exit_code


def _descriptor_advice() -> str:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"too many open files: a process may have {most} here; allow more, as with `ulimit -n 1024`"


def _invoke(command: Any) -> int:
    """Run the command without typer's own main(), which prints errors in another form."""
    if completion.VARIABLE in os.environ:
        completion.answer_shell(lambda: command.main(prog_name="deepstone", complete_var=completion.VARIABLE))
    try:
        with command.make_context("deepstone", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    return 0


def _explained(error: typer.BadParameter) -> str:
    message = _GUESS.sub("", _one_line(error.format_message())).rstrip(".")
    for slip in (" (env var: 'None')", "Value error, "):  # of some versions of typer
        message = message.replace(slip, "")
    about = "deepstone" if error.ctx is None else error.ctx.command_path
    message = _with_value(message, getattr(getattr(error, "param", None), "opts", ()))
    meant = _meant(message, None if error.ctx is None else error.ctx.command)
    return f"{message[:1].lower()}{message[1:]}; {meant}see `{about} --help`"


def _meant(message: str, command: Any) -> str:
    """The commands or options that an unknown one is near to. Versions of typer and click guess none, once or twice."""
    from deepstone.setups.axes import AXES

    if (unknown := _UNKNOWN.match(message)) is None or command is None:
        return ""
    kind, word = unknown.groups()
    takes_axes = any(each.name in ("axes", "words") for each in command.params)
    if kind == "option" and takes_axes and (axis := word.lstrip("-")) in AXES:
        return f"{axis} is an axis: write {axis}=VALUE; "
    commands = list(getattr(command, "commands", ())) if kind == "command" else []
    options = [name for each in command.params for name in each.opts if kind == "option" and name.startswith("--")]
    close = close_names(word, [*commands, *options])
    return f"did you mean {' or '.join(close)}? " if close else ""


def _with_value(message: str, options: Sequence[str]) -> str:
    """Add the wrong value to a message that lacks it: some versions of typer name only the option."""
    words = [word for given in sys.argv[1:] for word in given.split("=", 1)]
    values = [value for option, value in itertools.pairwise(words) if option in options]
    if not values or values[-1] in message.split(": ", 1)[-1].replace("'", " ").split():
        return message
    return message.replace("nvalid value for", f"nvalid value {_one_line(values[-1])!r} for", 1)


def _one_line(text: str) -> str:
    """Join the text in one line. A word longer than any path is cut, with its length."""
    words = (
        word if len(word) <= _LONGEST_PATH else f"{word[:80]}… ({len(word):,} characters)" for word in text.split()
    )
    return " ".join(words)
