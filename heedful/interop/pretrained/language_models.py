"""Decoder-only models in the Hugging Face layout: GPT-2, Llama and Qwen3."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from heedful.config import Config, ModelConfig
from heedful.core.special_tokens import END, PAD, START, UNKNOWN
from heedful.interop.engines import EVERY_HEAD, Engine
from heedful.interop.pretrained.layout import (
    SPECIAL_IDS,
    Exported,
    Imported,
    class_of,
    imported_config,
    model_config,
    read_activation,
    with_full_heads,
    without_scale,
    written_activation,
)
from heedful.interop.pretrained.mapping import (
    WeightMapping,
    joined,
    linear,
    norm,
    positions,
    read_weights,
    same,
    write_tensors,
)
from heedful.interop.pretrained.vocabulary import Vocabulary, adds_start_token, special_names, unknown_token
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.models import CausalLM

GATES = {"silu": "swiglu", "gelu": "geglu"}  # activations of Llama's gate, by ours


class LanguageModelLayout:
    """What the decoder-only models have in common: their vocabularies, and the head."""

    models = (CausalLM,)
    kind: str
    """`model_type` in config.json."""
    name: str
    """Its class in transformers."""
    engine: Engine
    """What the class computes."""

    def _imported(self, folder, model, mappings) -> Imported:
        """Return a model whose tensors `mappings` read, with its vocabulary in our order."""
        tensors, size = folder.tensors, folder.setting("vocab_size")
        starts = adds_start_token(folder)
        vocabulary = Vocabulary(folder, _special_tokens(folder, starts))
        weights = read_weights(mappings, tensors)
        tied = model.tie != "none"
        weights["embedding/embeddings"] = vocabulary.rows(weights["embedding/embeddings"])
        bias = vocabulary.rows(np.zeros(size, np.float32), NEVER_WRITTEN)
        if tied:
            weights["embedding/bias"] = bias
            tensors.drop("lm_head.weight")  # a copy of the tied table
        else:
            weights["output_projection/embeddings"] = vocabulary.rows(weights["output_projection/embeddings"])
            weights["output_projection/bias"] = bias
        data: dict[str, Any] = {"packing": "documents"} if starts else {}
        return Imported(imported_config("generate", model, True, **data), (vocabulary.tokenizer(),), weights)

    def misfits(self, config: Config, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Return the settings of a run that this class cannot express, and why."""
        biases = [weights.get(f"{table}/bias", np.zeros(1)) for table in ("embedding", "output_projection")]
        reasons = self.engine.misfits(config.model)
        if not all(np.isin(bias, (0, NEVER_WRITTEN)).all() for bias in biases):
            reasons["model.output_bias = true"] = f"{self.name} has no bias of the logits"
        return reasons

    def _settings(self, tied, size) -> dict:
        return {
            "architectures": [self.name], "model_type": self.kind, "vocab_size": size, "tie_word_embeddings": tied,
            **SPECIAL_IDS,
        }  # fmt: skip

    def _tables(self, model, table, size) -> list[WeightMapping]:
        """Return the mappings of the tables of input and output."""
        mappings = [same("embedding/embeddings", table, size, model.d_model)]
        if model.tie == "none":
            mappings.append(same("output_projection/embeddings", "lm_head.weight", size, model.d_model))
        return mappings


