"""The command line: calls a verb, whose module in `verbs` is imported only then, and says what went wrong with it."""

import functools
import importlib
import os
import sys
import warnings

from heedful import settings
from heedful.errors import InputError, InputWarning
from heedful.memory import hold_memory
from heedful.parser import new_parser


def main(arguments=None):
    """Run a verb; return the exit code: 0 or as the verb says, 2 for a user's mistake, 128 + number after a signal."""
    arguments = sys.argv[1:] if arguments is None else arguments
    trains = arguments[:1] == ["train"] or arguments[:2] == ["bench", "train"]
    arguments, overrides = settings.take(arguments) if trains else (arguments, [])
    options = new_parser().parse_args(arguments)
    options.overrides = overrides
    hold_memory()
    usual = warnings.showwarning
    warnings.showwarning = functools.partial(_show_warning, usual)
    try:
        _prepare_output()
        module, name = options.verb.split(".")
        code = getattr(importlib.import_module(f"heedful.verbs.{module}"), name)(options) or 0
        sys.stdout.flush()  # while errors of writing are still reported below
        return code
    except InputError as error:
        print(f"heedful: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at exit
        return 0
    except OSError as error:
        print(f"heedful: {error.strerror}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("heedful: stopped.", file=sys.stderr)
        return 130
    finally:
        warnings.showwarning = usual


def _prepare_output():
    """Have what is written be UTF-8, as what is read is."""
    if sys.stderr is None:  # closed: its messages would go to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process lives
    if sys.stdout is None:
        raise InputError("There is no standard output to write to.")
    if hasattr(sys.stdout, "reconfigure"):  # a test may have put something simpler in its place
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # names of files may be any bytes


def _show_warning(usual, message, category, *place, **more):
    """Print our own warnings as a line, without where in our code they arose."""
    if issubclass(category, InputWarning):
        print(f"heedful: warning: {message}", file=sys.stderr)
    else:
        usual(message, category, *place, **more)
