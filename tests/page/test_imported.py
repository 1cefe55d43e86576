"""Pages of imported models: their tokenizers are those of other libraries."""

import numpy as np
import pytest

from heedful import load
from heedful.core.errors import InputError
from heedful.inspection.page.contents import contents_of
from heedful.interop.pretrained import import_model
from heedful.runs.run import Run
from tests.conftest import fast
from tests.page.conftest import page_of, write_document
from tests.page.test_engine import TEXTS, WRITE
from tests.test_pretrained import bert, gpt2, marian, opus  # noqa: F401 - fixtures

pytestmark = pytest.mark.any_backend

SPLIT = """async (texts) => {
  const out = [];
  for (const text of texts) out.push((await window.heedful.model.split({ text })).ids);
  return out;
}"""
SHORT = [text for text in TEXTS if len(text) < 20 and "[MASK]" not in text]  # which is a mask, where there are masks


@pytest.mark.parametrize("kind", fast(["opus", "gpt2", "marian", "bert"], 3))
def test_tokens_equal_those_of_the_library(kind, request, tmp_path, browser):
    """`opus` has the normalisation rules and the tokens of SentencePiece models."""
    folder = request.getfixturevalue(kind)
    import_model(folder[0] if isinstance(folder, tuple) else folder, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    page_contents = contents_of(run, "float32", ["a"])
    most = run.config.model.max_length
    with page_of(browser, write_document(tmp_path / "page.html", [page_contents])) as page:
        want = run.source_tokenizer.encode_batch(SHORT)
        for text, one, found in zip(SHORT, want, page.evaluate(SPLIT, SHORT), strict=True):
            assert found in (one[: len(found)], one[-len(found) :] if found else []), text
            assert len(found) >= min(len(one), most - 2), text


def test_an_imported_translator_writes_the_same(opus, tmp_path, browser):  # noqa: F811
    import_model(opus[0] if isinstance(opus, tuple) else opus, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    translator = load(tmp_path / "run")
    rng = np.random.default_rng(0)
    sources = [rng.integers(4, len(run.source_tokenizer), 6).tolist() for _ in range(5)]
    want = translator.decode_ids(sources, beam_size=1)
    with page_of(browser, write_document(tmp_path / "page.html", [contents_of(run, "float32", ["a"])])) as page:
        for source, ids in zip(sources, want, strict=True):
            assert page.evaluate(WRITE, [0, source, {"width": 1}])[0][0] == ids


def test_an_encoder_without_a_head_has_no_page(whole):
    import dataclasses

    run = Run.open(whole.path)
    run.config = dataclasses.replace(run.config, model=dataclasses.replace(run.config.model, untrained_head=True))
    with pytest.raises(InputError, match="without a head"):
        contents_of(run)
