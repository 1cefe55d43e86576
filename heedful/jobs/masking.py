"""The masked-token job: an encoder that learns language by filling gaps."""

from heedful.data.documents import encode_texts
from heedful.data.examples import plan_pieces
from heedful.data.masking import MaskedExamples, in_pieces
from heedful.errors import InputError
from heedful.evaluation import TokenScores
from heedful.jobs.documents import DocumentsJob, text_tokenizer
from heedful.jobs.job import SCORED_TOKENS
from heedful.reading.filler import NO_HEAD
from heedful.scores.passport import keep

# What is hidden in validation and test text hangs on a seed and on the batches: both are the same for all runs.
ASKED = {"seed": 0, "batch_tokens": SCORED_TOKENS, "max_shapes": 4}


class MaskingJob(DocumentsJob):
    """Trains a `MaskedLM` on documents; validation always asks for the same tokens."""

    @staticmethod
    def prepare(config, corpora):
        if config.model.untrained_head:
            raise InputError("model.untrained_head is for imported encoders: a training trains the head.")
        return config, [text_tokenizer(config, corpora["train"], mask=True)]

    def read_examples(self):
        texts = self.encoded("train")
        self.report(f"training text: {texts}")
        data = self.config.data
        return masked(
            self.run, texts, seed=self.config.train.seed, batch_tokens=data.batch_tokens,
            batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        )  # fmt: skip

    def scored_examples(self, part):
        return masked(self.run, self.encoded(part), **ASKED)

    def start(self, model):
        self.engine = model
        self._token_scores = TokenScores(model, self.scored["valid"])

    def validate(self):
        scores = self._token_scores()
        del scores["tokens"]  # the same at every validation
        return scores

    @staticmethod
    def evaluate(run, corpus, engine=None):
        if run.config.model.untrained_head:
            raise InputError(NO_HEAD)
        texts = encode_texts(corpus, run.tokenizer)
        sums = TokenScores(engine or run.load_model(), masked(run, texts, **ASKED)).sums()
        units = {"loss": sums[:, [0, 2]], "accuracy": sums[:, [1, 2]]}
        return keep(run, corpus, TokenScores.summary(sums), units)

    @staticmethod
    def describe(scores):
        return (
            f"loss {scores['loss']:.4f} nats per masked token  perplexity {scores['perplexity']:.3f}  "
            f"{scores['accuracy']:.2%} found  of {scores['tokens']:,} masked tokens"
        )


def masked(run, texts, *, seed, **batches):
    """Return encoded texts as the masked examples that a run's config asks for; `batches` as of `plan_pieces`."""
    data = run.config.data
    pieces = in_pieces(texts.ids, data.max_tokens)
    plan = plan_pieces(pieces, seed=seed, **batches)
    return MaskedExamples(pieces, run.tokenizer, plan, data.mask_share, data.whole_words, seed)
