"""Markup, glossaries, documents and languages over HTTP, with clients that exist."""

import csv
import io
import json
import re

import deepl
import docx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from heedful import load
from heedful.data.glossary import Glossary
from heedful.serve.glossaries import Glossaries
from heedful.serve.texts import Markup, detect_languages, pieces_of, sample_of, sample_of_texts
from tests.conftest import PAIRS
from tests.serve.conftest import completed

pytestmark = pytest.mark.any_backend

LINE = PAIRS[0][0]  # o gato bebe
MARKED = "o <b>gato</b> bebe"


@pytest.fixture(scope="session")
def plain(runs):
    """The translation of the line."""
    return load(runs / "translator").translate(LINE)


@pytest.fixture
def translator(address):
    return deepl.DeepLClient("key", server_url=address)


def untagged(text):
    return re.sub(r"<[^>]*>", "", text)


def test_tags_of_deepl(translator, plain):
    for form in ("xml", "html"):
        result = translator.translate_text(MARKED, source_lang="PT", target_lang="EN-US", tag_handling=form).text
        assert untagged(result) == plain
        assert result.count("<b>") == result.count("</b>") == 1
    kept = translator.translate_text(
        'o gato bebe <x id="7"></x>', source_lang="PT", target_lang="EN-US", tag_handling="xml", ignore_tags=["x"]
    ).text
    assert kept.count('<x id="7"></x>') == 1
    document = "<a><b>o gato bebe</b><b>o gato bebe</b></a>"
    two = translator.translate_text(document, target_lang="EN-US", tag_handling="xml").text
    assert two == f"<a><b>{plain}</b><b>{plain}</b></a>"


def test_fields_of_deepl_are_checked_as_deepl_does(client, translator):
    fields = {"text": [LINE], "target_lang": "EN"}
    for more, status in (
        ({"tag_handling": "sgml"}, 400), ({"formality": "more"}, 400), ({"formality": "prefer_more"}, 200),
        ({"formality": "rude"}, 400), ({"glossary_id": "none", "source_lang": "PT"}, 404), ({"glossary_id": "x"}, 400),
        ({"split_sentences": "0", "context": "about cats"}, 200), ({"split_sentences": "words"}, 400),
        ({"split_sentences": True}, 200),
    ):  # fmt: skip
        assert client.post("/v2/translate", json=fields | more).status_code == status, more


def test_text_is_split_as_clients_of_deepl_want(translator, runs):
    text, ours = f"{LINE}. {PAIRS[1][0]}.\n{PAIRS[2][0]}", load(runs / "translator")
    expected = {
        deepl.SplitSentences.OFF: ours.translate(text.replace("\n", " "), split="never"),
        deepl.SplitSentences.NO_NEWLINES: ours.translate(text.replace("\n", " "), split="always"),
        deepl.SplitSentences.ALL: "\n".join(ours.translate(text.split("\n"), split="always")),
    }
    assert len(set(expected.values())) == 3
    for mode, translation in expected.items():
        result = translator.translate_text(text, source_lang="PT", target_lang="EN-US", split_sentences=mode)
        assert result.text == translation


def test_libretranslate_html(client, plain):
    answer = client.post("/translate", json={"q": f"<p>{MARKED}</p>", "source": "pt", "target": "en", "format": "html"})
    result = answer.json()["translatedText"]
    assert "warning" not in answer.headers
    assert untagged(result) == plain
    assert result.startswith("<p>")
    several = client.post("/translate", json={"q": [MARKED, "<i></i>", ""], "target": "en", "format": "html"}).json()
    assert several["translatedText"][1:] == ["<i></i>", ""]


