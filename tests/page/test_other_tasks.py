"""Pages of language models, mask fillers and classifiers: the same answers as heedful's predictors."""

import pytest

from heedful import load
from heedful.cli import main
from tests.page.conftest import page_of

pytestmark = pytest.mark.any_backend

ANSWER = """async (text) => {
  const model = window.heedful.model, source = await model.split({ text });
  let last;
  for await (last of model.write({ source: source.ids, tokens: 8 }));
  const { steps, maps } = await model.look({ source: source.ids, target: last.done.ids });
  return { text: last.done.text, steps, kinds: Object.keys(maps), cut: source.cut };
}"""


@pytest.fixture
def page_of_task(recipe_of, tmp_path, browser):
    """Return a function that trains a run of a task and opens its page."""
    import contextlib

    with contextlib.ExitStack() as stack:

        def opened(task, *options, text=None):
            run = tmp_path / "run"
            assert main(["train", str(recipe_of(task)), "--run", str(run)]) == 0
            example = ["--example", text] if text else []
            assert main(["page", str(run), str(tmp_path / "page.html"), "--type", "float32", *example, *options]) == 0
            return load(run), stack.enter_context(page_of(browser, tmp_path / "page.html"))

        yield opened


@pytest.mark.slow
def test_a_language_model_continues_a_prompt(page_of_task):
    text = "o gato"
    generator, page = page_of_task("generate", text=text)
    found = page.evaluate(ANSWER, text)
    assert text + found["text"] == generator.generate(text, max_length=8, beam_size=1, sample=False)
    assert found["kinds"] == ["decoder"]
    assert page.get_by_role("listbox").count() == 1
    assert page.get_by_role("tab", name="Beam search").count() == 1


@pytest.mark.slow
def test_a_mask_filler_predicts_each_mask(page_of_task):
    text = "o [MASK] bebe o [MASK]"
    filler, page = page_of_task("fill", text=text)
    want, found = filler.fill(text, 5), page.evaluate(ANSWER, text)
    for gap, step in zip(want.gaps, found["steps"], strict=True):
        assert [one["piece"] for one in step["top"][:5]] == [candidate.token for candidate in gap]
        probabilities = page.evaluate("(logps) => logps.map(Math.exp)", [one["logp"] for one in step["top"][:5]])
        assert probabilities == pytest.approx([candidate.probability for candidate in gap], abs=1e-5)
    assert page.locator(".target .word").count() == 2
    page.locator(".rivals button:not([aria-current])").first.click()
    page.get_by_role("button", name="Undo").click()


@pytest.mark.slow
def test_a_classifier_names_the_class_and_what_it_depends_on(page_of_task, tmp_path, capsys):
    text = "o gato bebe"
    classifier, page = page_of_task("classify", text=text)
    found = page.evaluate(ANSWER, text)
    label = classifier.classify(text)
    assert found["text"] == label.label
    assert page.evaluate("Math.exp", found["steps"][0]["logp"]) == pytest.approx(label.probability, abs=1e-5)
    assert page.locator(".big").inner_text() == label.label
    assert len(page.locator(".leans .removal .number").all_inner_texts()) >= 3
    assert page.get_by_role("tab", name="Beam search").count() == 0
    assert page.get_by_text("Terms", exact=True).count() == 0
    (tmp_path / "terms.tsv").write_text("gato\tcat\n", encoding="utf-8")
    assert main(["page", str(tmp_path / "run"), "--glossary", str(tmp_path / "terms.tsv")]) == 2
    assert "A glossary is for translators" in capsys.readouterr().err


def test_a_long_text_is_cut_and_the_page_says_so(page_of_task):
    _, page = page_of_task("classify", text="o gato " * 200)
    assert "longer than the model reads" in page.locator(".note").first.inner_text()
