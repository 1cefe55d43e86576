"""Compute BLEU of a multi30k-en-de-tiny run as papers on Multi30k do, and sacrebleu's BLEU of the same text.

    HEEDFUL_DATA=... python benchmarks/published.py RUN

The papers lower-case and Moses-tokenise both translations and references (here with sacremoses, from PyPI), and compute
BLEU of these tokens. A published transformer_tiny reached 41.02 on test_2016_flickr.
"""

import argparse
from pathlib import Path

import sacrebleu

from heedful.core.memory import keep_freed_memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    import heedful
    from heedful import backend
    from heedful.runs.run import Run
    from heedful.tasks.translation_data import corpora
    from heedful.training.evaluation import score_text

    backend.keep_compilations()
    config = Run.open(options.run).config
    sources, references = zip(*corpora(config)["test"], strict=True)
    made = heedful.load(options.run).translate(list(sources))
    normalize, tokenize = MosesPunctNormalizer(lang="de").normalize, MosesTokenizer(lang="de").tokenize

    def tokens(lines):
        return [tokenize(normalize(line.lower()), return_str=True, escape=False) for line in lines]

    score = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(tokens(made), [tokens(references)])
    usual = score_text(made, list(references), lowercase=True)
    print(f"beam {config.decode.beam_size}, sacrebleu {usual['bleu']:.2f} ({usual['signatures']['bleu']})")
    print(f"BLEU of lower-cased tokens on test_2016_flickr: {score.score:.2f} (a published baseline: 41.02)")


if __name__ == "__main__":
    main()