def test_glossaries_of_deepl(translator, client):
    glossary = translator.create_glossary("animals", "PT", "EN", {"gato": "tomcat"})
    assert glossary.ready
    assert glossary.entry_count == 1
    assert translator.get_glossary_entries(glossary) == {"gato": "tomcat"}
    assert [one.glossary_id for one in translator.list_glossaries()].count(glossary.glossary_id) == 1
    result = translator.translate_text(LINE, source_lang="PT", target_lang="EN-US", glossary=glossary).text
    assert "tomcat" in result
    tagged = translator.translate_text(
        MARKED, source_lang="PT", target_lang="EN-US", glossary=glossary, tag_handling="html"
    ).text
    assert "<b>tomcat</b>" in tagged
    with pytest.raises(deepl.DeepLException, match="comes twice"):
        translator.create_glossary_from_csv("x", "PT", "EN", "a,b\na,c\n")
    limit = csv.field_size_limit(1000)
    with pytest.raises(deepl.DeepLException, match="field larger than field limit"):
        translator.create_glossary_from_csv("x", "PT", "EN", "a," + "b" * 1001)
    csv.field_size_limit(limit)
    half = {"name": "x", "source_lang": "PT", "target_lang": "EN", "entries": "a\t\ud800", "entries_format": "tsv"}
    answer = client.post("/v2/glossaries", content=json.dumps(half), headers={"content-type": "application/json"})
    assert answer.status_code == 422
    with pytest.raises(deepl.DeepLException, match="There is no translation from de to en"):
        translator.create_glossary("x", "DE", "EN", {"a": "b"})
    translator.delete_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException):
        translator.get_glossary(glossary.glossary_id)


def test_the_glossary_of_a_server_is_for_every_request(client, openai, service, monkeypatch):
    """Requests whose sentences cannot enter slots, or that have settings of their own, are translated with it too."""
    name, one = next(iter(service.runs.items()))
    monkeypatch.setattr(one.predictor, "glossary", Glossary({"gato": "tomcat"}))
    for text in (f"{LINE}\n\n{PAIRS[1][0]}", LINE, f"{LINE} {'e ' * 70}"):
        answer = client.post("/translate", json={"q": text, "target": "en", "alternatives": 2})
        assert "tomcat" in answer.json()["translatedText"], answer.text
    for options in ({"n": 2}, {"temperature": 1.0, "seed": 1}, {"max_tokens": 8}):
        chat = openai.chat.completions.create(model=name, messages=[{"role": "user", "content": LINE}], **options)
        assert all("tomcat" in choice.message.content for choice in chat.choices), options
    page = client.get(f"/page/{name}").text
    assert '"glossary":[["gato","tomcat"]]' in page


def test_alternatives_are_of_the_same_text(client, plain):
    for form, text in (("html", f"<p>{MARKED}</p>"), ("text", f"{LINE}\n{LINE}"), ("text", LINE)):
        answer = client.post(
            "/translate", json={"q": text, "source": "pt", "target": "en", "format": form, "alternatives": 3}
        ).json()
        texts = [answer["translatedText"], *answer["alternatives"]]
        assert len(set(texts)) == len(texts) >= 2
        for one in texts:
            assert one.count("<p>") == one.count("<b>") == (form == "html")
            assert one.count("\n") == text.count("\n")


def test_multilingual_glossaries_of_deepl(translator):
    entries = MultilingualGlossaryDictionaryEntries("PT", "EN", {"gato": "tomcat"})
    made = translator.create_multilingual_glossary("animals", [entries])
    more = MultilingualGlossaryDictionaryEntries("PT", "EN", {"vaca": "cow"})
    translator.update_multilingual_glossary_dictionary(made.glossary_id, more)
    got = translator.get_multilingual_glossary_entries(made.glossary_id, "PT", "EN")
    assert got.dictionaries[0].entries == "gato\ttomcat\nvaca\tcow"
    translator.replace_multilingual_glossary_dictionary(made.glossary_id, more)
    assert translator.get_multilingual_glossary(made.glossary_id).dictionaries[0].entry_count == 1
    translator.delete_multilingual_glossary_dictionary(made.glossary_id, source_lang="PT", target_lang="EN")
    translator.delete_multilingual_glossary(made.glossary_id)
    assert made.glossary_id not in {one.glossary_id for one in translator.list_multilingual_glossaries()}


