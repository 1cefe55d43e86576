"""The command line: finds the command, parses its arguments, and reports errors as one line."""

import argparse
import contextlib
import difflib
import functools
import os
import sys
import traceback
import warnings

from heedful import __version__
from heedful.commands import GROUPS, HELP, module_of
from heedful.core.errors import InputError, InputWarning
from heedful.core.plugins import metric_names, task_names
from heedful.core.progress import quietly, warn

ABOUT = """Train, inspect and ship Transformers.

usage: heedful COMMAND [arguments]    heedful COMMAND --help    heedful --version
"""
ENVIRONMENT = """
environment:
  HEEDFUL_DATA    folder of relative text paths (default: ./data)
  HEEDFUL_MIRROR  address of a mirror for `heedful data get`
  HEEDFUL_CACHE   folder of encoded text and compiled programs (default: heedful in XDG_CACHE_HOME or ~/.cache)
  KERAS_BACKEND   jax (the default), tensorflow or torch
"""
CACHE_NOT_WRITTEN = "Error writing persistent compilation cache entry"  # how JAX's warning begins


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code, 2 for a user error, 128 + N for signal N."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    usual = warnings.showwarning
    warnings.showwarning = functools.partial(_show_warning, usual, set())
    try:
        if "_ARGCOMPLETE" in os.environ:
            complete(os.environ["COMP_LINE"])
        _prepare_output()
        code = _run(arguments)
        sys.stdout.flush()  # here, so that write errors are reported below
        return code
    except InputError as error:
        warn(f"heedful: {error}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports the error again at exit
        return 0
    except OSError as error:
        reason = f"{error.strerror}: {error.filename or ''}".rstrip(": ") if error.strerror else error
        warn(f"heedful: {reason}")
        return 2
    except KeyboardInterrupt:
        warn("heedful: stopped.")
        return 130
    finally:
        warnings.showwarning = usual


def overview() -> str:
    """Return the help of the whole command line: the commands by group, tasks and metrics, also those of plug-ins."""
    width = max(map(len, HELP)) + 2
    groups = (
        f"\n{group}:\n" + "".join(f"  {name:{width}s}{text}\n" for name, text in commands) for group, commands in GROUPS
    )
    names = "".join(
        f"\n{kind + ':':9s}{', '.join(plugins)}"
        for kind, plugins in (("tasks", task_names()), ("metrics", metric_names()))
    )
    return f"{ABOUT}{''.join(groups)}{names}\n{ENVIRONMENT}"


def command_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    from heedful.commands.arguments import CommandParser

    parser = CommandParser(
        prog=f"heedful {command}", description=HELP[command], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser, command)
    return parser


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of a command, and those that every command has."""
    module_of(command).add_arguments(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="write results, warnings and errors only")
    amount.add_argument("-v", "--verbose", action="store_true", help="write what is compiled, and where an error arose")


def _run(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"heedful {__version__}")
        return 0
    from heedful.config import settings
    from heedful.core.distributed.parent import end_with_parent
    from heedful.core.memory import keep_freed_memory

    command = _command(arguments)
    if command is None:  # the help of a group of commands, such as `bench`
        names = [name for name in HELP if name.split()[0] == arguments[0]]
        print("".join(f"{f'heedful {name}':24s}{HELP[name]}\n" for name in names), end="")
        return 0 if arguments[1:] in (["-h"], ["--help"]) else 2
    rest, module = arguments[len(command.split()) :], module_of(command)
    rest, overrides = settings.split_arguments(rest) if getattr(module, "TAKES_SETTINGS", False) else (rest, [])
    options = command_parser(command).parse_args(rest)
    options.overrides, options.arguments = overrides, arguments
    keep_freed_memory()
    end_with_parent()
    with quietly(options.quiet), _verbosely() if options.verbose else contextlib.nullcontext():
        return module.run(options) or 0


@contextlib.contextmanager
def _verbosely():
    """Write which programs JAX compiles, and where an error of the input arose, in this context."""
    os.environ["JAX_LOG_COMPILES"] = "1"  # JAX reads it when it is imported
    try:
        yield
    except InputError:
        traceback.print_exc()
        raise
    finally:
        del os.environ["JAX_LOG_COMPILES"]


def complete(line: str) -> None:
    """Answer a shell that completes a command line, see docs/guides/installation.md."""
    import argcomplete

    from heedful.config import settings

    parser = argparse.ArgumentParser(prog="heedful", description=ABOUT)
    parser.add_argument("--version", action="store_true")
    groups = {"": parser.add_subparsers()}
    for command, text in HELP.items():
        group, _, name = command.rpartition(" ")
        if group not in groups:
            groups[group] = groups[""].add_parser(group).add_subparsers()
        subparser = groups[group].add_parser(name, help=text)
        if line.split()[1 : 1 + len(command.split())] == command.split():  # importing the others would take longer
            add_arguments(subparser, command)
            if getattr(module_of(command), "TAKES_SETTINGS", False):
                for setting, (_, _, meaning) in settings.meanings().items():
                    if setting == "task":
                        continue  # a key of recipes only
                    subparser.add_argument(f"--{setting}", help=meaning.replace("%", "%%"))
    argcomplete.autocomplete(parser)


def _command(arguments):
    """Return the name of the command, or None if the arguments name a group of commands only."""
    for words in (2, 1):
        if (name := " ".join(arguments[:words])) in HELP:
            return name
    first = arguments[0]
    if any(name.split()[0] == first for name in HELP):
        return None
    near = difflib.get_close_matches(first, [*HELP, *(name.split()[0] for name in HELP)], 1)
    advice = f"did you mean {near[0]!r}?" if near else "heedful --help lists the commands."
    raise InputError(f"There is no command {first!r}: {advice}")


def _prepare_output():
    """Set standard output to UTF-8, the encoding of all input."""
    if sys.stderr is None:  # closed: its messages would go to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process lives
    if sys.stdout is None:
        raise InputError("There is no standard output to write to.")
    if hasattr(sys.stdout, "reconfigure"):  # a test may have replaced it by something simpler
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # file names may be any bytes


def _show_warning(usual, shown, message, category, *location, **more):
    """Print our own warnings as one line, without a source location; and one of JAX's for each program once."""
    if issubclass(category, InputWarning):
        warn(f"heedful: warning: {message}")
    elif str(message).startswith(CACHE_NOT_WRITTEN):
        if CACHE_NOT_WRITTEN not in shown:
            reason = str(message).rpartition("': ")[2]
            warn(f"heedful: warning: compiled programs are not kept: {reason}")
        shown.add(CACHE_NOT_WRITTEN)
    else:
        usual(message, category, *location, **more)
