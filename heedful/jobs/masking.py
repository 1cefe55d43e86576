"""The masked-token job: an encoder that learns language by filling gaps."""

from heedful.data.documents import encode_texts
from heedful.data.examples import plan_pieces
from heedful.data.masking import MaskedExamples, in_pieces
from heedful.errors import InputError
from heedful.evaluation import TokenScores
from heedful.jobs.job import Job, cache_folder
from heedful.jobs.language import documents, text_tokenizer
from heedful.scores.passport import keep

ASKED = 0  # seed of the tokens that are hidden in validation and test text: the same for all runs


class MaskingJob(Job):
    """Trains a `MaskedLM` on documents; validation always asks for the same tokens."""

    find_corpora = staticmethod(documents)

    @staticmethod
    def prepare(config, corpus):
        return config, [text_tokenizer(config, corpus, mask=True)]

    def read_examples(self):
        texts = self._encode("train")
        self.report(f"training text: {texts}")
        return examples_of(self.run, texts, self.config.train.seed)

    def start(self, model):
        self._token_scores = TokenScores(model, examples_of(self.run, self._encode("valid"), ASKED))

    def validate(self):
        scores = self._token_scores()
        del scores["tokens"]  # the same at every validation
        return scores

    def score_test(self, part, corpus):
        self.report(f"{part}: {describe(evaluate(self.run, corpus))}")

    def _encode(self, part):
        return encode_texts(self.corpora[part], self.run.tokenizer, cache_folder() / "encoded")


def examples_of(run, texts, seed):
    """Return encoded texts as masked examples, as the run's config asks for them."""
    data = run.config.data
    if data.max_tokens < 3:
        raise InputError(f"data.max_tokens ({data.max_tokens}) must leave room for a token between start and end.")
    pieces = in_pieces(texts.ids, data.max_tokens)
    plan = plan_pieces(
        pieces, batch_tokens=data.batch_tokens, batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        seed=seed,
    )  # fmt: skip
    return MaskedExamples(pieces, run.tokenizer, plan, data.mask_share, data.whole_words, seed)


def evaluate(run, corpus, model=None):
    """Score a masked language model on documents and add the result to the run's scores.json; return it."""
    texts = encode_texts(corpus, run.tokenizer)
    sums = TokenScores(model or run.load_model(), examples_of(run, texts, ASKED)).sums()
    units = {"loss": sums[:, [0, 2]], "accuracy": sums[:, [1, 2]]}
    return keep(run, corpus, TokenScores.summary(sums), units)


def describe(scores):
    """Return scores as a line."""
    return (
        f"loss {scores['loss']:.4f} nats per masked token  perplexity {scores['perplexity']:.3f}  "
        f"{scores['accuracy']:.2%} found  of {scores['tokens']:,} masked tokens"
    )
