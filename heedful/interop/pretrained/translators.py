"""Encoder-decoders in the Hugging Face layout: Marian, Pegasus, BART, mBART and Blenderbot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.special_tokens import END, PAD, PAD_ID, START, START_ID, UNKNOWN
from heedful.interop.pretrained.layout import (
    SINES,
    SPECIAL_IDS,
    Exported,
    Imported,
    class_of,
    fixed_epsilon_misfit,
    imported_config,
    model_config,
    read_activation,
    sine_tables,
    sines_first,
    with_full_heads,
    written_activation,
)
from heedful.interop.pretrained.mapping import (
    WeightMapping,
    joined,
    linear,
    norm,
    positions,
    read_weights,
    reshaped,
    same,
    write_tensors,
)
from heedful.interop.pretrained.prefixes import text_prefixes
from heedful.interop.pretrained.sentencepiece import SOURCE, read_sides
from heedful.interop.pretrained.vocabulary import Side, Vocabulary, special_names, target_side
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.models import Transformer

_SHARED = "model.shared.weight"
_SIDES = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
ROLES = {PAD: "pad_token", UNKNOWN: "unk_token", END: "eos_token"}


@dataclass(frozen=True)
class TranslatorLayout:
    """A family of encoder-decoders, whose tensors have the same names but for what the options say.

    Args:
        kind: `model_type` in config.json.
        name: its class in transformers.
        norm_position: where it normalises; with `pre`, encoder and decoder end with a norm.
        learned: whether positions are learned, or sines before cosines.
        skipped: rows of the position table before position 0.
        embedding_norm: whether embeddings are normalised.
        written_sines: whether the table of sines is a tensor of the model.
        two_tables: whether source and target may have tables of their own.
        languages: whether texts begin with their language.
    """

    models = (Transformer,)
    kind: str
    name: str
    norm_position: str
    learned: bool = False
    skipped: int = 0
    embedding_norm: bool = False
    written_sines: bool = False
    two_tables: bool = False
    languages: bool = False

    def read(self, folder: Any) -> Imported:
        """Convert a `PretrainedFolder`.

        A folder has one `tokenizer.json`; or one for each side, the target's in a subfolder `target`; or, as in
        opus-mt, a SentencePiece model for each side and one vocabulary.

        Raises:
            InputError: it has a setting that our models lack, or its tensors do not fit its config.
        """
        folder.require(normalize_embedding=self.embedding_norm, add_cross_attention=False, is_decoder=False)
        layers, heads, inner = (folder.setting(f"encoder_{name}") for name in ("layers", "attention_heads", "ffn_dim"))
        folder.require(decoder_attention_heads=heads, decoder_ffn_dim=inner)
        decoder_layers = folder.setting("decoder_layers")
        shared = folder.setting("share_encoder_decoder_embeddings", True)
        sizes = folder.setting("vocab_size"), folder.config.get("decoder_vocab_size") or folder.setting("vocab_size")
        if shared and sizes[0] != sizes[1]:
            folder.require(decoder_vocab_size=sizes[0])
        sides = self._sides(folder, shared)
        start = sides[-1].token(folder.setting("decoder_start_token_id"))
        prefixes = text_prefixes(folder, sides[-1], [*_special_names(folder).values(), start], self.languages)
        tied = folder.setting("tie_word_embeddings", True)
        joint = len(sides) == 1
        shared &= tied or folder.tensors.alike(_SHARED, *_SIDES)  # transformers 5 ties all tables or none
        both = shared and joint
        tie = ("all" if both else "target") if tied else ("inputs" if both else "none")
        model = model_config(
            num_layers=layers, decoder_layers=decoder_layers if decoder_layers != layers else None,
            d_model=folder.setting("d_model"), num_heads=heads, d_ff=inner,
            norm_position=self.norm_position, norm_epsilon=1e-5, tie=tie, output_bias=True,
            activation=read_activation(folder, "activation_function"),
            positions="learned" if self.learned else "sinusoidal_concatenated", embedding_norm=self.embedding_norm,
            embedding_scale=folder.setting("scale_embedding", False),
            max_length=folder.setting("max_position_embeddings"), dropout=folder.setting("dropout", 0.1),
            attention_dropout=folder.setting("attention_dropout", 0.0),
            feed_forward_dropout=folder.setting("activation_dropout", 0.0),
        )  # fmt: skip
        tensors = folder.tensors
        self._drop_copies(tensors, shared, tied)
        written = read_weights(self._mappings(model, sizes, shared, self.learned), tensors)
        tensors.drop("model.encoder.embed_positions.", "model.decoder.embed_positions.")  # sines, which we compute
        weights = self._in_our_order(written, model, sides, folder)
        sides = sides if prefixes[0] == prefixes[1] else [sides[0], sides[-1]]
        tokenizers = tuple(side.tokenizer(prefix) for side, prefix in zip(sides, prefixes, strict=False))
        return Imported(imported_config("translate", model, joint=joint), tokenizers, weights)

    def misfits(self, config: Config, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return the settings of a run that this class cannot express, and why."""
        engine = class_of(
            self.name, norm_position=(self.norm_position,), positions=("learned",) if self.learned else SINES,
            embedding_norm=(self.embedding_norm,),
            tie=("none", "inputs", "target", "all") if self.two_tables else ("inputs", "all"),
        )  # fmt: skip
        return engine.misfits(config.model) | fixed_epsilon_misfit(self.name, config.model)

    def write(self, config: Config, weights: Mapping[str, np.ndarray], sizes: tuple[int, ...]) -> Exported:
        """Return settings and tensors of our weights; `sizes` are those of the vocabularies."""
        model = config.model
        weights = with_full_heads(model, weights)
        if model.positions == "sinusoidal":
            weights = sines_first(model, weights)
        shared, tied = model.tie in ("inputs", "all"), model.tie in ("target", "all")
        settings = {
            "architectures": [self.name], "model_type": self.kind, "vocab_size": sizes[0],
            "d_model": model.d_model, "activation_function": written_activation(model.activation),
            **{f"{side}_{name}": value for side, depth in model.depths.items() for name, value in
               (("layers", depth), ("attention_heads", model.num_heads), ("ffn_dim", model.d_ff))},
            "num_hidden_layers": model.depths["encoder"], "scale_embedding": model.embedding_scale,
            "max_position_embeddings": model.max_length, "dropout": model.dropout,
            "attention_dropout": model.attention_dropout, "activation_dropout": model.feed_forward_dropout,
            "tie_word_embeddings": tied, "is_encoder_decoder": True, "decoder_start_token_id": START_ID,
            "forced_eos_token_id": None, "forced_bos_token_id": None, **SPECIAL_IDS,
        }  # fmt: skip
        if self.two_tables:
            settings |= {"share_encoder_decoder_embeddings": shared, "decoder_vocab_size": sizes[-1]}
        mappings = self._mappings(model, (sizes[0], sizes[-1]), shared, self.learned or self.written_sines)
        tensors = write_tensors(mappings, weights | sine_tables(model))
        if shared and not tied:  # transformers then ties no tables at all
            tensors |= dict.fromkeys(_SIDES, tensors[_SHARED])
        return Exported(settings, tensors)

    def _sides(self, folder, shared):
        """Return the `Vocabulary` of both sides, or of each."""
        names = _special_names(folder)
        if (folder.path / SOURCE).is_file():
            if (folder.path / "target_vocab.json").is_file():
                raise InputError(f"{folder.path} has a vocabulary for each side, which cannot be imported yet.")
            special = [name for name in names.values() if name]
            return [Vocabulary(folder, names, side) for side in read_sides(folder, special)]
        if shared:
            return [Vocabulary(folder, names, Side())]
        size = folder.setting("decoder_vocab_size")
        return [Vocabulary(folder, names, Side()), Vocabulary(folder, names, target_side(folder), size)]

    def _in_our_order(self, written, model, sides, folder):
        """Return weights whose vocabularies are in our order."""
        source, target = sides[0], sides[-1]
        weights = dict(written)
        for name in ("source_embedding", "target_embedding", "output_projection"):
            if (table := f"{name}/embeddings") in weights:
                weights[table] = (source if name == "source_embedding" else target).rows(weights[table])
        if len(sides) == 2 and "source_embedding/embeddings" not in weights:  # two vocabularies with one table
            weights["source_embedding/embeddings"] = source.rows(written["target_embedding/embeddings"])
        start = folder.setting("decoder_start_token_id")
        if target.old_ids[START_ID] != start:  # such as Marian's, whose decoder starts with padding
            weights["target_embedding/embeddings"][START_ID] = written["target_embedding/embeddings"][start]
        for name in ("target_embedding/bias", "output_projection/bias"):
            if name in weights:
                weights[name] = target.rows(weights[name], NEVER_WRITTEN)
                if target.old_ids[START_ID] is None:
                    weights[name][START_ID] = NEVER_WRITTEN
                if start == folder.setting("pad_token_id"):
                    weights[name][PAD_ID] = NEVER_WRITTEN
        return weights

    def _mappings(self, model, sizes, shared, tables) -> list[WeightMapping]:
        """Return the mappings of all weights; with `tables`, those of positions too."""
        width, mappings = model.d_model, []
        tied = model.tie in ("target", "all")
        head = "target_embedding" if tied else "output_projection"
        if shared:
            mappings.append(same("target_embedding/embeddings", _SHARED, sizes[1], width))
        else:
            mappings += [
                same("source_embedding/embeddings", "model.encoder.embed_tokens.weight", sizes[0], width),
                same("target_embedding/embeddings", "model.decoder.embed_tokens.weight", sizes[1], width),
            ]
        if not tied:
            mappings.append(same("output_projection/embeddings", "lm_head.weight", sizes[1], width))
        mappings.append(reshaped(same(f"{head}/bias", "final_logits_bias", sizes[1]), 1, sizes[1]))
        for side, text in (("encoder", "source"), ("decoder", "target")):
            if tables:
                theirs = f"model.{side}.embed_positions.weight"
                mappings.append(
                    positions(f"{text}_input/positions/embeddings", theirs, model.max_length, width, self.skipped)
                )
            if self.embedding_norm:
                mappings += norm(f"{text}_input/norm", f"model.{side}.layernorm_embedding", width)
            if self.norm_position == "pre":
                mappings += norm(f"{side}/final_norm", f"model.{side}.layer_norm", width)
            for index in range(model.depths[side]):
                mappings += _block(f"{side}/block_{index}", f"model.{side}.layers.{index}", width, model.d_ff)
        return mappings

    def _drop_copies(self, tensors, shared, tied):
        """Drop copies of tied tables; some folders have only one of them, under a name of its own."""
        if shared:
            tensors.drop(*_SIDES)
        else:
            tensors.drop(_SHARED)
        if tied:
            tensors.drop("lm_head.weight")


