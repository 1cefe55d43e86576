"""The language-model job: a model that continues text."""

import math

import numpy as np

from heedful.config import DecodeConfig
from heedful.data.documents import encode_texts
from heedful.data.language import PackedDocuments, Windows, as_stream
from heedful.data.tokenizer import END_ID
from heedful.errors import InputError
from heedful.evaluation import TokenScores
from heedful.generation.generator import Generator
from heedful.jobs.documents import DocumentsJob, text_tokenizer
from heedful.scores.passport import keep

SAMPLE_TOKENS = 200  # length of the sample text at a validation


class LanguageJob(DocumentsJob):
    """Trains a `CausalLM` on documents; validation writes a sample text."""

    @staticmethod
    def prepare(config, corpora):
        return config, [text_tokenizer(config, corpora["train"])]

    def read_examples(self):
        texts = self.encoded("train")
        self.report(f"training text: {texts}")
        if self.config.data.packing == "stream" and len(texts.ids.flat) <= self.config.data.max_tokens:
            raise InputError(
                f"{self.corpora['train'].name} has {len(texts.ids.flat):,} tokens, fewer than one window "
                f"(data.max_tokens = {self.config.data.max_tokens}) and the token behind it."
            )
        return examples_of(self.config, texts)

    def scored_examples(self, part):
        return examples_of(self.config, self.encoded(part))

    def start(self, model):
        starts, decode = self.config.data.packing == "documents", self.config.decode
        drawn = DecodeConfig(
            sample=True, max_length=SAMPLE_TOKENS, batch_size=1, temperature=decode.temperature, top_k=decode.top_k,
            top_p=decode.top_p, min_p=decode.min_p, seed=decode.seed,
        )  # fmt: skip
        self.engine = model
        self._generator = Generator(model, self.run.tokenizer, drawn, starts)
        valid = self.encoded("valid")
        self._scores = TextScores(model, valid, self.scored["valid"], self.run.tokenizer)
        self._prompt = self.config.train.prompt
        if not starts and not self.run.tokenizer.encode(self._prompt):  # such as a line feed where words are tokens
            known = valid.ids.flat[valid.ids.flat > END_ID]
            self._prompt = self.run.tokenizer.decode([known[0] if len(known) else END_ID + 1])

    def validate(self):
        self._generator.refresh()
        sample = self._generator.generate(self._prompt)
        scores = self._scores()
        del scores["tokens"]  # the same at every validation
        return scores | {"samples": [sample]}

    @staticmethod
    def evaluate(run, corpus, engine=None):
        texts = encode_texts(corpus, run.tokenizer)
        scorer = TextScores(engine or run.load_model(), texts, examples_of(run.config, texts), run.tokenizer)
        sums = scorer.sums()
        scores = scorer.summary(sums)  # which refuses a text with nothing to score
        nats, tokens = sums[:, 0], sums[:, 2]
        units = {"loss": np.stack([nats, tokens], 1)}
        if scorer.keeps_text:
            text_bytes = tokens * scorer.text_bytes / tokens.sum()  # each batch's share of them
            units["bits_per_byte"] = np.stack([nats, text_bytes], 1)
        return keep(run, corpus, scores, units)

    @staticmethod
    def describe(scores):
        bits = f"{scores['bits_per_byte']:.4f} bits per byte  " if "bits_per_byte" in scores else ""
        return (
            f"loss {scores['loss']:.4f} nats per token  perplexity {scores['perplexity']:.3f}  {bits}"
            f"on {scores['tokens']:,} tokens"
        )


def examples_of(config, texts):
    """Return encoded texts as the examples that a config asks for."""
    data = config.data
    rows = data.batch_sentences or max(1, data.batch_tokens // data.max_tokens)
    if data.packing == "documents":
        return PackedDocuments(texts, data.max_tokens, rows, config.train.seed)
    return Windows(as_stream(texts), data.max_tokens, rows, config.train.seed)


class TextScores:
    """Loss, perplexity, accuracy and bits per byte of a language model on texts, over every token once.

    Args:
        model: a `CausalLM`.
        texts: `EncodedTexts`.
        examples: the windows that they became; each token sees what its window holds before it.
        tokenizer: that made the texts.
    """

    def __init__(self, model, texts, examples, tokenizer):
        self.text_bytes = texts.text_bytes
        self.keeps_text = tokenizer.keeps_text and not np.any(np.asarray(texts.ids.flat) == tokenizer.unknown_id)
        self._token_scores = TokenScores(model, examples)

    def __call__(self):
        """Return what `summary` says of all batches."""
        return self.summary(self.sums())

    def sums(self):
        """Return nats, tokens found and tokens of each batch (B, 3)."""
        return self._token_scores.sums()

    def summary(self, sums):
        """Return loss (nats per token), perplexity, accuracy, tokens, and bits_per_byte if the tokens keep the text.

        The last compares models with different vocabularies: all nats of a text, divided once by its bytes. What lower
        case or an unknown word leaves out has bytes, but no nats: there it would say nothing.
        """
        scores = TokenScores.summary(sums)
        if self.keeps_text:
            scores["bits_per_byte"] = sums[:, 0].sum() / math.log(2) / self.text_bytes
        return scores
