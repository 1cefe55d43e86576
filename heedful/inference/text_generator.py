"""A callback that shows during `fit` what a language model or a translator writes."""

from collections.abc import Callable
from typing import Any

import keras

from heedful.config import DecodeConfig
from heedful.data.tokenizer import Tokenizer
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator


class TextGenerator(keras.callbacks.Callback):
    """At the end of epochs, report what the model writes: a `CausalLM` continues texts, a `Transformer` translates.

    A `CausalLM` samples from the ten likeliest tokens, and a `Transformer` decodes greedily, unless `settings` say
    otherwise.

    Args:
        texts: one or several prompts or sources.
        tokenizer: the tokenizer of the model, or that of the source.
        target_tokenizer: of a `Transformer`; None: the same.
        every: report after every so many epochs.
        report: called with each line.
        settings: settings of `DecodeConfig`, such as `max_length=40`, `temperature=0.8`.
    """

    def __init__(
        self,
        texts: str | list[str],
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        every: int = 1,
        report: Callable[[str], Any] = print,
        **settings: Any,
    ):
        super().__init__()
        self.texts = [texts] if isinstance(texts, str) else list(texts)
        self.tokenizers = tokenizer, target_tokenizer or tokenizer
        self.every, self.report, self.settings = every, report, settings
        self._predictor: Generator | Translator | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self.every:
            return
        if self._predictor is None:
            self._predictor = self._new_predictor()
        self._predictor.refresh()
        for text, results in zip(self.texts, self._predictor.predict_stream(self.texts), strict=True):
            written = results[0].text
            arrow = "" if isinstance(self._predictor, Generator) else f"{text}  ->  "
            self.report(f"epoch {epoch + 1}: {arrow}{written}")

    def _new_predictor(self) -> Any:
        if hasattr(self.model, "encoder"):
            return Translator(self.model, *self.tokenizers, DecodeConfig(**self.settings))
        sampling = {"sample": True, "top_k": 10, "max_length": 40} | self.settings
        return Generator(self.model, self.tokenizers[0], DecodeConfig(**sampling))