def _block(ours, theirs, width, inner):
    """Return the mappings of a block; one of a decoder has cross-attention."""
    mappings = [
        *joined(f"{ours}/self_attention/query_key_value", [f"{theirs}.self_attn.{part}_proj" for part in "qkv"],
                width, [width] * 3),
        *linear(f"{ours}/self_attention/output", f"{theirs}.self_attn.out_proj", width, width),
        *norm(f"{ours}/self_attention_residual/norm", f"{theirs}.self_attn_layer_norm", width),
        *linear(f"{ours}/feed_forward/inner", f"{theirs}.fc1", width, inner),
        *linear(f"{ours}/feed_forward/outer", f"{theirs}.fc2", inner, width),
        *norm(f"{ours}/feed_forward_residual/norm", f"{theirs}.final_layer_norm", width),
    ]  # fmt: skip
    if ours.startswith("decoder/"):
        cross = f"{theirs}.encoder_attn"
        mappings += linear(f"{ours}/cross_attention/query", f"{cross}.q_proj", width, width)
        parts = [f"{cross}.k_proj", f"{cross}.v_proj"]
        mappings += joined(f"{ours}/cross_attention/key_value", parts, width, [width] * 2)
        mappings += linear(f"{ours}/cross_attention/output", f"{cross}.out_proj", width, width)
        mappings += norm(f"{ours}/cross_attention_residual/norm", f"{cross}_layer_norm", width)
    return mappings


def _special_names(folder):
    """Return the name or id of each of our special tokens in a folder's tokenizer."""
    return special_names(folder, ROLES, ("<pad>", "<unk>", "</s>")) | {START: _start_token(folder)}


def _start_token(folder):
    """Return the id with which the decoder starts, or None if it is that of the padding or the end token."""
    start = folder.setting("decoder_start_token_id")
    others = folder.setting("pad_token_id"), folder.setting("eos_token_id")
    return None if start in others else start


MARIAN = TranslatorLayout("marian", "MarianMTModel", "post", two_tables=True)
PEGASUS = TranslatorLayout("pegasus", "PegasusForConditionalGeneration", "pre", written_sines=True)
BART = TranslatorLayout("bart", "BartForConditionalGeneration", "post", learned=True, skipped=2, embedding_norm=True)
MBART = TranslatorLayout(
    "mbart", "MBartForConditionalGeneration", "pre", learned=True, skipped=2, embedding_norm=True, languages=True
)
BLENDERBOT = TranslatorLayout("blenderbot", "BlenderbotForConditionalGeneration", "pre", learned=True)
