"""The translation job: from a config and its text to a trained, scored and illustrated run."""

import dataclasses
import itertools
import json
import os
import time
from pathlib import Path

from heedful import backend
from heedful.data.batches import BatchPlan
from heedful.data.corpus import Corpus
from heedful.data.encoded import encode
from heedful.data.phrasebook import phrasebook
from heedful.data.puzzles import reverse_pairs
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.evaluation import TokenScores, score_text
from heedful.generation.translator import Translator
from heedful.inspection import plot_curves
from heedful.run import CONFIG, Run, load_weights, read_arrays, write_atomically
from heedful.training.signals import Interrupted
from heedful.training.trainer import Trainer

# What a shape costs to compile, in tokens that could be trained on meanwhile: about 7 seconds at 7,000 tokens/s.
COMPILE_TOKENS = 50_000
HELD_OUT = 2000  # sentences in the validation and test parts of a built-in corpus
SAMPLES = 3  # translations shown at a validation


def cache_folder():
    """Return where encoded text and compiled programs are kept between runs: HEEDFUL_CACHE or ~/.cache/heedful."""
    return Path(os.environ.get("HEEDFUL_CACHE") or Path.home() / ".cache" / "heedful")


def keep_compilations():
    """Let compiled programs survive this process."""
    backend.keep_compilations(cache_folder() / f"compiled-{backend.NAME}")


def corpora(config):
    """Return the corpora of a run by part: train, valid, and test where there is one.

    Raises:
        InputError: files are missing; names them, and where such text comes from.
    """
    data = config.data
    if data.corpus == "phrasebook":
        sizes = {"train": data.sentences, "valid": HELD_OUT, "test": HELD_OUT, "unseen": HELD_OUT}
        return {part: Corpus.from_pairs(phrasebook(part, size), f"phrasebook/{part}") for part, size in sizes.items()}
    if data.corpus == "reverse":
        sizes = {"train": data.sentences, "valid": HELD_OUT, "test": HELD_OUT}
        return {
            part: Corpus.from_pairs(reverse_pairs(part, size, data.length), f"reverse/{part}")
            for part, size in sizes.items()
        }
    if not data.train or not data.valid:
        raise InputError("data.train and data.valid must name text files (or choose a built-in data.corpus).")
    paths = {"train": data.train, "valid": data.valid} | ({"test": data.test} if data.test else {})
    return {part: Corpus.from_files(files, data.origin) for part, files in paths.items()}


def train_tokenizers(config, corpus):
    """Learn the vocabularies from the training text alone; return (source, target), one object when joint."""
    settings = config.tokenizer
    options = {"kind": settings.kind, "vocab_size": settings.vocab_size, "lowercase": settings.lowercase}
    if settings.joint:
        joint = Tokenizer.train(itertools.chain.from_iterable(corpus), **options)
        return joint, joint
    return tuple(Tokenizer.train((pair[side] for pair in corpus), **options) for side in (0, 1))


def plan_batches(config, pairs):
    """Plan the batches of a run over its encoded training pairs."""
    data, train = config.data, config.train
    lengths = pairs.source.lengths + 1, pairs.target.lengths + 1  # room for the end token
    # A shape is worth compiling when it saves that much padding over the whole training.
    epoch_tokens = int(sum(side.sum() for side in lengths))
    trained_tokens = 2 * train.updates * train.accumulate * data.batch_tokens
    price = COMPILE_TOKENS * epoch_tokens / max(trained_tokens, epoch_tokens)
    return BatchPlan(
        *lengths, batch_tokens=data.batch_tokens, batch_sentences=data.batch_sentences, max_shapes=data.max_shapes,
        shape_price=price, seed=train.seed,
    )  # fmt: skip