def test_documents_of_deepl(translator, plain):
    out = io.BytesIO()
    page = f"<p>{LINE}</p><p>{MARKED}</p>"
    status = translator.translate_document(page, out, source_lang="PT", target_lang="EN-US", filename="a.html")
    assert status.done
    assert out.getvalue().decode().startswith(f"<p>{plain}</p><p>")
    document, content, out = docx.Document(), io.BytesIO(), io.BytesIO()
    document.add_paragraph(LINE)
    document.save(content)
    translator.translate_document(content.getvalue(), out, source_lang="PT", target_lang="EN-US", filename="a.docx")
    assert docx.Document(out).paragraphs[0].text == plain
    with pytest.raises(deepl.DeepLException, match="cannot be translated"):
        translator.translate_document(b"%PDF", out, target_lang="EN-US", filename="a.pdf")


def test_files_of_libretranslate(client, plain):
    files = {"file": ("a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{LINE}\n")}
    answer = client.post("/translate_file", files=files, data={"source": "pt", "target": "en"})
    assert answer.status_code == 200, answer.text
    content = client.get(answer.json()["translatedFileUrl"])
    assert content.text == f"1\n00:00:01,000 --> 00:00:02,000\n{plain}\n"
    assert client.get(answer.json()["translatedFileUrl"] + "0").status_code == 404
    assert ".docx" in client.get("/frontend/settings").json()["supportedFilesFormat"]
    for data, sent, status in (
        ({"source": "pt"}, files, 422), ({"target": "en"}, {"file": ("a.pdf", b"%PDF")}, 400),
        ({"target": "en"}, {"other": ("a.srt", b"")}, 422), ({"target": "en"}, {"file": ("a.docx", b"PK")}, 400),
    ):  # fmt: skip
        assert client.post("/translate_file", files=sent, data=data).status_code == status
    assert client.post("/translate_file", json={}).status_code == 415
    assert client.post("/suggest", data={"q": LINE, "s": "x", "source": "pt", "target": "en"}).status_code == 403


def test_languages_are_detected(client, address):
    from libretranslatepy import LibreTranslateAPI

    answer = client.post("/detect", json={"q": "o gato bebe leite com as crianças"}).json()
    assert answer[0]["language"] == "pt"
    assert answer[0]["confidence"] > 90
    assert LibreTranslateAPI(address).detect("the children drink milk")[0]["language"] == "en"
    assert detect_languages("Die Kinder trinken Milch", ["de", "en", "fr"])[0][0] == "de"
    assert detect_languages("a", ["xx", "yy"]) == [("xx", 0.0), ("yy", 0.0)]
    assert detect_languages("a", []) == []
    document = docx.Document()
    for _ in range(3):
        document.add_paragraph("Die Kinder trinken Milch und essen Kuchen.")
    content = io.BytesIO()
    document.save(content)
    assert detect_languages(sample_of(content.getvalue(), "a.docx"), ["de", "en"])[0][0] == "de"


def test_a_language_is_recognised_by_all_texts_without_their_tags(client):
    """Guards against names of tags and attributes, which are English, and an empty first text."""
    tagged = '<div class="product-description"><span style="color:red">Hallo</span></div>'
    assert completed(sample_of_texts([tagged], Markup("html"))).split() == ["Hallo"]
    assert completed(sample_of_texts(["", "Die Kinder", "x" * 2000, "y"])) == f"\nDie Kinder\n{'x' * 988}"
    for source in ("auto", "AUTO"):
        answer = client.post("/translate", json={"q": ["", "o gato"], "target": "en", "source": source}).json()
        assert [each["language"] for each in answer["detectedLanguage"]] == ["pt", "pt"]


