"""BERT, GPT-2 and Marian: their configs as ours, and the mapping of their tensors to our weights.

Kernels are (outputs, inputs) in PyTorch's linear layers, and (inputs, outputs) in ours and in GPT-2.
"""

from typing import NamedTuple

import numpy as np

from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.pretrained.sentencepiece import SOURCE, read_sides
from heedful.pretrained.vocabulary import Side, Vocabulary

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
               "silu": "silu", "swish": "silu"}  # fmt: skip


class Imported(NamedTuple):
    """A pretrained model, converted to our config, tokenizers and weights."""

    config: Config
    tokenizers: tuple[Tokenizer, ...]  # one, or those of source and target
    weights: dict  # arrays by our weight names


def bert(folder):
    """Convert a `BertForMaskedLM` or a bare `BertModel` (Devlin et al. 2019) to a `MaskedLM`.

    Only single texts are supported (segment 0). A bare model, such as a sentence encoder, has no masked-token head; its
    config then sets `model.untrained_head`.
    """
    folder.require(position_embedding_type="absolute", is_decoder=False, tie_word_embeddings=True)
    width, inner, length = (folder.setting(n) for n in ("hidden_size", "intermediate_size", "max_position_embeddings"))
    names = {"[PAD]": "[PAD]", "[UNK]": "[UNK]", "[START]": "[CLS]", "[END]": "[SEP]", "[MASK]": "[MASK]"}
    vocabulary = Vocabulary(folder, names)
    tensors, size = folder.tensors, folder.setting("vocab_size")
    has_head = "cls.predictions.bias" in tensors
    bare = "embeddings.word_embeddings.weight" in tensors
    encoder = "" if bare else "bert."
    stem = f"{encoder}embeddings"
    # With only one segment, its vector is added to every position.
    segments = tensors.take(f"{stem}.token_type_embeddings.weight", folder.setting("type_vocab_size"), width)
    positions = tensors.take(f"{stem}.position_embeddings.weight", length, width) + segments[0]
    biases = tensors.take("cls.predictions.bias", size) if has_head else np.zeros(size, np.float32)
    weights = {
        "embedding/embeddings": vocabulary.rows(tensors.take(f"{stem}.word_embeddings.weight", size, width)),
        "embedding/bias": vocabulary.rows(biases, NEVER_WRITTEN),
        "text_input/positions/embeddings": positions,
        **_norm(tensors, f"{stem}.LayerNorm", "text_input/norm", width),
    }
    if has_head:
        weights |= _linear(tensors, "cls.predictions.transform.dense", "transform", width, width)
        weights |= _norm(tensors, "cls.predictions.transform.LayerNorm", "transform_norm", width)
    for index in range(folder.setting("num_hidden_layers")):
        theirs, ours = f"{encoder}encoder.layer.{index}", f"encoder/block_{index}"
        heads = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        weights |= _joined(tensors, heads, f"{ours}/self_attention/query_key_value", width)
        weights |= _linear(tensors, f"{theirs}.attention.output.dense", f"{ours}/self_attention/output", width, width)
        weights |= _norm(tensors, f"{theirs}.attention.output.LayerNorm", f"{ours}/self_attention_residual/norm", width)
        weights |= _linear(tensors, f"{theirs}.intermediate.dense", f"{ours}/feed_forward/inner", width, inner)
        weights |= _linear(tensors, f"{theirs}.output.dense", f"{ours}/feed_forward/outer", inner, width)
        weights |= _norm(tensors, f"{theirs}.output.LayerNorm", f"{ours}/feed_forward_residual/norm", width)
    # Copies of tied weights, and weights for next-sentence prediction.
    tensors.drop("cls.predictions.decoder.", f"{encoder}pooler.", "cls.seq_relationship.", f"{stem}.position_ids")
    model = ModelConfig(
        num_layers=folder.setting("num_hidden_layers"), d_model=width, num_heads=folder.setting("num_attention_heads"),
        d_ff=inner, activation=_activation(folder, "hidden_act"), norm_position="post", positions="learned",
        embedding_norm=True, embedding_scale=False, output_bias=True, max_length=length, untrained_head=not has_head,
        norm_epsilon=folder.setting("layer_norm_eps", 1e-12), dropout=folder.setting("hidden_dropout_prob", 0.1),
        attention_dropout=folder.setting("attention_probs_dropout_prob", 0.1),
    )  # fmt: skip
    return Imported(_config("fill", model), (vocabulary.tokenizer(),), weights)


