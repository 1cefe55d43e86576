"""Messages of ICU MessageFormat with plural forms or choices, as software has them: one sentence for each branch.

See https://unicode-org.github.io/icu/userguide/format_parse/messages.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from heedful.data.sentences import Pieces

MAX_SENTENCES, MAX_DEPTH = 100, 20  # of a message that is taken apart
_CHOICE = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset:\s*\d+\s+)?")
_SELECTOR = re.compile(r"\s*(?:=\d+|[\w-]+)\s*\{")
_QUOTED = re.compile(r"'[{}#|]")  # a quote that begins literal text
_ARGUMENT = re.compile(r"(\{[^{}]*\})")
_NUMBER = "{#}"  # how a model reads `#`, the number of a plural


class Choice(NamedTuple):
    """An argument with branches within a message.

    Args:
        start, end: its characters in the message.
        name: of the argument.
        counts: whether `#` stands for its value in its branches, but not in arguments within them.
        branches: start and end of each branch, without its braces.
    """

    start: int
    end: int
    name: str
    counts: bool
    branches: list[tuple[int, int]]


def message_pieces(text: str) -> Pieces | None:
    """Return the sentences of a message, and how their translations become a message again.

    Text around an argument belongs to each of its branches, since words may depend on it.

    >>> message_pieces("{n, plural, one {# file} other {# files}} left").texts
    ['{#} file left', '{#} files left']

    Returns:
        None if there is no argument with branches, or the message cannot be taken apart.
    """
    if "{" not in text or not (choice := _choice(text)) or _QUOTED.search(text):
        return None
    if "offset:" in text and len(_CHOICE.findall(text)) > 1:
        return None  # `#` has no other form then
    sentences: list[str] = []
    try:
        skeleton = list(_expanded(text, choice, sentences))
    except OverflowError:
        return None

    def joined(results: list[str]) -> str:
        return "".join(_written(results[part[0]], part[1]) if isinstance(part, tuple) else part for part in skeleton)

    return Pieces([one.replace("''", "'") for one in sentences], [""] * (len(sentences) - 1), [], joined)


def _expanded(text: str, choice: Choice, sentences: list[str], depth: int = 1) -> Iterator[str | tuple[int, bool]]:
    """Yield the parts of an expanded message: its syntax, and for each sentence its index and whether `#` counts.

    Args:
        text: the message.
        choice: its first argument with branches.
        sentences: those found so far; new ones are added.
        depth: of arguments within arguments.

    Raises:
        OverflowError: there are too many sentences, or they are nested too deep.
    """
    before, after = text[: choice.start], text[choice.end :]
    position = choice.start
    for start, end in choice.branches:
        yield text[position:start]
        branch = text[start:end]
        if choice.counts:
            branch = _with_number(branch, f"{{{choice.name}, number}}" if _choice(branch + after) else _NUMBER)
        sentence = before + branch + after
        if len(sentences) == MAX_SENTENCES or depth > MAX_DEPTH:
            raise OverflowError
        if inner := _choice(sentence):
            yield from _expanded(sentence, inner, sentences, depth + 1)
        else:
            yield len(sentences), choice.counts
            sentences.append(sentence)
        position = end
    yield text[position : choice.end]


def _with_number(branch: str, number: str) -> str:
    """Return a branch of a plural with `number` for `#`, but in arguments within it, where `#` is something else."""
    parts, position = [], 0
    while inner := _choice(branch[position:]):
        begin, end = position + inner.start, position + inner.end
        parts += [_outside_arguments(branch[position:begin], number), branch[begin:end]]
        position = end
    return "".join([*parts, _outside_arguments(branch[position:], number)])


def _outside_arguments(text: str, number: str) -> str:
    """Return a text with `number` for each `#` that no braces surround, such as those of a pattern of digits."""
    return "".join(part if part[:1] == "{" else part.replace("#", number) for part in _ARGUMENT.split(text))


def _written(result: str, counts: bool) -> str:
    """Return a translation in the syntax of messages: a quote before syntax is doubled, a literal `#` quoted."""
    result = re.sub(r"'(?=[{}#']|\Z)", "''", result)
    return _outside_arguments(result, "'#'").replace(_NUMBER, "#") if counts else result


def _choice(text: str) -> Choice | None:
    """Return the first argument of a message with branches, outside tags; None if there is none."""
    for match in _CHOICE.finditer(text):
        if text.rfind("<", 0, match.start()) > text.rfind(">", 0, match.start()):
            continue  # an attribute of a tag
        branches, position = [], match.end()
        while selector := _SELECTOR.match(text, position):
            end = _closing(text, selector.end())
            if end < 0:
                return None
            branches.append((selector.end(), end))
            position = end + 1
        close = re.compile(r"\s*\}").match(text, position)
        if not branches or not close:
            return None
        return Choice(match.start(), close.end(), match[1], match[2] != "select", branches)
    return None


def _closing(text: str, position: int) -> int:
    """Return the index of the brace that closes the one before `position`; -1 if none does."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if match.group() == "{" else -1
        if not depth:
            return match.start()
    return -1
