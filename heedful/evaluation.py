"""How good a model is: scores of text with their signatures, and loss over tokens."""

import math

import numpy as np
import sacrebleu

from heedful import backend
from heedful.data.batches import BatchPlan
from heedful.data.examples import translation
from heedful.training.loss import projected_crossentropy


def score_text(hypotheses, references):
    """Compare translations with references, one reference a sentence.

    Returns:
        bleu and chrf (0 to 100, sacrebleu, with `signatures`), and `exact`, the share of identical sentences.
    """
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    scores = {
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "exact": sum(map(str.__eq__, hypotheses, references)) / len(references),
    }
    return scores | {"signatures": {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}}


class TokenScores:
    """Loss, perplexity and accuracy of a model on encoded pairs: summed over all tokens, divided once.

    Args:
        model: a `Transformer`.
        pairs: `EncodedPairs`.
        batch_tokens: tokens of a batch.
    """

    def __init__(self, model, pairs, batch_tokens=4096):
        self.pairs = pairs
        lengths = pairs.source.lengths + 1, pairs.target.lengths + 1
        self.plan = BatchPlan(*lengths, batch_tokens=batch_tokens, max_shapes=3)

        def sums(batch):
            table = model.output_projection.embeddings
            return projected_crossentropy(model.features(batch), table, batch["labels"], batch["weights"])

        self._sums = backend.compiled(sums, model)

    def __call__(self):
        """Return loss (negative log-likelihood in nats per token, without smoothing), perplexity and accuracy."""
        total = np.zeros(4)
        for shape, rows in self.plan.finite():
            total += backend.to_numpy(self._sums(translation(self.pairs, rows, shape.lengths)))
        _, nll, right, tokens = total
        return {"loss": nll / tokens, "perplexity": math.exp(min(nll / tokens, 700)), "accuracy": right / tokens}
