"""Clients that exist: the packages openai, deepl and libretranslatepy, and plain HTTP."""

import asyncio
import concurrent.futures
import dataclasses
import re
from collections import defaultdict
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from heedful import load
from heedful.config import DecodeConfig
from heedful.serve.openai import _options
from tests.conftest import PAIRS
from tests.serve.conftest import completed

pytestmark = pytest.mark.any_backend

LINES = [source for source, _ in PAIRS]


@pytest.fixture(scope="session")
def want(runs):
    """Each line with its translation by the predictor."""
    return dict(zip(LINES, load(runs / "translator").translate(LINES), strict=True))


def test_libretranslate(address, want):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(address)
    assert client.translate(LINES[0], "pt", "en") == want[LINES[0]]
    assert {language["code"] for language in client.languages()} == {"pt", "en"}


def test_libretranslate_with_lists_lines_and_alternatives(client, want):
    answer = client.post("/translate", json={"q": LINES[:3], "source": "auto", "target": "en"}).json()
    assert answer["translatedText"] == [want[line] for line in LINES[:3]]
    assert answer["detectedLanguage"][0]["language"] == "pt"
    two = f"{LINES[0]}\n\n{LINES[1]}"
    answer = client.post("/translate", data={"q": two, "source": "pt", "target": "en", "alternatives": 2}).json()
    assert answer["translatedText"] == f"{want[LINES[0]]}\n\n{want[LINES[1]]}"
    assert len(answer["alternatives"]) <= 2


def test_deepl(address, want):
    import deepl

    client = deepl.DeepLClient("key", server_url=address)
    one = client.translate_text(LINES[0], source_lang="PT", target_lang="EN-US")
    assert (one.text, one.detected_source_lang) == (want[LINES[0]], "PT")
    several = client.translate_text(LINES[:4], target_lang="EN-GB")
    assert [each.text for each in several] == [want[line] for line in LINES[:4]]


def test_openai_models(openai, service):
    assert [model.id for model in openai.models.list()] == list(service.runs)
    assert openai.models.retrieve("writer").id == "writer"


def test_openai_completions(openai, translator, want, runs):
    done = openai.completions.create(model=translator, prompt=LINES[:2])
    assert [choice.text for choice in done.choices] == [want[line] for line in LINES[:2]]
    assert done.usage.completion_tokens > 0
    assert {choice.finish_reason for choice in done.choices} == {"stop"}
    written = openai.completions.create(model="writer", prompt="o gato", max_tokens=5, temperature=0, echo=True)
    assert written.choices[0].finish_reason == "length"
    assert written.choices[0].text == load(runs / "writer").generate("o gato", max_length=5, beam_size=1)


def test_a_sample_does_not_depend_on_what_is_computed_beside_it(openai, translator):
    def drawn(number):
        answer = openai.completions.create(
            model=("writer", translator)[number % 2], prompt="o gato", max_tokens=8, temperature=1.5, seed=7
        )
        return answer.choices[0].text

    alone = [drawn(0), drawn(1)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(drawn, range(24))) == alone * 12