def test_calls_of_weblate(client):
    """The requests of Weblate 2026.10's machinery for DeepL and LibreTranslate, and the fields that it reads."""
    languages = client.get("/v3/languages", params={"resource": "translate_text"}).json()
    assert {one["lang"] for one in languages if one["usable_as_source"]} == {"pt"}
    assert client.get("/v3/languages", params={"resource": "write"}).status_code == 404
    made = client.post("/v3/glossaries", json={"name": "weblate", "dictionaries": [
        {"source_lang": "pt", "target_lang": "en", "entries": "gato\ttomcat", "entries_format": "tsv"}]})  # fmt: skip
    assert made.status_code == 201
    [listed] = [one for one in client.get("/v3/glossaries").json()["glossaries"] if one["name"] == "weblate"]
    answer = client.post("/v2/translate", json={
        "text": ['o gato bebe <x id="12"></x> &lt;'], "source_lang": "PT", "target_lang": "EN", "tag_handling": "xml",
        "ignore_tags": ["x"], "glossary_id": listed["glossary_id"], "formality": "prefer_less", "context": "a menu",
    })  # fmt: skip
    [translation] = answer.json()["translations"]
    assert translation["text"].count('<x id="12"></x>') == 1
    assert "tomcat" in translation["text"]
    assert client.patch(f"/v3/glossaries/{listed['glossary_id']}", json={"name": "other"}).json()["name"] == "other"
    assert client.delete(f"/v3/glossaries/{listed['glossary_id']}").status_code == 204
    several = client.post(
        "/translate", json={"api_key": "", "q": ["o gato [X5X]", LINE], "source": "pt", "target": "en"}
    )
    assert len(several.json()["translatedText"]) == 2


def test_the_oldest_glossary_is_forgotten(monkeypatch):
    monkeypatch.setattr(Glossaries, "LIMIT", 2)
    glossaries = Glossaries()
    made = [glossaries.add(str(number)).id for number in range(3)]
    assert [one.id for one in glossaries.all()] == made[1:]


def test_elements_that_text_adjoins_are_inline(service):
    one = service.translators[0]
    text = "<doc><t>o gato <k>bebe</k> leite</t><t>o rei</t></doc>"
    assert pieces_of(one, text, Markup("xml")).texts == ["o gato bebe leite", "o rei"]
    assert pieces_of(one, text, Markup("xml", splitting=("k",))).texts == ["o gato", "bebe", "leite", "o rei"]


def test_openapi_describes_all_paths(client):
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for path, method in (
        ("/translate", "post"), ("/v2/translate", "post"), ("/v1/chat/completions", "post"), ("/detect", "post"),
        ("/v3/glossaries/{id}", "patch"), ("/v2/document/{id}/result", "post"), ("/livez", "get"),
    ):  # fmt: skip
        assert method in document["paths"][path]
    body = document["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-www-form-urlencoded"}
    assert body["application/json"]["schema"]["required"] == ["text", "target_lang"]
    upload = document["paths"]["/translate_file"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert upload["schema"]["properties"]["file"] == {"type": "string", "format": "binary"}
    assert document["paths"]["/detect"]["post"]["summary"] == "Recognise the language of texts"


def test_chats_keep_markup(client, plain):
    fields = {"model": "run", "messages": [{"role": "user", "content": f"{MARKED}\n{LINE} {{x}}"}]}
    whole = client.post("/v1/chat/completions", json=fields).json()["choices"][0]["message"]["content"]
    assert untagged(whole).startswith(f"{plain}\n")
    assert whole.count("<b>") == whole.count("</b>") == whole.count("{x}") == 1
    limited = client.post("/v1/chat/completions", json=fields | {"max_tokens": 2}).json()
    assert limited["choices"][0]["message"]["content"].count("</b>") == 1
    stream = client.post("/v1/chat/completions", json=fields | {"stream": True}).text
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == whole


def test_a_stream_has_no_echo(client):
    """It was accepted, and ignored."""
    refused = client.post("/v1/completions", json={"model": "run", "prompt": LINE, "stream": True, "echo": True})
    assert refused.status_code == 422
    assert "no echo" in refused.text