def gpt2(folder):
    """Convert a `GPT2LMHeadModel` (Radford et al. 2019) to a `CausalLM`."""
    folder.require(
        add_cross_attention=False, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
        tie_word_embeddings=True,
    )  # fmt: skip
    width, length, size = (folder.setting(name) for name in ("n_embd", "n_positions", "vocab_size"))
    inner = folder.config.get("n_inner") or 4 * width
    vocabulary = Vocabulary(folder, {"[PAD]": None, "[UNK]": None, "[START]": None, "[END]": "<|endoftext|>"})
    tensors = folder.tensors
    stem = "transformer." if "transformer.wte.weight" in tensors else ""
    weights = {
        "embedding/embeddings": vocabulary.rows(tensors.take(f"{stem}wte.weight", size, width)),
        "embedding/bias": vocabulary.rows(np.zeros(size, np.float32), NEVER_WRITTEN),
        "text_input/positions/embeddings": tensors.take(f"{stem}wpe.weight", length, width),
        **_norm(tensors, f"{stem}ln_f", "decoder/final_norm", width),
    }
    for index in range(folder.setting("n_layer")):
        theirs, ours = f"{stem}h.{index}", f"decoder/block_{index}"
        weights |= _norm(tensors, f"{theirs}.ln_1", f"{ours}/self_attention_residual/norm", width)
        weights |= _norm(tensors, f"{theirs}.ln_2", f"{ours}/feed_forward_residual/norm", width)
        for theirs_too, ours_too, shape in (
            ("attn.c_attn", "self_attention/query_key_value", (width, 3 * width)),
            ("attn.c_proj", "self_attention/output", (width, width)),
            ("mlp.c_fc", "feed_forward/inner", (width, inner)),
            ("mlp.c_proj", "feed_forward/outer", (inner, width)),
        ):
            weights[f"{ours}/{ours_too}/kernel"] = tensors.take(f"{theirs}.{theirs_too}.weight", *shape)
            weights[f"{ours}/{ours_too}/bias"] = tensors.take(f"{theirs}.{theirs_too}.bias", shape[1])
        tensors.drop(f"{theirs}.attn.bias", f"{theirs}.attn.masked_bias")  # its causal mask
    tensors.drop("lm_head.weight")  # a copy of the tied table
    model = ModelConfig(
        num_layers=folder.setting("n_layer"), d_model=width, num_heads=folder.setting("n_head"), d_ff=inner,
        activation=_activation(folder, "activation_function"), norm_position="pre", positions="learned",
        embedding_scale=False, output_bias=True, max_length=length,
        norm_epsilon=folder.setting("layer_norm_epsilon", 1e-5),
        dropout=folder.setting("resid_pdrop", 0.1), attention_dropout=folder.setting("attn_pdrop", 0.1),
    )  # fmt: skip
    return Imported(_config("generate", model), (vocabulary.tokenizer(),), weights)