def test_openai_sampling_depends_on_the_seed_only(openai):
    def drawn(seed):
        done = openai.completions.create(
            model="writer", prompt="o", max_tokens=8, temperature=1.0, top_p=0.9, seed=seed, n=3
        )
        return [choice.text for choice in done.choices]

    assert len(drawn(1)) == 3
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_openai_chat_and_its_stream(openai, translator, want):
    messages = [{"role": "system", "content": "Translate."}, {"role": "user", "content": LINES[2]}]
    done = openai.chat.completions.create(model=translator, messages=messages)
    assert done.choices[0].message.content == want[LINES[2]]
    chunks = list(openai.chat.completions.create(model=translator, messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == want[LINES[2]]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len(chunks) > 2


def test_the_sample_of_a_stream_is_that_of_a_whole_answer(openai):
    """Guards against a stream that drew every line with the numbers of the first."""
    options = {"model": "run", "prompt": "o gato bebe\no gato bebe", "temperature": 1.5, "seed": 7}
    answered = openai.completions.create(**options).choices[0].text
    first, second = answered.split("\n")
    assert first != second
    chunks = openai.completions.create(**options, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == answered


def test_the_end_and_the_usage_of_a_text_are_reported(openai):
    """Guards clients that continue a text that was cut off, also by the default length of the run."""
    cut = openai.completions.create(model="writer", prompt="o", temperature=1.5, seed=1, max_tokens=7)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 7)
    options = {"model": "writer", "prompt": "o", "temperature": 0}
    answer = openai.completions.create(**options)
    assert (answer.choices[0].finish_reason == "length") == (answer.usage.completion_tokens == 200)
    *chunks, last = openai.completions.create(**options, stream=True, stream_options={"include_usage": True})
    assert (last.choices, last.usage.completion_tokens) == ([], answer.usage.completion_tokens)
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason


def test_legal_values_of_openai_are_accepted(openai, client):
    greedy = openai.completions.create(model="writer", prompt="o", max_tokens=5, temperature=0).choices[0].text
    assert openai.completions.create(model="writer", prompt="o", max_tokens=5, top_p=0).choices[0].text == greedy
    assert openai.completions.create(model="writer", prompt="o", max_tokens=5, temperature=1, seed=-1).choices
    fields = {"model": "writer", "prompt": "o", "max_tokens": 5, "min_tokens": 2}  # of other servers
    wrong = client.post("/v1/completions", json=fields | {"stream": True, "stream_options": [1]})
    assert (wrong.status_code, "must be an object" in wrong.text) == (422, True)
    answer = client.post("/v1/completions", json=fields)
    assert (answer.status_code, answer.headers["warning"]) == (200, '299 heedful "ignored: min_tokens"')


def test_openai_streams_a_language_model(openai, runs):
    chunks = list(openai.completions.create(model="writer", prompt="o gato", max_tokens=6, temperature=0, stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "length"]
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert f"o gato{text}" == load(runs / "writer").generate("o gato", max_length=6, beam_size=1)


def test_openai_embeddings(openai, runs):
    import openai as package

    found = openai.embeddings.create(model="filler", input=["o gato bebe", "a vaca"])
    vectors = np.array([item.embedding for item in found.data])  # sent as base64
    want = load(runs / "filler").embed(["o gato bebe", "a vaca"])
    np.testing.assert_allclose(vectors, want, atol=1e-5)
    as_numbers = openai.embeddings.create(model="filler", input="o gato bebe", encoding_format="float")
    np.testing.assert_allclose(as_numbers.data[0].embedding, want[0], atol=1e-5)
    size = len(want[0])
    assert openai.embeddings.create(model="filler", input="o gato", dimensions=size)
    with pytest.raises(package.UnprocessableEntityError, match=f"{size} dimensions"):
        openai.embeddings.create(model="filler", input="o gato", dimensions=size // 2)


def test_huggingface_classifies(address, client, runs):
    from huggingface_hub import InferenceClient

    texts = ["the cat drinks milk", "the king sees the cow"]
    classifier = load(runs / "classifier")
    for text, want in zip(texts, classifier.probabilities(texts), strict=True):
        classes = InferenceClient(f"{address}/models/classifier").text_classification(text)
        assert [each.label for each in classes] == [classifier.labels[index] for index in np.argsort(-want)]
        np.testing.assert_allclose([each.score for each in classes], sorted(want, reverse=True), atol=1e-6)
    [[best], [_]] = client.post("/models/classifier", json={"inputs": texts, "parameters": {"top_k": 1}}).json()
    assert best["label"] == classifier.classify(texts[0]).label
    long = client.post("/models/classifier", json={"inputs": "the cat " * 40})
    assert "only the first 14 are read" in long.headers["warning"]
    for name, fields, status in (
        ("writer", {"inputs": "a"}, 404), ("classifier", {"inputs": 1}, 422), ("classifier", {}, 422),
        ("classifier", {"inputs": "a", "parameters": {"function_to_apply": "sigmoid"}}, 422),
        ("classifier", {"inputs": "a", "parameters": {"top_k": 0}}, 422),
        ("classifier", {"inputs": "a", "parameters": 1}, 422),
    ):  # fmt: skip
        assert client.post(f"/models/{name}", json=fields).status_code == status


def test_openai_errors_reach_the_client(openai):
    import openai as package

    with pytest.raises(package.NotFoundError, match="There is no model 'other'"):
        openai.completions.create(model="other", prompt="a")
    with pytest.raises(package.UnprocessableEntityError, match="message of the user"):
        openai.chat.completions.create(model="writer", messages=[{"role": "system", "content": "x"}])


@pytest.mark.slow
def test_concurrent_requests_get_what_one_gets(address, want):
    """Sixty-four clients, 1,000 requests, in any order."""

    async def all_of_them():
        limits, results = asyncio.Semaphore(40), []
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:

            async def ask(line):
                async with limits:
                    answer = await client.post("/translate", json={"q": line, "target": "en"})
                results.append((line, answer.json()["translatedText"]))

            await asyncio.gather(*(ask(LINES[number % len(LINES)]) for number in range(1000)))
        return results

    results = completed(all_of_them())
    assert len(results) == 1000
    assert all(want[line] == text for line, text in results)


def test_metrics_count_without_personal_labels(client):
    text = "uma frase secreta"
    client.post("/translate", json={"q": text, "target": "en"}, headers={"user-agent": "someone"})
    client.get(f"/nothing/{text}")
    client.get(f"/page/{text}")
    reported = client.get("/metrics").text
    assert 'heedful_requests_total{path="/translate",status="200"}' in reported
    assert 'path="other",status="404"' in reported
    assert 'heedful_requests_total{path="/page/{name}",status="404"}' in reported
    assert text not in reported
    assert "someone" not in reported
    assert client.get("/livez").text == client.get("/readyz").text == "ok"
    assert client.get("/health").json() == {"status": "ok"}


def test_a_translation_of_several_lines_has_one_meaning(openai, client):
    """Guards against options that change whether a text is translated line by line."""
    text = "o gato bebe\n\na vaca come"
    expected = client.post("/translate", json={"q": text, "target": "en"}).json()["translatedText"]
    assert expected.count("\n") == 2

    def written(**options):
        answer = openai.completions.create(model="run", prompt=text, **options)
        if options.get("stream"):
            return "".join(chunk.choices[0].text for chunk in answer)
        return answer.choices[0].text

    for options in ({}, {"temperature": 0}, {"temperature": 5e-324}, {"temperature": 1e-3}, {"max_tokens": 64}):
        assert written(**options) == expected, options
        assert written(stream=True, **options) == expected, options
    several = openai.completions.create(model="run", prompt=text, n=2).choices
    assert [choice.text.count("\n") for choice in several] == [2, 2]
    short = [written(max_tokens=4, stream=stream) for stream in (False, True)]
    assert short[0] == short[1]
    assert expected.startswith(short[0][:5])


def test_a_text_of_several_sentences_has_one_meaning(openai, client, service, monkeypatch):
    """Guards `decode.split = "always"` too: several results are wanted of each sentence, not of the text."""
    text = "o gato bebe. A vaca come.  O rei vê a vaca!"
    expected = client.post("/translate", json={"q": text, "target": "en"}).json()["translatedText"]
    assert (
        client.post("/v2/translate", json={"text": [text], "target_lang": "EN"}).json()["translations"][0]["text"]
        == expected
    )
    stream = openai.completions.create(model="run", prompt=text, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == expected
    predictor = next(iter(service.runs.values())).predictor
    monkeypatch.setattr(predictor, "decode", dataclasses.replace(predictor.decode, split="always"))
    choices = openai.completions.create(model="run", prompt=text, n=2).choices
    assert len({choice.text for choice in choices}) == 2
    reply = client.post("/translate", json={"q": text, "target": "en", "alternatives": 1})
    assert reply.status_code == 200, reply.text


def test_unknown_fields_are_ignored_and_a_header_says_so(client):
    """Guards clients such as Weblate, which send what later versions of an API know."""
    fields = {
        "text": ["o gato bebe"],
        "target_lang": "EN",
        "style_id": "x",
        "custom_instructions": ["x"],
        "new\nfield": 1,
    }
    answer = client.post("/v2/translate", json=fields)
    assert answer.status_code == 200
    assert answer.headers["warning"] == '299 heedful "ignored: style_id, custom_instructions, new?field"'
    plain = client.post("/translate", json={"q": "o gato", "target": "en"})
    assert "warning" not in plain.headers
    assert client.post("/translate", json={"q": "o gato", "taget": "en"}).status_code == 422


def test_a_header_says_that_a_sentence_was_cut(client):
    """Guards clients that would take the translation of parts for that of a whole sentence."""
    text = "o gato\n" + "o gato bebe leite " * 60
    for path, fields in (
        ("/translate", {"q": text, "target": "en"}), ("/v2/translate", {"text": [text], "target_lang": "EN"}),
        ("/v1/chat/completions", {"model": "run", "messages": [{"role": "user", "content": text}]}),
    ):  # fmt: skip
        answer = client.post(path, json=fields)
        assert answer.status_code == 200, answer.text
        told = r'299 heedful "line 2 has a sentence that is longer than any in training .*: .* in \d+ parts\."'
        assert re.fullmatch(told, answer.headers["warning"])


def test_a_run_that_samples_keeps_its_temperature():
    """`top_p` alone asks for samples; it set the temperature to 1 for a run with another one."""
    given = defaultdict(type(None), n=1, top_p=0.9)
    temperatures = []
    for decode in (DecodeConfig(sample=True, temperature=0.5), DecodeConfig()):
        served = SimpleNamespace(predictor=SimpleNamespace(decode=decode), task=SimpleNamespace(translates=True))
        temperatures.append(_options(served, given).get("temperature", decode.temperature))
    assert temperatures == [0.5, 1.0]
