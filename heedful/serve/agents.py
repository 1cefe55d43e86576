"""A server of the Model Context Protocol on standard input and output, with tools for agents and editors."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio.to_thread
import numpy as np
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from heedful import __version__
from heedful.core.errors import InputError
from heedful.data.doctor.examination import examine
from heedful.data.doctor.rows import Rows
from heedful.inspection.translation import TranslationInspection
from heedful.runs.run import Run, by_name

MOST_READ = 3  # source tokens named for each token of a translation


class Tools:
    """What an agent may ask of runs. Names of runs are those of their folders; the first is the default.

    Args:
        runs: any runs.
        predictors: a predictor for each run.
    """

    def __init__(self, runs: Sequence[Run], predictors: Sequence[Any]):
        self.runs = by_name(runs)
        self.predictors = dict(zip(self.runs, predictors, strict=True))
        self.translators = [name for name, run in self.runs.items() if run.task.translates]

    def translate(self, texts: list[str], run: str = "") -> list[str]:
        """Translate texts with a trained translator; every text has one translation, in the order of the texts.

        Args:
            texts: one line each, of one or several sentences.
            run: name of the run; empty: the first translator.
        """
        return self.predictors[self._find(run, self.translators)].translate(texts)

    def explain(self, text: str, translation: str = "", run: str = "") -> dict[str, Any]:
        """Explain a translation token by token: its probability, likely alternatives, and the source tokens it read.

        Args:
            text: one sentence of the source language.
            translation: the translation to explain; empty: that of the model.
            run: name of the run; empty: the first translator.
        """
        predictor = self.predictors[self._find(run, self.translators)]
        inspection = TranslationInspection.of(predictor, text, translation or None)
        sources = inspection.source_tokens
        read = inspection.attention["cross"].mean(axis=(0, 1))  # (T, S): over all layers and heads
        return {"translation": inspection.translation, "source_tokens": sources, "tokens": [
            {
                "token": token,
                "probability": round(float(np.exp(log_probability)), 4),
                "alternatives": {one.token: round(one.probability, 4) for one in alternatives},
                "reads": [_read(sources, place, weights) for place in np.argsort(-weights)[:MOST_READ]],
            }
            for token, log_probability, alternatives, weights in zip(
                inspection.written_tokens, inspection.log_probabilities, inspection.alternatives, read, strict=True
            )
        ]}  # fmt: skip

    def evaluate(self, run: str = "") -> dict[str, Any]:
        """Score a run of any task on its own test text, as `heedful evaluate` does; this can take minutes.

        Args:
            run: name of the run; empty: the first one.
        """
        name = self._find(run, self.runs)
        return self.runs[name].task.evaluate(self.runs[name], self.runs[name].scored_corpus(), self.predictors[name])

    def doctor(self, run: str = "") -> dict[str, Any]:
        """Examine the training text of a run for faults: repeated, empty, misaligned or untranslated rows, and others.

        Args:
            run: name of the run; empty: the first one.
        """
        opened = self.runs[self._find(run, self.runs)]
        parts = Rows.of_config(opened.config.data, opened.task.text_layout(opened.config.data))
        if "train" not in parts:
            raise InputError(f"{opened.path} names no text of its own.")
        return examine(parts.pop("train"), parts, opened.tokenizers()).as_dict()

    def _find(self, name, known: Sequence[str] | Mapping[str, Any]):
        """Return the name of a run among the known ones, or the first."""
        if not known:
            raise InputError("None of the runs is a translator.")
        if name and name not in known:
            raise InputError(f"There is no run {name!r} for this; there is: {', '.join(known)}.")
        return name or next(iter(known))


def _read(source_tokens, index, weights):
    """Return a source token with its attention weight; the position tells it from an equal token."""
    return {"position": int(index), "token": source_tokens[index], "weight": round(float(weights[index]), 4)}


def new_server(tools: Tools) -> MCPServer:
    """Return the server of some tools; those that need a translator are missing if no run is one."""
    server = MCPServer("heedful", version=__version__, instructions=f"Runs: {', '.join(tools.runs)}.")
    offered: list[Callable[..., Any]] = [tools.evaluate, tools.doctor]
    if tools.translators:
        offered = [tools.translate, tools.explain, *offered]
    for tool in offered:
        server.add_tool(_in_a_thread(tool))
    return server


def _in_a_thread(tool):
    """Return a tool that leaves the event loop free, and reports bad input as the protocol does."""

    @functools.wraps(tool)
    async def run(**arguments: Any) -> Any:
        try:
            return await anyio.to_thread.run_sync(functools.partial(tool, **arguments))
        except InputError as error:
            raise ToolError(str(error)) from error

    return run


def serve(tools: Tools) -> None:
    """Answer on standard input and output until the client closes them."""
    new_server(tools).run("stdio")
