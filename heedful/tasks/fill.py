"""Masked language modelling: an encoder-only model that predicts masked tokens."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import Config, DecodeConfig
from heedful.core.errors import InputError
from heedful.core.progress import Report
from heedful.core.special_tokens import END_ID, FIRST_ID, MASK, START_ID
from heedful.data.corpus import Corpus
from heedful.data.documents import EncodedTexts, encode_texts
from heedful.data.examples import Examples, plan_pieces
from heedful.data.masking import MaskedExamples, in_pieces
from heedful.data.tokenizer import Tokenizer
from heedful.tasks.documents import DocumentsTask, encoded, first_line, text_tokenizer
from heedful.tasks.start import starting_point
from heedful.tasks.task import SCORED_TOKENS, Corpora, Validator

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.runs.run import Run

# The masking of validation and test text depends on the seed and the batches, so these are the same for all runs.
SCORED = {"seed": 0, "batch_tokens": SCORED_TOKENS, "max_shapes": 4}
MASKING_VERSION = 2  # increase it if other tokens of the same text are masked
EXAMPLE_WORDS = 20  # words of an example
CHANCE = 4  # labels of a small batch that may stay visible beyond the expected tenth


class Fill(DocumentsTask):
    """Trains a `MaskedLM` on documents; every validation masks the same tokens."""

    name = "fill"
    hub_task = "fill-mask"
    scored_by_token = embeds = True
    page = "fill"

    def text_of(self, item: str) -> str:
        words = first_line(item).split(" ")[:EXAMPLE_WORDS]
        if len(words) > 1:
            words[len(words) // 2] = MASK
        return " ".join(words)

    def check_config(self, config: Config) -> None:
        require_three_tokens(config)

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        if config.model.untrained_head:
            raise InputError("model.untrained_head is for imported encoders: a training trains the head.")
        if config.train.init_from:
            start = starting_point(config)
            return start.config, start.tokenizers()
        return config, [text_tokenizer(config, corpora["train"], mask=True)]

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        texts = encoded(run, corpora["train"])
        report(f"training text: {texts}")
        data = run.config.data
        return masked(
            run, texts, seed=run.config.train.seed, batch_tokens=data.batch_tokens,
            batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        )  # fmt: skip

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        return masked(run, encoded(run, corpora[part]), **SCORED)

    def build_model(self, run: "Run", **options: Any) -> "keras.Model":
        from heedful.models import MaskedLM

        return MaskedLM(len(run.tokenizer), **options)

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        from heedful.inference.mask_filler import MaskFiller

        return MaskFiller.from_run(runs[0])

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        from heedful.inference.mask_filler import MaskFiller

        return TokenValidator(MaskFiller(model, run.tokenizer), scored["valid"])

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        from heedful.inference.mask_filler import NO_HEAD
        from heedful.runs.scores.provenance import save_scores
        from heedful.training.evaluation import TokenScores

        if run.config.model.untrained_head:
            raise InputError(NO_HEAD)
        texts = encode_texts(corpus, run.tokenizer)
        predictor = predictor or self.predictor([run])
        sums = TokenScores(predictor.model, masked(run, texts, **SCORED)).sums()
        counts = {"loss": sums[:, [0, 2]], "accuracy": sums[:, [1, 2]]}
        return save_scores(run, corpus, TokenScores.summary(sums), counts)

    def describe(self, scores: Mapping[str, Any]) -> str:
        return (
            f"loss {scores['loss']:.4f} nats per masked token  perplexity {scores['perplexity']:.3f}  "
            f"{scores['accuracy']:.2%} found  of {scores['tokens']:,} masked tokens"
        )

    def scored_settings(self, config: Config) -> dict[str, Any]:
        data = config.data
        masking = {"mask_share": data.mask_share, "whole_words": data.whole_words, "max_tokens": data.max_tokens}
        return masking | {"hidden": MASKING_VERSION}

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        whole = random_text(run, random, rows, length)
        places = np.sort(random.permuted(np.tile(np.arange(1, length - 2), (rows, 1)), axis=1)[:, :3], axis=1)
        batch = {"ids": whole.copy(), "places": places, "labels": np.take_along_axis(whole, places, axis=1)}
        np.put_along_axis(batch["ids"], places, run.tokenizer.mask_id, axis=1)
        return batch

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        shown = np.take_along_axis(batch["ids"], batch["places"], axis=1)
        visible = (shown == batch["labels"])[batch["weights"] > 0]  # a tenth is expected
        return float(visible.sum() > max(len(visible) / 2, len(visible) / 10 + CHANCE))


class TokenValidator(Validator):
    """Measures the loss and accuracy of labels on a corpus.

    Args:
        predictor: uses the model in training.
        scored: the examples of the corpus.
    """

    def __init__(self, predictor: "Predictor", scored: Examples):
        from heedful.training.evaluation import TokenScores

        self.predictor = predictor
        self._token_scores = TokenScores(predictor.model, scored)

    def __call__(self) -> dict[str, Any]:
        scores = self._token_scores()
        del scores["tokens"]  # the same at every validation
        return scores


def require_three_tokens(config: Config) -> None:
    """Refuse a config that leaves no room for a token between start and end."""
    if config.data.max_tokens < 3:
        raise InputError(
            f"data.max_tokens ({config.data.max_tokens}) must leave room for a token between start and end."
        )


def random_text(run: "Run", random: np.random.Generator, rows: int, length: int) -> np.ndarray:
    """Return random ids between start and end tokens (rows, length)."""
    ids = random.integers(FIRST_ID, len(run.tokenizer), (rows, length), dtype=np.int32)
    begin, end = np.full((rows, 1), START_ID, np.int32), np.full((rows, 1), END_ID, np.int32)
    return np.concatenate([begin, ids[:, 2:], end], axis=1)


def masked(run: "Run", texts: EncodedTexts, *, seed: int, **batches: Any) -> Examples:
    """Return encoded texts as masked examples by a run's config; `batches` are options of `plan_pieces`."""
    data = run.config.data
    pieces = in_pieces(texts.ids, data.max_tokens)
    plan = plan_pieces(pieces, seed=seed, **batches)
    return MaskedExamples(pieces, run.tokenizer, plan, data.mask_share, data.whole_words, seed)
