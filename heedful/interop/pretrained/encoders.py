"""Encoders in the Hugging Face layout: BERT, DistilBERT, RoBERTa and XLM-R; bare, with masked tokens, with classes."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.special_tokens import MASK, PAD_ID
from heedful.interop.pretrained.folder import PretrainedFolder
from heedful.interop.pretrained.layout import (
    ENCODER_ROLES,
    ONE_LABEL,
    SEVERAL_LABELS,
    Exported,
    Imported,
    class_of,
    fixed_epsilon_misfit,
    imported_config,
    model_config,
    read_activation,
    with_full_heads,
    without_scale,
    written_activation,
)  # fmt: skip
from heedful.interop.pretrained.mapping import (
    Named,
    WeightMapping,
    joined,
    linear,
    norm,
    positions,
    read_weights,
    same,
    write_tensors,
)
from heedful.interop.pretrained.sentence_encoder import embedding_options
from heedful.interop.pretrained.vocabulary import Vocabulary, special_names
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.models import Classifier, MaskedLM

KNOWN_HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")  # ends of names of classes


class BlockNames(NamedTuple):
    """Names of the tensors of a block; `{}` is its number."""

    parts: tuple[str, str, str]
    output: str
    attention_norm: str
    inner: str
    outer: str
    norm: str

    def of(self, stem: str, number: int) -> "BlockNames":
        """Return the names of a block, with the prefix of the encoder."""
        first, second, third = (stem + part.format(number) for part in self.parts)
        output, attention_norm, inner, outer, last = (stem + str(name).format(number) for name in self[1:])
        return BlockNames((first, second, third), output, attention_norm, inner, outer, last)


class HeadNames(NamedTuple):
    """Names of the tensors of the head that predicts masked tokens."""

    dense: str
    norm: str
    bias: str
    table: str


@dataclass(frozen=True)
class EncoderLayout:
    """A family of encoders.

    Args:
        kind: `model_type` in config.json.
        name: beginning of the names of its classes in transformers.
        stem: prefix of the encoder's tensors, which a bare encoder lacks.
        settings: keys of config.json by our options.
        masked: the head for masked tokens.
        classes_head: the hidden and the output layer of the head for classes.
        hidden_activation: activation of the former's hidden layer.
        segments: whether a table of segments is added to the embeddings.
        skipped: rows of the position table before position 0.
        specials: usual spellings of the special tokens.
        required: settings with the only value that we support.
    """

    kind: str
    name: str
    stem: str
    block: BlockNames
    settings: Mapping[str, str]
    masked: HeadNames
    classes_head: tuple[str, str]
    hidden_activation: str = "tanh"
    segments: bool = True
    skipped: int = 0
    models = (MaskedLM, Classifier)
    specials: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    required: Mapping[str, Any] = field(default_factory=dict)

    def read(self, folder: PretrainedFolder) -> Imported:
        """Convert a `PretrainedFolder`.

        Raises:
            InputError: it has a setting that our models lack, or its tensors do not fit its config.
        """
        folder.require(**self.required)
        _require_known_head(folder)
        tensors = folder.tensors
        tensors.rename({".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"})  # old models
        stem = "" if f"{self._embeddings('')}word_embeddings.weight" in tensors else self.stem
        labels = _labels(folder) if f"{self.classes_head[1]}.weight" in tensors else ()
        head = bool(labels) or self.masked.bias in tensors
        model = self._options(folder, labels, head)
        optional = (MASK,) if labels else ()  # a classifier needs no [MASK]
        vocabulary = Vocabulary(folder, special_names(folder, ENCODER_ROLES, self.specials), optional=optional)
        size, segments = folder.setting("vocab_size"), folder.setting("type_vocab_size", 0)
        mappings = self._mappings(model, stem, size, segments) + self._head(model, labels, head, size)
        weights = read_weights(mappings, tensors)
        for name in ("embedding/embeddings", "embedding/bias"):
            if name in weights or not (labels or model.tie == "none"):
                missing = NEVER_WRITTEN if name.endswith("bias") else 0.0
                weights[name] = vocabulary.rows(weights.get(name, np.zeros(size, np.float32)), missing)
        for name, missing in (("output_projection/embeddings", 0.0), ("output_projection/bias", NEVER_WRITTEN)):
            if name in weights and not labels:
                weights[name] = vocabulary.rows(weights[name], missing)
        tensors.drop(*self._unused(stem, labels))
        if not labels:
            model = _as_sentence_encoder(folder, model, weights)
        several = folder.config.get("problem_type") == SEVERAL_LABELS
        # A classifier reads as much as its model can, as in `transformers`.
        data = {"labels": labels, "several_labels": several, "max_tokens": model.max_length} if labels else {}
        config = imported_config("classify" if labels else "fill", model, **data)
        return Imported(config, (vocabulary.tokenizer(),), weights)

    def misfits(self, config: Config, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return the settings of a run that this class cannot express, and why."""
        heads = {"pooling": ("first",), "pooler_activation": (self.hidden_activation,)} if config.data.labels else {}
        engine = class_of(
            self.name,
            norm_position=("post",),
            positions=("learned",),
            embedding_norm=(True,),
            convolutions=((),),
            **heads,
        )
        fixed = {} if "norm_epsilon" in self.settings else fixed_epsilon_misfit(self.name, config.model)
        return engine.misfits(config.model) | fixed

    def write(self, config: Config, weights: Mapping[str, np.ndarray], sizes: tuple[int, ...]) -> Exported:
        """Return settings and tensors of our weights; `sizes` are those of the vocabularies."""
        model, labels, size = config.model, config.data.labels, sizes[0]
        bare = model.untrained_head and not labels
        tied, weights = without_scale(model, with_full_heads(model, weights))
        own = {name: getattr(model, name) for name in self.settings}
        own |= {"activation": written_activation(model.activation), "max_length": model.max_length + self.skipped}
        ending = "Model" if bare else "ForSequenceClassification" if labels else "ForMaskedLM"
        settings = {
            "architectures": [self.name + ending],
            "model_type": self.kind, "vocab_size": size,
            **{theirs: own[name] for name, theirs in self.settings.items()},
            "tie_word_embeddings": tied and not labels, "pad_token_id": PAD_ID,
        }  # fmt: skip
        if self.segments:
            settings["type_vocab_size"] = 2
        if labels:
            settings |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
            settings["problem_type"] = SEVERAL_LABELS if config.data.several_labels else ONE_LABEL
            tied = True  # its table has no copy
        mappings = self._mappings(model, "" if bare else self.stem, size, 2)
        mappings += self._head(model, labels, not bare, size, tied)
        tensors = write_tensors(mappings, weights)
        if not (tied or bare):
            tensors |= {f"{self.masked.table.rpartition('.')[0]}.bias": tensors[self.masked.bias]}
        return Exported(settings, tensors)

    def _embeddings(self, stem):
        return f"{stem}embeddings."

    def _options(self, folder, labels, head):
        """Return the `ModelConfig` of a folder."""
        options = {name: folder.setting(theirs) for name, theirs in self.settings.items() if theirs in folder.config}
        options |= {"activation": read_activation(folder, self.settings["activation"])}
        options["max_length"] = folder.setting(self.settings["max_length"]) - self.skipped
        tie = "target" if folder.setting("tie_word_embeddings", True) or labels or not head else "none"
        return model_config(
            **{"norm_epsilon": 1e-12, "attention_dropout": 0.1} | options, norm_position="post", positions="learned",
            embedding_norm=True, embedding_scale=False, output_bias=not labels, tie=tie,
            untrained_head=not head, pooling="first" if labels else "mean",
            pooler_activation=self.hidden_activation,
        )  # fmt: skip

    def _mappings(self, model, stem, size, segments) -> list[WeightMapping]:
        """Return the mappings of the encoder."""
        width, stemmed = model.d_model, self._embeddings(stem)
        kinds = Named(f"{stemmed}token_type_embeddings.weight", (segments, width)) if self.segments else None
        mappings = [
            same("embedding/embeddings", f"{stemmed}word_embeddings.weight", size, width),
            positions("text_input/positions/embeddings", f"{stemmed}position_embeddings.weight", model.max_length,
                      width, self.skipped, kinds),
            *norm("text_input/norm", f"{stemmed}LayerNorm", width),
        ]  # fmt: skip
        for index in range(model.num_layers):
            ours = f"encoder/block_{index}"
            names = self.block.of(stem, index)
            mappings += joined(f"{ours}/self_attention/query_key_value", names.parts, width, [width] * 3)
            mappings += linear(f"{ours}/self_attention/output", names.output, width, width)
            mappings += norm(f"{ours}/self_attention_residual/norm", names.attention_norm, width)
            mappings += linear(f"{ours}/feed_forward/inner", names.inner, width, model.d_ff)
            mappings += linear(f"{ours}/feed_forward/outer", names.outer, model.d_ff, width)
            mappings += norm(f"{ours}/feed_forward_residual/norm", names.norm, width)
        return mappings

    def _head(self, model, labels, head, size, tied=None) -> list[WeightMapping]:
        """Return the mappings of the head; a bare encoder has none."""
        width = model.d_model
        if not head:
            return []
        if labels:
            hidden, output = self.classes_head
            return [
                *linear("pooler", hidden, width, width),
                same("output_projection/embeddings", f"{output}.weight", len(labels), width),
                same("output_projection/bias", f"{output}.bias", len(labels)),
            ]
        tied = model.tie != "none" if tied is None else tied
        own = "embedding" if tied else "output_projection"
        table = [] if tied else [same("output_projection/embeddings", self.masked.table, size, width)]
        return [
            *linear("transform", self.masked.dense, width, width), *norm("transform_norm", self.masked.norm, width),
            same(f"{own}/bias", self.masked.bias, size), *table,
        ]  # fmt: skip

    def _unused(self, stem, labels):
        """Return prefixes of the tensors that we do not need: copies of tied ones, and heads for other tasks."""
        heads = [] if labels else [f"{stem}pooler.", self.masked.table.rpartition(".")[0] + "."]
        return *heads, "cls.seq_relationship.", f"{self._embeddings(stem)}position_ids"


