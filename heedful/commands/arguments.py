"""Argument parsing shared by several commands."""

import argparse
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ENGINES = ("heedful", "ctranslate2")
TEXTS: dict[str, Any] = {
    "nargs": "*", "default": [], "type": Path, "metavar": "FILE",
    "help": "text files, plain or .gz, .bz2, .xz (default: standard input)",
}  # fmt: skip


def add_run(parser: argparse.ArgumentParser, text: str = "run folder") -> None:
    """Add the argument that names a run folder."""
    parser.add_argument("run", type=Path, help=text)


def add_adapter(parser: argparse.ArgumentParser) -> None:
    """Add the option that names an adapter."""
    parser.add_argument(
        "--adapter", type=Path, metavar="FILE", help="an adapter trained on this run, or the run folder that trained it"
    )


def add_engine(parser: Any, computes: str) -> None:
    """Add the option that chooses the engine; `computes` says what it does, for the help."""
    text = f"the engine {computes}; ctranslate2 needs an export (default: %(default)s)"
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help=text)


def add_glossary(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a glossary."""
    parser.add_argument(
        "--glossary", type=Path, metavar="FILE",
        help="terms that the translations should have: a term, a tab and its translation on each line",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON for machines") -> None:
    """Add the option for output in JSON."""
    parser.add_argument("--json", action="store_true", help=text)


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add the option that names text of runs whose lines may be shown."""
    parser.add_argument(
        "--text", action="append", default=[], type=Path, metavar="PATH",
        help="a file or folder with text of a run, whose lines may be shown; text below HEEDFUL_DATA always may",
    )  # fmt: skip


def port(text: str) -> int:
    """Parse the number of a TCP port, or 0."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 to 65535")
    return int(text)


def count(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def whole_number(text: str) -> int:
    """Parse an integer from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


_MARK = "\0"  # before a positional argument that begins as an option does
_END = f"--{_MARK}"  # stands for `--`: an option without a value, which ends the values of the option before it


class _EndOfOptions(argparse.Action):
    """Does nothing."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **kwargs)

    def __call__(self, *_: Any) -> None:
        pass


def _without_mark(value: Any) -> Any:
    """Return the value of an argument without `_MARK`."""
    if isinstance(value, list):
        return list(map(_without_mark, value))
    marked = isinstance(value, (str, Path)) and str(value).startswith(_MARK)
    return type(value)(str(value).removeprefix(_MARK)) if marked else value


class CommandParser(argparse.ArgumentParser):
    """Accepts positional arguments anywhere among options; Python 3.11 itself accepts them only before options."""

    _intermixed = False

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        if self._intermixed:
            return super().parse_known_args(args, namespace)
        self.usage = self._usage()
        given = list(args or ())
        if "--" in given:  # everything after it is text
            place = given.index("--")
            texts = [f"{_MARK}{text}" if text.startswith("-") else text for text in given[place + 1 :]]
            given[place:] = [_END, *texts]
            if _END not in self._option_string_actions:
                self.add_argument(_END, action=_EndOfOptions, help=argparse.SUPPRESS)
        self._intermixed = True  # the call below calls this method again
        try:
            parsed, others = self.parse_known_intermixed_args(given, namespace)
        finally:
            self._intermixed = False
        for name, value in vars(parsed).items():
            setattr(parsed, name, _without_mark(value))
        return parsed, _without_mark(others)

    def error(self, message: str) -> NoReturn:
        """Print the usage and an error, with the nearest option to one that does not exist."""
        wrong = re.search(r"unrecognized arguments: (--[\w.-]+)", message)
        if wrong:
            named = [option for option in self._option_string_actions if option.startswith("--")]
            near = difflib.get_close_matches(wrong[1].replace("_", "-"), named, 1)
            message += f" (did you mean {near[0]}?)" if near else ""
        super().error(message)

    def _usage(self):
        """Return the usage with options last: an option with several values would consume positional arguments."""
        forms: dict[Any, str] = {None: "{0}", "?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}
        named = [action for action in self._actions if not action.option_strings]
        parts = [forms[action.nargs].format(action.metavar or action.dest.upper()) for action in named]
        return " ".join([self.prog, *parts, "[options]"])