class TranslationJob:
    """A run with everything that its training needs.

    Args:
        run: a `Run`.
        report: called with each line for the user.
    """

    def __init__(self, run, report=print):
        self.run, self.report, self.config = run, report, run.config
        self.corpora = corpora(self.config)
        tokenizers = run.source_tokenizer, run.target_tokenizer
        cache = cache_folder() / "encoded"
        self.pairs = encode(self.corpora["train"], *tokenizers, self.config.data.max_tokens, cache)
        report(f"training text: {self.pairs.filtered}")
        self.valid_pairs = encode(self.corpora["valid"], *tokenizers, self.config.model.max_length, cache)
        self.plan = plan_batches(self.config, self.pairs)
        report(str(self.plan))

    @classmethod
    def create(cls, config, path, report=print, force=False):
        """Make a new run folder; learn its tokenizers.

        Raises:
            InputError: the folder holds a run already and `force` is not set; bad text.
        """
        path = Path(path)
        if (path / CONFIG).exists() and not force:
            raise InputError(
                f"{path} already holds a run. Continue it with --resume {path}, choose another folder with --run, "
                "or overwrite it with --force."
            )
        text = corpora(config)["train"]
        source, target = train_tokenizers(config, text)
        report(f"vocabulary: {len(source):,}" + ("" if source is target else f" and {len(target):,}"))
        for old in [*(path / "state").glob("*"), *(path / "tensorboard").glob("*"), *path.glob("*.*")]:
            if old.is_file():
                old.unlink()  # only reached with `force`, or where no run was
        return cls(Run.create(path, config, source, target), report)

    def train(self, resume=False):
        """Train, then score the test text and draw the curves."""
        import keras

        keras.utils.set_random_seed(self.config.train.seed)
        keep_compilations()
        model = self.run.build_model()
        self.report(f"model: {model.count_params():,} parameters, {backend.NAME}")
        self._translator = Translator(model, self.run.source_tokenizer, self.run.target_tokenizer, self.config.decode)
        self._token_scores = TokenScores(model, self.valid_pairs, self.config.data.batch_tokens)
        trainer = Trainer(
            self.run, model, self.pairs, self.plan, self._validate, self.report, self.corpora["train"].fingerprint
        )
        if resume:
            trainer.restore()
            self.report(f"resuming at update {trainer.update}")
        try:
            trainer.train()
        except Interrupted:
            self._draw_curves()
            raise
        self._draw_curves()
        self._score_tests(model)
        return self.run

    def _draw_curves(self):
        log = self.run.read_log()
        if not log:
            return
        try:
            plot_curves(self.run.path / "curves.png", log)
        except OSError as error:  # a picture must not cost a training
            self.report(f"The curves could not be drawn: {error}.")

    def _validate(self):
        scores = self._token_scores()
        count = self.config.train.validate_sentences
        if count:
            pairs = list(itertools.islice(self.corpora["valid"], count))
            made, text_scores = translate_and_score(self._translator, pairs)
            scores |= {name: text_scores[name] for name in ("bleu", "chrf")}
            scores["samples"] = [
                f"{source}  ->  {hypothesis}   [{reference}]"
                for (source, reference), hypothesis in zip(pairs[:SAMPLES], made, strict=False)
            ]
        return scores

    def _score_tests(self, model):
        arrays, _ = read_arrays(self.run.path / "model.safetensors")
        load_weights(model, arrays, self.run.path / "model.safetensors")
        for part in ("test", "unseen"):
            if part in self.corpora:
                scores = evaluate(self.run, self.corpora[part], self._translator)
                self.report(
                    f"{part}: BLEU {scores['bleu']:.2f}  chrF {scores['chrf']:.2f}  exact {scores['exact']:.2%}  "
                    f"perplexity {scores['perplexity']:.3f}  ({scores['signatures']['bleu']})"
                )


def translate_and_score(translator, pairs):
    """Return (translations, text scores) of a list of (source, reference)."""
    made = translator.translate([source for source, _ in pairs])
    return made, score_text(made, [reference for _, reference in pairs])


def evaluate(run, corpus, translator=None):
    """Score a run on a parallel text and add the result to its scores.json.

    Returns:
        bleu, chrf, exact, loss, perplexity, accuracy, seconds and tokens per second of decoding, signatures,
        fingerprints of data and tokenizers, decoding settings.
    """
    translator = translator or Translator.from_run(run)
    pairs = list(corpus)
    if not pairs:
        raise InputError(f"{corpus.name} is empty.")
    began = time.monotonic()
    made, scores = translate_and_score(translator, pairs)
    seconds = time.monotonic() - began
    tokens = sum(len(ids) for ids in run.target_tokenizer.encode_batch(made))
    encoded = encode(corpus, run.source_tokenizer, run.target_tokenizer, run.config.model.max_length)
    scores |= TokenScores(translator.model, encoded, run.config.data.batch_tokens)()
    scores |= {
        "sentences": len(pairs),
        "seconds": round(seconds, 2),
        "output_tokens_per_second": round(tokens / seconds, 1),
        "data": corpus.name,
        "data_fingerprint": corpus.fingerprint,
        "tokenizer_fingerprints": run.fingerprints(),
        "decode": dataclasses.asdict(translator.decode),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    path = run.path / "scores.json"
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    write_atomically(path, (json.dumps([*earlier, scores], indent=2, ensure_ascii=False) + "\n").encode())
    return scores


def default_folder(config):
    """Return where a run goes that was given no folder: runs/NAME."""
    return Path("runs") / config.name


def train(config, path=None, report=print, force=False):
    """Train a run from a `Config` and return it; `path` defaults to runs/NAME."""
    return TranslationJob.create(config, path or default_folder(config), report, force).train()


def resume(path, report=print, config=None):
    """Continue the training of a run folder, exactly as if it had never stopped."""
    run = Run.open(path)
    if config is not None and config != run.config:
        write_atomically(run.path / CONFIG, config.to_json().encode())
        run.config = config
    return TranslationJob(run, report).train(resume=True)
