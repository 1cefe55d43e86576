"""Generation: a decoder-only model that continues text."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import Config, DecodeConfig
from heedful.config.decode import DRAWING
from heedful.core.errors import InputError
from heedful.core.progress import Report
from heedful.core.special_tokens import END_ID, FIRST_ID
from heedful.data.corpus import Corpus
from heedful.data.documents import EncodedTexts, encode_texts
from heedful.data.examples import Examples
from heedful.data.language import PackedDocuments, Windows, as_stream
from heedful.data.tokenizer import Tokenizer
from heedful.runs.training_log import Sample
from heedful.tasks.documents import DocumentsTask, encoded, first_line, text_tokenizer
from heedful.tasks.start import starting_point
from heedful.tasks.suggestions import Given, Suggestion, TextFacts, batch_suggestion, model_suggestions
from heedful.tasks.task import Corpora, Probe, Validator
from heedful.tasks.translate import not_next

if TYPE_CHECKING:
    import keras

    from heedful.inference.predictor import Predictor
    from heedful.runs.run import Run

SAMPLE_TOKENS = 200  # length of the sample text of a validation
PROMPT_WORDS = 6  # words of an example prompt
CONTEXT, LONG_CONTEXT = 64, 256  # tokens, of a text without a recipe; the second on accelerators


class Generate(DocumentsTask):
    """Trains a `CausalLM` on documents; validation writes a sample text."""

    name = "generate"
    hub_task = "text-generation"
    compared_by = ("bits_per_byte", "loss")
    writes = True
    page = "generate"
    typical_recipe = "shakespeare-char-cpu"

    def text_of(self, item: str) -> str:
        return " ".join(first_line(item).split(" ")[:PROMPT_WORDS])

    def suggest(self, facts: TextFacts, given: Given) -> list[Suggestion]:
        context = given.get("data.max_tokens", LONG_CONTEXT if facts.accelerator else CONTEXT)
        context = min(context, given.get("model.max_length", context))
        return [
            *model_suggestions(facts, given), batch_suggestion(facts, given),
            Suggestion({"tokenizer.kind": "bpe"}, "subwords suit any text"),
            Suggestion({"data.batch_sentences": None}, "batches are counted in tokens"),
            Suggestion({"data.max_tokens": context, "model.max_length": context}, "the context of the model"),
        ]  # fmt: skip

    def starts_texts(self, config: Config) -> bool:
        return config.data.packing == "documents"

    def prepare(self, config: Config, corpora: Corpora) -> tuple[Config, Sequence[Tokenizer]]:
        if config.train.init_from:
            start = starting_point(config)
            return start.config, start.tokenizers()
        return config, [text_tokenizer(config, corpora["train"])]

    def training_examples(self, run: "Run", corpora: Corpora, report: Report) -> Examples:
        texts = encoded(run, corpora["train"])
        report(f"training text: {texts}")
        data = run.config.data
        if data.packing == "stream" and len(texts.ids.flat) <= data.max_tokens:
            raise InputError(
                f"{corpora['train'].name} has {len(texts.ids.flat):,} tokens, fewer than one window "
                f"(data.max_tokens = {data.max_tokens}) and the token after it."
            )
        return examples_of(run.config, texts)

    def scored_examples(self, run: "Run", corpora: Corpora, part: str) -> Examples:
        return examples_of(run.config, encoded(run, corpora[part]))

    def build_model(self, run: "Run", **options: Any) -> "keras.Model":
        from heedful.models import CausalLM

        return CausalLM(len(run.tokenizer), **options)

    def predictor(self, runs: "Sequence[Run]", decode: DecodeConfig | None = None) -> "Predictor":
        from heedful.inference.generator import Generator

        return Generator.from_run(runs[0], decode)

    def validator(
        self, run: "Run", model: "keras.Model", corpora: Corpora, scored: Mapping[str, Examples]
    ) -> Validator:
        return GenerationValidator(run, model, encoded(run, corpora["valid"]), scored["valid"])

    def evaluate(self, run: "Run", corpus: Corpus, predictor: Any = None) -> dict[str, Any]:
        from heedful.runs.scores.provenance import save_scores

        texts = encode_texts(corpus, run.tokenizer)
        model = (predictor or self.predictor([run])).model
        scorer = TextScores(model, texts, examples_of(run.config, texts), run.tokenizer)
        sums = scorer.sums()
        scores = scorer.summary(sums)  # raises `InputError` if nothing can be scored
        nats, tokens = sums[:, 0], sums[:, 2]
        counts = {"loss": np.stack([nats, tokens], 1)}
        if scorer.keeps_text:
            text_bytes = tokens * scorer.text_bytes / tokens.sum()  # each batch's share of them
            counts["bits_per_byte"] = np.stack([nats, text_bytes], 1)
        return save_scores(run, corpus, scores, counts)

    def describe(self, scores: Mapping[str, Any]) -> str:
        bits = f"{scores['bits_per_byte']:.4f} bits per byte  " if "bits_per_byte" in scores else ""
        return (
            f"loss {scores['loss']:.4f} nats per token  perplexity {scores['perplexity']:.3f}  {bits}"
            f"on {scores['tokens']:,} tokens"
        )

    def random_batch(self, run: "Run", random: np.random.Generator, rows: int, length: int) -> dict[str, np.ndarray]:
        ids = random.integers(FIRST_ID, len(run.tokenizer), (rows, length), dtype=np.int32)
        return {"ids": ids[:, :-1], "labels": ids[:, 1:]}

    def wrong_labels(self, run: "Run", batch: Mapping[str, np.ndarray]) -> float:
        wrong = not_next(batch["ids"], batch["labels"], batch.get("segments"))
        return float(wrong[batch["weights"] > 0].mean())

    def probe(self, run: "Run", model: "keras.Model", decode: DecodeConfig, batch: Mapping[str, np.ndarray]) -> Probe:
        from heedful.decoding.prompt_search import PromptSearch

        texts = [row[row != 0].tolist() for row in batch["ids"]]
        prompts = [text[: max(1, len(text) // 2)] for text in texts]
        limits = [decode.max_length - len(prompt) + 1 for prompt in prompts]
        return GenerationProbe(PromptSearch(model, decode, run.tokenizer, scored=True, brief=True), prompts, limits)


class GenerationProbe(Probe):
    """Prompts to continue, and whole texts to score in one forward pass."""

    def first_scored(self, row: int) -> int:
        return len(self.sources[row]) - 1

    def write_row(self, inputs: dict[str, np.ndarray], row: int, written: Sequence[int]) -> None:
        prompt = self.sources[row]
        inputs["ids"][row, : len(prompt) + len(written) - 1] = [*prompt, *written[:-1]]


class GenerationValidator(Validator):
    """Measures the loss on a corpus, and writes a sample text.

    Args:
        run: a `Run`.
        model: its model.
        texts: `EncodedTexts` of the corpus.
        scored: the examples cut from them.
    """

    def __init__(self, run: "Run", model: "keras.Model", texts: EncodedTexts, scored: Examples):
        from heedful.inference.generator import Generator

        starts, decode = run.task.starts_texts(run.config), run.config.decode
        drawing = {name: getattr(decode, name) for name in DRAWING}
        drawn = DecodeConfig(sample=True, max_length=SAMPLE_TOKENS, batch_size=1, **drawing)
        self.predictor = Generator(model, run.tokenizer, drawn, starts)
        self._scores = TextScores(model, texts, scored, run.tokenizer)
        self._prompt = run.config.train.prompt
        if not starts and not run.tokenizer.encode(self._prompt):  # such as a line feed with a word tokenizer
            known = texts.ids.flat[texts.ids.flat > END_ID]
            self._prompt = run.tokenizer.decode([known[0] if len(known) else END_ID + 1])

    def __call__(self) -> dict[str, Any]:
        self.refresh()
        scores = self._scores()
        del scores["tokens"]  # the same at every validation
        return scores

    def samples(self) -> list[Sample]:
        """Return a text that continues the prompt."""
        sample = self.predictor.generate(self._prompt)
        return [Sample(sample, {"prompt": self._prompt, "text": sample})]


def examples_of(config: Config, texts: EncodedTexts) -> Examples:
    """Return encoded texts as examples in the form that a config sets."""
    data = config.data
    rows = data.batch_sentences or max(1, int(data.batch_tokens) // data.max_tokens)
    if data.packing == "documents":
        return PackedDocuments(texts, data.max_tokens, rows, config.train.seed)
    return Windows(as_stream(texts), data.max_tokens, rows, config.train.seed)


class TextScores:
    """Loss, perplexity, accuracy and bits per byte of a language model on texts; every token counts once.

    Args:
        model: a `CausalLM`.
        texts: `EncodedTexts`.
        examples: the windows cut from them; each token sees the earlier tokens of its window.
        tokenizer: the one that encoded the texts.
    """

    def __init__(self, model: "keras.Model", texts: EncodedTexts, examples: Examples, tokenizer: Tokenizer):
        from heedful.training.evaluation import TokenScores

        self.text_bytes = texts.text_bytes
        self.keeps_text = tokenizer.keeps_text and not np.any(np.asarray(texts.ids.flat) == tokenizer.unknown_id)
        self._token_scores = TokenScores(model, examples)

    def __call__(self) -> dict[str, Any]:
        """Return the `summary` of all batches."""
        return self.summary(self.sums())

    def sums(self) -> np.ndarray:
        """Return nats, correct tokens and tokens of each batch (B, 3)."""
        return self._token_scores.sums()

    def summary(self, sums: np.ndarray) -> dict[str, float]:
        """Return loss (nats per token), perplexity, accuracy, tokens, and bits_per_byte if the tokens keep the text.

        bits_per_byte compares models with different vocabularies: the total of a text, divided by its bytes. Text lost
        to lower-casing or unknown tokens has bytes but no nats, so the metric would be meaningless for it.
        """
        scores = self._token_scores.summary(sums)
        if self.keeps_text:
            scores["bits_per_byte"] = sums[:, 0].sum() / math.log(2) / self.text_bytes
        return scores
