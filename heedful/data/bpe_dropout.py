"""BPE-dropout: several segmentations of each text (Provilkov et al. 2020, section 3).

The library applies its own dropout with random numbers that cannot be seeded. Here a segmentation is a function of the
seed and the text, so that a training can be resumed exactly and its encoded text can be cached.
"""

import functools
import itertools
import json
import random
from collections.abc import Iterable, Sequence

import numpy as np

from heedful.core.errors import InputError
from heedful.data.tokenizer import Tokenizer

VERSIONS = 8  # segmentations of each text
OF_A_WORD = 16  # different draws of the segmentation of a word


class MergeDropout:
    """Segments words as BPE does, but skips each possible merge at each step with a probability.

    Args:
        tokenizer: a byte-level BPE.
        rate: the probability.
        seed: of the draws.

    Raises:
        InputError: the tokenizer is no BPE.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int):
        model = json.loads(tokenizer.to_json())["model"]
        if model["type"] != "BPE" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise InputError(f"data.bpe_dropout skips merges of a plain BPE; this tokenizer is a {model['type']}.")
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self.tokenizer, self.vocabulary, self.rate, self.seed = tokenizer, model["vocab"], rate, seed
        self._drawn = functools.lru_cache(maxsize=1 << 20)(self._draw)

    def versions(self, texts: Iterable[str], first: int) -> list[list[list[int]]]:
        """Return the ids of each text: the usual ones, then `VERSIONS` - 1 others.

        Args:
            texts: the texts.
            first: number of the first text in its corpus; a text's draws depend on its number.
        """
        words = self.tokenizer.words_of_batch(texts)
        return [[self._usual(text), *self._others(text, first + number)] for number, text in enumerate(words)]

    def _usual(self, text):
        return [token for _, ids in text for token in ids]

    def _others(self, text, number):
        draws = np.random.default_rng((self.seed, number)).integers(OF_A_WORD, size=(VERSIONS - 1, len(text)))
        for row in draws.tolist():
            yield [
                token for (word, ids), draw in zip(text, row, strict=True) for token in (self._drawn(word, draw) or ids)
            ]

    def _draw(self, word: str, draw: int) -> Sequence[int]:
        """Return the ids of a word in one of its segmentations; none if the vocabulary does not spell it."""
        chance = random.Random(f"{self.seed}/{draw}/{word}").random
        pieces = list(word)
        while True:
            possible = [
                (self.ranks[pair], place)
                for place, pair in enumerate(itertools.pairwise(pieces))
                if pair in self.ranks and chance() >= self.rate
            ]
            if not possible:
                break
            _, place = min(possible)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return tuple(self.vocabulary[piece] for piece in pieces) if self.vocabulary.keys() >= set(pieces) else ()