def marian(folder):
    """Convert a `MarianMTModel` (Junczys-Dowmunt et al. 2018) to a `Transformer`.

    The folder has one vocabulary with a SentencePiece model for each side, as in opus-mt, or one `tokenizer.json`.
    """
    folder.require(share_encoder_decoder_embeddings=True, tie_word_embeddings=True, normalize_embedding=False)
    width, layers, heads, inner, size = (
        folder.setting(name)
        for name in ("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "vocab_size")
    )
    folder.require(decoder_layers=layers, decoder_attention_heads=heads, decoder_ffn_dim=inner, decoder_vocab_size=size)
    folder.require(decoder_start_token_id=folder.setting("pad_token_id"))
    names = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[START]": None, "[END]": "</s>"}
    sides = read_sides(folder, ("<pad>", "<unk>", "</s>")) if (folder.path / SOURCE).is_file() else [Side()]
    vocabularies = [Vocabulary(folder, names, side) for side in sides]
    source, vocabulary, tensors = vocabularies[0], vocabularies[-1], folder.tensors
    shared = tensors.take("model.shared.weight", size, width)
    table = vocabulary.rows(shared)
    table[2] = table[0]  # Marian's decoder starts with padding, ours with a start token
    bias = vocabulary.rows(tensors.take("final_logits_bias", 1, size)[0], NEVER_WRITTEN)
    bias[0] = NEVER_WRITTEN
    weights = {"target_embedding/embeddings": table, "target_embedding/bias": bias}
    joint = source is vocabulary
    if not joint:
        weights["source_embedding/embeddings"] = source.rows(shared)
    for side in ("encoder", "decoder"):
        for index in range(layers):
            theirs, ours = f"model.{side}.layers.{index}", f"{side}/block_{index}"
            parts = [f"{theirs}.self_attn.{part}_proj" for part in "qkv"]
            weights |= _joined(tensors, parts, f"{ours}/self_attention/query_key_value", width)
            weights |= _linear(tensors, f"{theirs}.self_attn.out_proj", f"{ours}/self_attention/output", width, width)
            weights |= _norm(tensors, f"{theirs}.self_attn_layer_norm", f"{ours}/self_attention_residual/norm", width)
            weights |= _linear(tensors, f"{theirs}.fc1", f"{ours}/feed_forward/inner", width, inner)
            weights |= _linear(tensors, f"{theirs}.fc2", f"{ours}/feed_forward/outer", inner, width)
            weights |= _norm(tensors, f"{theirs}.final_layer_norm", f"{ours}/feed_forward_residual/norm", width)
            if side == "decoder":
                cross = f"{theirs}.encoder_attn"
                weights |= _linear(tensors, f"{cross}.q_proj", f"{ours}/cross_attention/query", width, width)
                parts = [f"{cross}.k_proj", f"{cross}.v_proj"]
                weights |= _joined(tensors, parts, f"{ours}/cross_attention/key_value", width)
                weights |= _linear(tensors, f"{cross}.out_proj", f"{ours}/cross_attention/output", width, width)
                weights |= _norm(tensors, f"{cross}_layer_norm", f"{ours}/cross_attention_residual/norm", width)
    # Copies of the shared table, and sinusoidal tables, which we compute.
    tensors.drop("model.encoder.embed_", "model.decoder.embed_", "lm_head.weight")
    model = ModelConfig(
        num_layers=layers, d_model=width, num_heads=heads, d_ff=inner, norm_position="post", norm_epsilon=1e-5,
        tie="all" if joint else "target",
        activation=_activation(folder, "activation_function"), positions="sinusoidal_concatenated", output_bias=True,
        embedding_scale=folder.setting("scale_embedding", False),
        max_length=folder.setting("max_position_embeddings"),
        dropout=folder.setting("dropout", 0.1), attention_dropout=folder.setting("attention_dropout", 0.0),
    )  # fmt: skip
    return Imported(
        _config("translate", model, joint), tuple(vocabulary.tokenizer() for vocabulary in vocabularies), weights
    )


ARCHITECTURES = {"bert": bert, "gpt2": gpt2, "marian": marian}


def _config(task, model, joint=True):
    data, tokenizer = DataConfig(max_tokens=min(100, model.max_length)), TokenizerConfig(joint=joint)
    return Config(task=task, name="imported", data=data, tokenizer=tokenizer, model=model)


def _activation(folder, name):
    value = folder.setting(name)
    if value not in ACTIVATIONS:
        raise InputError(
            f"{folder.path / 'config.json'}: the activation {value!r} is none of {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[value]


def _norm(tensors, theirs, ours, width):
    weight, bias = ("gamma", "beta") if f"{theirs}.gamma" in tensors else ("weight", "bias")  # old models: gamma, beta
    return {
        f"{ours}/gamma": tensors.take(f"{theirs}.{weight}", width),
        f"{ours}/beta": tensors.take(f"{theirs}.{bias}", width),
    }


def _linear(tensors, theirs, ours, inputs, outputs):
    return {
        f"{ours}/kernel": tensors.take(f"{theirs}.weight", outputs, inputs).T,
        f"{ours}/bias": tensors.take(f"{theirs}.bias", outputs),
    }


def _joined(tensors, parts, ours, width):
    """Return several projections of one input, concatenated."""
    each = [_linear(tensors, part, "it", width, width) for part in parts]
    return {
        f"{ours}/{name}": np.concatenate([one[f"it/{name}"] for one in each], axis=-1) for name in ("kernel", "bias")
    }
