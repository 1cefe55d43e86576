"""heedful serve: answer requests over HTTP, or those of an agent over MCP."""

import argparse
import re
import sys
from pathlib import Path

from heedful.commands.arguments import add_engine, add_glossary, add_text, count, port
from heedful.config import OF_SOURCE, settings
from heedful.core.errors import InputError, counted

OF_HTTP = (
    "host", "port", "languages", "engine", "queue", "slots", "seconds", "max_lines", "max_tokens", "api_keys",
    "allowed_host", "cors",
)  # fmt: skip
REQUIRED = ("starlette", "uvicorn", "prometheus_client")  # packages that the server imports at its start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, of any task")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=8000, help="port; 0: a free one (default: 8000)")
    parser.add_argument(
        "--languages", action="append", default=[], type=_pair, metavar="PAIR",
        help="languages of a translator, such as pt-en; repeated for several, in the order of the runs (default: from "
        "its text)",
    )  # fmt: skip
    add_engine(parser, "of translators")
    parser.add_argument(
        "--queue", type=count, default=1024, help="texts of each run that wait or are being computed (default: 1024)"
    )
    parser.add_argument("--slots", type=count, default=48, help="sentences decoded together by a thread (default: 48)")
    parser.add_argument("--seconds", type=count, default=60, help="time limit of a request (default: 60)")
    parser.add_argument("--max-lines", type=count, default=256, help="most lines of a request (default: 256)")
    parser.add_argument(
        "--max-tokens", type=count, default=1024, help="largest max_tokens of an OpenAI request (default: 1024)"
    )
    parser.add_argument("--api-keys", type=Path, metavar="FILE", help="accept only requests with a key of this file")
    parser.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME",
        help="another host name that requests may name; * for any; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN",
        help="origin whose web pages may use the server, such as https://example.org; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--mcp", action="store_true",
        help="speak the Model Context Protocol on standard input and output instead of HTTP, with the tools translate, "
        "explain, evaluate and doctor, for agents and editors that start this command",
    )  # fmt: skip
    add_glossary(parser)
    add_text(parser)
    settings.add_options(parser, "decode", without=("n_best",))


def _pair(text):
    match = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pair of language codes such as pt-en")
    return match[1], match[2]


def run(options: argparse.Namespace) -> int:
    """Run the command; return 1 if accepted requests were not answered, else 0."""
    from heedful import backend
    from heedful.runs.run import Run

    runs = [Run.open(path).with_text(options.text) for path in options.runs]
    _refuse_idle(options, [run.task for run in runs])
    decodes = [settings.given_options(run.config, "decode", options) for run in runs]
    backend.keep_compilations()
    return (_serve_agents if options.mcp else _serve_http)(runs, decodes, options)


def _serve_agents(runs, decodes, options):
    try:
        from heedful.serve import agents
    except ImportError as error:
        if error.name != "mcp":
            raise
        raise InputError("The Model Context Protocol needs its package: pip install 'heedful[mcp]'.") from error
    predictors = [run.task.predictor([run], decode) for run, decode in zip(runs, decodes, strict=True)]
    tools = agents.Tools(runs, predictors)
    _set_glossary((tools.predictors[name] for name in tools.translators), options.glossary)
    agents.serve(tools)
    return 0


def _serve_http(runs, decodes, options):
    from heedful import backend
    from heedful.commands.terminal import print_line
    from heedful.core.progress import dropped_if_closed, note

    try:
        from heedful.serve import server
    except ImportError as error:
        if error.name not in REQUIRED:
            raise
        raise InputError(
            "The server needs Starlette, uvicorn and prometheus-client: pip install 'heedful[serve]'."
        ) from error
    from heedful.serve.requests import Limits

    limits = Limits(lines=options.max_lines, tokens=options.max_tokens, seconds=options.seconds)
    chosen = server.Options(
        host=options.host, port=options.port, engine=options.engine, queue=options.queue, slots=options.slots,
        allowed_hosts=tuple(options.allowed_host), origins=tuple(options.cors),
        keys=server.read_keys(options.api_keys) if options.api_keys else (), limits=limits,
    )  # fmt: skip
    service = server.load_service(runs, decodes, chosen, options.languages, note)
    _set_glossary((one.predictor for one in service.translators), options.glossary)

    def report(line):  # a closed standard output must not end the server
        with dropped_if_closed(sys.stdout):
            print_line(line)

    code = server.serve(service, chosen, report)
    if not all(served.engine.has_stopped for served in service.runs.values()):
        backend.abandon(code)  # Python cannot end in order while a thread computes
    return code


def _set_glossary(translators, path):
    from heedful.data.glossary import Glossary

    if path:
        for translator in translators:
            translator.glossary = Glossary.read(path)


def _refuse_idle(options, tasks):
    """Raise `InputError` for options without effect on these runs or with --mcp, and for too many --languages."""
    if options.mcp:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        for name in OF_HTTP:
            if getattr(options, name) != parser.get_default(name):
                raise InputError(f"--{name.replace('_', '-')} is for HTTP: it has no effect with --mcp.")
    translators = sum(task.translates for task in tasks)
    if options.engine == "ctranslate2" and not translators:
        raise InputError("--engine ctranslate2 is for translators, and none of the runs is one.")
    if options.glossary and not translators:
        raise InputError("--glossary is for translators, and none of the runs is one.")
    if len(options.languages) > translators:
        raise InputError(f"There are {len(options.languages)} --languages, but {counted(translators, 'translator')}.")
    given = [name for name, value in vars(options).items() if name.startswith("decode.") and value is not None]
    for name in (full_name.removeprefix("decode.") for full_name in given):
        flag = f"--{name.replace('_', '-')}"
        if not any(task.writes for task in tasks):
            raise InputError(f"{flag} is for runs that write text, and none of these does.")
        if name in OF_SOURCE and not translators:
            raise InputError(f"{flag} is for translators, and none of the runs is one.")
