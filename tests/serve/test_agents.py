"""Tools for agents, asked by the client of the protocol's own package."""

import json
import sys

import pytest
from mcp import Client, StdioServerParameters

from heedful.config import DecodeConfig
from heedful.runs.run import Run
from heedful.serve.agents import Tools, new_server
from tests.serve.conftest import completed

pytestmark = pytest.mark.any_backend

SENTENCE = "o gato bebe"


@pytest.fixture(scope="module")
def tools(trained):
    run = Run.open(trained / "run")
    return Tools([run], [run.task.predictor([run], DecodeConfig())])


def asked(server, *calls):
    """Return the names of the tools of a server, and the results of calls (name, arguments)."""

    async def ask():
        async with Client(server) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, [await client.call_tool(name, arguments) for name, arguments in calls]

    return completed(ask())


def test_an_agent_translates_and_explains_through_the_command(run, tools):
    """With the process that an editor would start; nothing else may be written to its standard output."""
    command = StdioServerParameters(command=sys.executable, args=["-m", "heedful", "serve", str(run), "--mcp"])
    names, (translated, explained) = asked(
        command, ("translate", {"texts": [SENTENCE, "a menina come"]}), ("explain", {"text": SENTENCE})
    )
    assert names == ["translate", "explain", "evaluate", "doctor"]
    assert translated.structured_content["result"] == tools.translate([SENTENCE, "a menina come"])
    assert json.loads(explained.content[0].text) == tools.explain(SENTENCE)


def test_an_explanation_names_probabilities_and_what_was_read(tools):
    explained = tools.explain(SENTENCE, "the cat drinks")
    assert [token["token"] for token in explained["tokens"]][-1] == "[END]"
    for token in explained["tokens"]:
        assert len(token["alternatives"]) == 5
        assert sum(token["alternatives"].values()) <= 1.001
        assert token["probability"] <= max(token["alternatives"].values()) + 1e-4
        assert len(token["reads"]) == 3
        assert all(explained["source_tokens"][read["position"]] == read["token"] for read in token["reads"])


def test_an_agent_evaluates_and_examines(tools):
    _, (scores, examination) = asked(new_server(tools), ("evaluate", {"run": "run"}), ("doctor", {"run": "run"}))
    assert scores.structured_content["bleu"] >= 0
    assert examination.structured_content["rows"] > 0


def test_bad_requests_of_an_agent_get_the_reason(tools):
    _, (unknown, empty, missing) = asked(
        new_server(tools), ("translate", {"texts": ["a"], "run": "other"}), ("explain", {"text": ""}),
        ("translate", {}),
    )  # fmt: skip
    assert unknown.is_error
    assert "There is no run 'other' for this; there is: run." in unknown.content[0].text
    assert "An empty sentence cannot be inspected." in empty.content[0].text
    assert missing.is_error


@pytest.mark.slow
def test_runs_without_a_translator_offer_the_other_tools(runs):
    writer = Run.open(runs / "writer")
    names, _ = asked(new_server(Tools([writer], [writer.task.predictor([writer], DecodeConfig())])))
    assert names == ["evaluate", "doctor"]