def _as_sentence_encoder(folder, model, weights):
    """Return the config of a model that embeds texts as its folder says; shorten its positions if they are limited."""
    options = embedding_options(folder)
    table = "text_input/positions/embeddings"
    options["max_length"] = min(model.max_length, options.get("max_length", model.max_length))
    weights[table] = weights[table][: options["max_length"]]
    return dataclasses.replace(model, **options)


def _require_known_head(folder):
    """Refuse a model whose head is for another task, such as classes of tokens, which looks like one for texts."""
    for name in folder.config.get("architectures") or ():
        if not str(name).endswith(KNOWN_HEADS):
            known = ", ".join(f"...{end}" for end in KNOWN_HEADS)
            raise InputError(f"{folder.path / 'config.json'}: a {name} is not supported, only {known}.")


def _labels(folder):
    """Return the names of the classes in the order of their numbers."""
    table = folder.setting("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # what transformers does not write
    names = [table.get(str(number)) for number in range(len(table))]
    kind = folder.config.get("problem_type")
    if len(names) < 2 or kind not in (None, ONE_LABEL, SEVERAL_LABELS):
        raise InputError(
            f"{folder.path / 'config.json'}: only models that give a text one or more of several labels fit."
        )
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise InputError(f"{folder.path / 'config.json'}: id2label must have a different name for each class.")
    return tuple(names)
