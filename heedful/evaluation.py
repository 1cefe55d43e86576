"""How good a model is: scores of text with their signatures, and loss over tokens."""

import math

import numpy as np
import sacrebleu

from heedful import backend
from heedful.errors import InputError
from heedful.training.objective import batch_sums


def score_text(hypotheses, references, lowercase=False):
    """Compare translations with references, one reference a sentence.

    Args:
        hypotheses, references: lists of text.
        lowercase: whether case does not count; the signatures say so.

    Returns:
        bleu and chrf (0 to 100, sacrebleu, with `signatures`), and `exact`, the share of identical sentences.
    """
    bleu, chrf = sacrebleu.BLEU(lowercase=lowercase), sacrebleu.CHRF(lowercase=lowercase)
    made, wanted = ([line.lower() if lowercase else line for line in lines] for lines in (hypotheses, references))
    scores = {
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "exact": sum(map(str.__eq__, made, wanted)) / len(references),
    }
    return scores | {"signatures": {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}}


def class_scores(found, wanted, labels):
    """Compare the classes `found` with those `wanted`, both numbers (N,).

    Returns:
        accuracy, macro_f1 (the mean over the classes that occur, found or wanted), f1 by label, texts, and confusion:
        for each wanted class how often each was found.
    """
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (wanted, found), 1)
    right, either = confusion.diagonal(), confusion.sum(0) + confusion.sum(1)
    f1 = {label: float(2 * hits / total) for label, hits, total in zip(labels, right, either, strict=True) if total}
    return {
        "accuracy": float(right.sum() / len(wanted)),
        "macro_f1": sum(f1.values()) / len(f1),
        "f1": f1,
        "texts": len(wanted),
        "confusion": confusion.tolist(),
    }


class TokenScores:
    """Loss, perplexity and accuracy of a model on examples: summed over all tokens, divided once.

    Args:
        model: of any family.
        examples: whose `finite()` gives batches with labels and weights.
    """

    def __init__(self, model, examples):
        self.examples = examples
        self._sums = backend.compiled(lambda batch: batch_sums(model, batch), model)

    def __call__(self):
        """Return what `summary` says of all batches."""
        return self.summary(self.sums())

    def sums(self):
        """Return nats of negative log-likelihood, tokens found and tokens of each batch (B, 3)."""
        return np.array([backend.to_numpy(self._sums(batch))[1:] for batch in self.examples.finite()], float)

    @staticmethod
    def summary(sums):
        """Return loss (negative log-likelihood in nats per token, not smoothed), perplexity, accuracy and tokens.

        Raises:
            InputError: no token counts.
        """
        nll, right, tokens = sums.sum(0) if len(sums) else np.zeros(3)
        if not tokens:
            raise InputError("There is nothing to score: the text has no token that counts.")
        loss = nll / tokens
        perplexity = math.exp(min(loss, 700))
        return {"loss": loss, "perplexity": perplexity, "accuracy": right / tokens, "tokens": int(tokens)}
