"""Terms of a glossary in the translations of a run: how many come out, and what they cost in BLEU.

    python -m benchmarks.terms RUN [--count 200] [--glossary terms.tsv]

The terms are words of the test text that mostly have one translation in the training text, by word alignment. The
references have a part of them only: even such words have several translations and forms, and the glossary knows one.
So the terms that a reference has are measured by themselves, too, as in test sets of terminology.
"""

import argparse
import collections
import re
from pathlib import Path

import sacrebleu

from heedful.data.corpus import Corpus
from heedful.data.glossary import Glossary
from heedful.data.word_alignment import aligned_both_ways
from heedful.inference.translator import Translator
from heedful.runs.run import Run
from heedful.tasks.translation_data import corpora

SHORTEST = 4  # letters of a term
FREQUENT = 50  # words, mostly without a meaning of their own, that are no terms
OCCURRENCES, AGREEMENT = 10, 0.5  # in the training text, at least; share of them with the same translation


class TermsOfReferences(Glossary):
    """A glossary of which each source has only the terms whose translations are in its reference."""

    references: dict[str, str]

    def occurrences(self, text: str) -> list[tuple[int, int, str]]:
        """Return the terms of a source that its reference has, as a whole word or its beginning."""
        known = [word.casefold() for word in words(self.references.get(text, ""))]
        return [one for one in super().occurrences(text) if any(word.startswith(one[2].casefold()) for word in known)]


def words(text: str) -> list[str]:
    """Return the words of a text, without punctuation marks."""
    return re.findall(r"[^\W\d_]+", text)


def terms_of(training: Corpus, sources: list[str], count: int) -> dict[str, str]:
    """Return the most frequent words of `sources` that mostly have one translation in a training text, and that."""
    pairs = [(words(source), words(target)) for source, target, *_ in training]
    links: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for (source, target), linked in zip(pairs, aligned_both_ways(pairs, len(pairs)), strict=True):
        for s, t in linked:
            links[source[s]][target[t]] += 1
    known = collections.Counter(word for source, _ in pairs for word in source)
    frequent = {word for word, _ in known.most_common(FREQUENT)}
    asked = collections.Counter(word for source in sources for word in words(source))
    terms = {}
    for word, _ in asked.most_common():
        total = links[word].total()
        if len(word) < SHORTEST or word in frequent or total < OCCURRENCES:
            continue
        [(translation, same)] = links[word].most_common(1)
        if same >= AGREEMENT * total and len(terms) < count:
            terms[word] = translation
    return terms


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=200, help="terms of the glossary")
    parser.add_argument("--glossary", type=Path, help="where to write it")
    options = parser.parse_args()
    run = Run.open(options.run)
    training, test = (corpora(run.config)[part] for part in ("train", "test"))
    sources, references = (list(side) for side in zip(*(row[:2] for row in test), strict=True))
    glossary = Glossary(terms_of(training, sources, options.count))
    if options.glossary:
        lines = (f"{term}\t{result}\n" for term, result in glossary.terms.items())
        options.glossary.write_text("".join(lines), encoding="utf-8")
    translator = Translator.from_run(run)
    form = run.target_tokenizer.normalized
    references = [form(reference) for reference in references]
    of_references = TermsOfReferences(glossary.terms)
    of_references.references = dict(zip(sources, references, strict=True))
    without = translator.translate(sources, split="never")
    with_those = translator.translate(sources, glossary=of_references, split="never")
    rows = [
        ("references", glossary, references),
        ("without", glossary, without),
        ("with all terms", glossary, translator.translate(sources, split="never", glossary=glossary)),
        ("without", of_references, without),
        ("with those of references", of_references, with_those),
    ]
    for name, glossary, texts in rows:
        counts = [glossary.kept(*pair) for pair in zip(sources, texts, strict=True)]
        wanted, kept = (sum(side) for side in zip(*counts, strict=True))
        bleu, chrf = (metric(texts, [references]).score for metric in (sacrebleu.corpus_bleu, sacrebleu.corpus_chrf))
        share = f"{kept:,} of {wanted:,} terms ({kept / max(1, wanted):.2%})"
        print(f"{name:26s} {share}  BLEU {bleu:.2f}  chrF {chrf:.2f}")


if __name__ == "__main__":
    main()