class GPT2(LanguageModelLayout):
    """GPT-2 (Radford et al. 2019)."""

    kind, name = "gpt2", "GPT2LMHeadModel"
    engine = class_of(name, norm_position=("pre",), embedding_norm=(False,), positions=("learned",))

    def read(self, folder: Any) -> Imported:
        """Convert a `PretrainedFolder`; `InputError` if it has a setting that our models lack."""
        folder.require(add_cross_attention=False, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
        width = folder.setting("n_embd")
        model = model_config(
            num_layers=folder.setting("n_layer"), d_model=width, num_heads=folder.setting("n_head"),
            d_ff=folder.config.get("n_inner") or 4 * width, positions="learned", norm_position="pre",
            activation=read_activation(folder, "activation_function"), embedding_scale=False, output_bias=True,
            max_length=folder.setting("n_positions"), norm_epsilon=folder.setting("layer_norm_epsilon", 1e-5),
            dropout=folder.setting("resid_pdrop", 0.1), attention_dropout=folder.setting("attn_pdrop", 0.1),
            tie="target" if folder.setting("tie_word_embeddings", True) else "none",
        )  # fmt: skip
        stem = "transformer." if "transformer.wte.weight" in folder.tensors else ""
        for index in range(model.num_layers):
            folder.tensors.drop(f"{stem}h.{index}.attn.bias", f"{stem}h.{index}.attn.masked_bias")  # its causal mask
        return self._imported(folder, model, self._mappings(model, stem, folder.setting("vocab_size")))

    def write(self, config: Config, weights: Mapping[str, np.ndarray], sizes: tuple[int, ...]) -> Exported:
        """Return settings and tensors of our weights; `sizes` has the size of the vocabulary."""
        model, [size] = config.model, sizes
        tied, weights = without_scale(model, with_full_heads(model, weights))
        settings = self._settings(tied, size) | {
            "n_embd": model.d_model, "n_layer": model.num_layers, "n_head": model.num_heads, "n_inner": model.d_ff,
            "n_positions": model.max_length, "activation_function": written_activation(model.activation),
            "layer_norm_epsilon": model.norm_epsilon, "resid_pdrop": model.dropout, "embd_pdrop": model.dropout,
            "attn_pdrop": model.attention_dropout,
        }  # fmt: skip
        return Exported(settings, write_tensors(self._mappings(_tied(model, tied), "transformer.", size), weights))

    def _mappings(self, model, stem, size) -> list[WeightMapping]:
        width = model.d_model
        mappings = [
            *self._tables(model, f"{stem}wte.weight", size),
            positions("text_input/positions/embeddings", f"{stem}wpe.weight", model.max_length, width),
            *norm("decoder/final_norm", f"{stem}ln_f", width),
        ]
        for index in range(model.num_layers):
            theirs, ours = f"{stem}h.{index}", f"decoder/block_{index}"
            mappings += norm(f"{ours}/self_attention_residual/norm", f"{theirs}.ln_1", width)
            mappings += norm(f"{ours}/feed_forward_residual/norm", f"{theirs}.ln_2", width)
            for part, our_part, inputs, outputs in (
                ("attn.c_attn", "self_attention/query_key_value", width, 3 * width),
                ("attn.c_proj", "self_attention/output", width, width),
                ("mlp.c_fc", "feed_forward/inner", width, model.d_ff),
                ("mlp.c_proj", "feed_forward/outer", model.d_ff, width),
            ):
                mappings.append(same(f"{ours}/{our_part}/kernel", f"{theirs}.{part}.weight", inputs, outputs))
                mappings.append(same(f"{ours}/{our_part}/bias", f"{theirs}.{part}.bias", outputs))
        return mappings


class Llama(LanguageModelLayout):
    """Llama (Touvron et al. 2023) and models of the same class, such as SmolLM2."""

    kind, name = "llama", "LlamaForCausalLM"
    values: ClassVar[dict[str, Collection[Any]]] = {
        "norm": ("rms",), "norm_position": ("pre",), "activation": tuple(GATES.values()), "positions": ("rotary",),
        "embedding_norm": (False,),
    }  # fmt: skip
    engine = Engine(name, values, any_value=EVERY_HEAD)
    qk_norm = False
    default_head_dim: int | None = None
    """Size of a head if config.json does not give it; None: `hidden_size / num_attention_heads`."""

    def read(self, folder: Any) -> Imported:
        """Convert a `PretrainedFolder`; `InputError` if it has a setting that our models lack."""
        bias, rotary = folder.setting("attention_bias", False), _rotary_base(folder)
        folder.require(**self._required(bias))
        width, heads = folder.setting("hidden_size"), folder.setting("num_attention_heads")
        size = folder.config.get("head_dim") or self.default_head_dim or width // heads
        activation = folder.setting("hidden_act")
        if activation not in GATES:
            folder.require(hidden_act="silu")
        model = model_config(
            num_layers=folder.setting("num_hidden_layers"), d_model=width, num_heads=heads,
            num_kv_heads=folder.config.get("num_key_value_heads"), head_dim=size if size * heads != width else None,
            d_ff=folder.setting("intermediate_size"), activation=GATES[activation], norm_position="pre", norm="rms",
            norm_epsilon=folder.setting("rms_norm_eps", 1e-6), bias=bias, qk_norm=self.qk_norm,
            positions="rotary", rotary_base=rotary, max_length=folder.setting("max_position_embeddings"),
            embedding_scale=False, output_bias=True,
            tie="target" if folder.setting("tie_word_embeddings", False) else "none",
            dropout=0.0, attention_dropout=folder.setting("attention_dropout", 0.0),
        )  # fmt: skip
        stem = "model." if "model.embed_tokens.weight" in folder.tensors else ""
        for index in range(model.num_layers):
            folder.tensors.drop(f"{stem}layers.{index}.self_attn.rotary_emb.inv_freq")  # computed from the base
        return self._imported(folder, model, self._mappings(model, stem, folder.setting("vocab_size")))

    def write(self, config: Config, weights: Mapping[str, np.ndarray], sizes: tuple[int, ...]) -> Exported:
        """Return settings and tensors of our weights; `sizes` has the size of the vocabulary."""
        model, [size] = config.model, sizes
        tied, weights = without_scale(model, weights)
        settings = self._settings(tied, size) | {
            "hidden_size": model.d_model, "num_hidden_layers": model.num_layers,
            "num_attention_heads": model.num_heads, "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_size, "intermediate_size": model.d_ff,
            "hidden_act": next(theirs for theirs, ours in GATES.items() if ours == model.activation),
            "rms_norm_eps": model.norm_epsilon, "rope_theta": model.rotary_base,
            "attention_bias": model.bias, "max_position_embeddings": model.max_length,
            "attention_dropout": model.attention_dropout,
        } | self._own_settings(model)  # fmt: skip
        return Exported(settings, write_tensors(self._mappings(_tied(model, tied), "model.", size), weights))

    def _required(self, bias):
        """Return the values of settings of this class that our models need; `bias` is whether attention has one."""
        return {"mlp_bias": bias, "pretraining_tp": 1}

    def _own_settings(self, model):
        """Return the settings of config.json that only this class has."""
        return {"mlp_bias": model.bias}

    def _mappings(self, model, stem, size) -> list[WeightMapping]:
        width, head = model.d_model, model.head_size
        inner, keys = model.num_heads * head, model.kv_heads * head
        mappings = [
            *self._tables(model, f"{stem}embed_tokens.weight", size),
            *norm("decoder/final_norm", f"{stem}norm", width, rms=True),
        ]
        for index in range(model.num_layers):
            theirs, ours = f"{stem}layers.{index}", f"decoder/block_{index}"
            parts = [f"{theirs}.self_attn.{part}_proj" for part in "qkv"]
            mappings += joined(f"{ours}/self_attention/query_key_value", parts, width, [inner, keys, keys], model.bias)
            mappings += linear(f"{ours}/self_attention/output", f"{theirs}.self_attn.o_proj", inner, width, model.bias)
            mappings += norm(f"{ours}/self_attention_residual/norm", f"{theirs}.input_layernorm", width, rms=True)
            for part, our_part in (("q_norm", "query_norm"), ("k_norm", "key_norm")) if self.qk_norm else ():
                mappings += norm(f"{ours}/self_attention/{our_part}", f"{theirs}.self_attn.{part}", head, rms=True)
            for part, our_part in (("gate_proj", "inner"), ("up_proj", "gate")):
                own = f"{ours}/feed_forward/{our_part}"
                mappings += linear(own, f"{theirs}.mlp.{part}", width, model.d_ff, model.bias)
            mappings += linear(f"{ours}/feed_forward/outer", f"{theirs}.mlp.down_proj", model.d_ff, width, model.bias)
            mappings += norm(
                f"{ours}/feed_forward_residual/norm", f"{theirs}.post_attention_layernorm", width, rms=True
            )
        return mappings


class Qwen3(Llama):
    """Qwen3 (Yang et al. 2025): Llama without biases, whose queries and keys are normalised."""

    kind, name = "qwen3", "Qwen3ForCausalLM"
    engine = Engine(name, Llama.values | {"qk_norm": (True,), "bias": (False,)}, any_value=EVERY_HEAD)
    qk_norm = True
    default_head_dim = 128

    def _required(self, bias):
        return {"attention_bias": False, "use_sliding_window": False}

    def _own_settings(self, model):
        return {"use_sliding_window": False}


def _special_tokens(folder, starts):
    """Return the name of each of our special tokens, or None: many models use one token as another one too."""
    roles = {PAD: "pad_token", UNKNOWN: "unk_token", START: "bos_token", END: "eos_token"}
    named: dict[str, str | None] = dict(special_names(folder, roles, ("", "", "<s>", "<|endoftext|>")))
    if not starts and named[START] != START:  # nothing in a text stands for it
        named[START] = None
    if named[UNKNOWN] not in (UNKNOWN, unknown_token(folder)):
        named[UNKNOWN] = None
    for token in (PAD, UNKNOWN, START):
        if not named[token] or named[token] in [name for other, name in named.items() if other != token]:
            named[token] = None
    return named


def _rotary_base(folder) -> float:
    """Return the base of the rotary positions, from `rope_theta` or, in newer files, `rope_parameters`."""
    rope = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        folder.require(rope_scaling=None, rope_parameters=None)
    return float(folder.config.get("rope_theta") or rope.get("rope_theta") or 10000.0)


def _tied(model: ModelConfig, tied: bool) -> ModelConfig:
    """Return the config of a model with or without a table for both input and output."""
    return dataclasses.replace(model, tie="target" if tied else "none")
