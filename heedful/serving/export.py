"""A trained run as a CTranslate2 model, built through CTranslate2's own specification classes.

Axes: S positions, D d_model, V vocabulary.
"""

import dataclasses
import json
import shutil
import time
from pathlib import Path

import keras
import numpy as np

from heedful import backend
from heedful.errors import InputError
from heedful.evaluation import score_text
from heedful.generation.translator import Translator
from heedful.layers import sinusoid
from heedful.serving.engine import ORIGIN, ctranslate2, ctranslate2_translator, exported_weights
from heedful.storage import write_text

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int16", "float16", "bfloat16")
PARITY = "parity.json"  # how alike both engines translate
OWN_FILES = ("model.bin", "config.json", ORIGIN, PARITY)  # besides vocabularies
MOST_DIFFERENT = 0.01  # of the translations, which may differ where two tokens are equally likely to rounding
MOST_SCORE_DIFFERENCE = 1e-3  # nats, between the scores of equal translations


def export(run, folder, quantization="float32"):
    """Write a `Run` as a CTranslate2 model into `folder`.

    Raises:
        InputError: CTranslate2 is not installed, cannot express an option of the model, or does not know the
            quantization; or the folder holds something else.
    """
    engine = ctranslate2()
    folder = Path(folder)
    _require_quantization(quantization)
    _refuse_foreign(folder)
    specification = specify(run, engine)
    specification.validate()
    specification.optimize(quantization=None if quantization == "float32" else quantization)
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        specification.save(str(aside))
        (aside / ORIGIN).write_text(json.dumps({"weights": run.weights_fingerprint()}) + "\n", encoding="utf-8")
        _move(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _require_quantization(name):
    if name not in QUANTIZATIONS:
        raise InputError(f"Unknown quantization {name!r}: choose one of {', '.join(QUANTIZATIONS)}.")


def _refuse_foreign(folder):
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in names if name not in OWN_FILES and not name.endswith("_vocabulary.json")]
    if names and (foreign or exported_weights(folder) is None):
        raise InputError(
            f"{folder} holds {(foreign or names)[0]}, which heedful has not exported: choose another folder."
        )


def _move(made, folder):
    """Put an exported model where an earlier one may be."""
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def specify(run, engine):
    """Return the `TransformerSpec` of a run's trained model, vocabularies included."""
    specs = engine.specs
    config, model = run.config.model, run.load_model()
    bends = {
        "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "geglu": "GELU", "swiglu": "SWISH",
    }  # fmt: skip
    options = {
        "pre_norm": config.norm == "pre",
        "activation": getattr(specs.common_spec.Activation, bends[config.activation]),
        "ffn_glu": config.activation.endswith("glu"),
        "rms_norm": config.norm_kind == "rms",
        "layernorm_embedding": config.embedding_norm,
        "num_heads_kv": config.num_kv_heads if config.num_kv_heads not in (None, config.num_heads) else None,
    }
    if config.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False}
    sizes = config.num_layers, config.num_heads
    specification = specs.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(*sizes, **options),
        specs.transformer_spec.TransformerDecoderSpec(*sizes, **options),
    )
    _fill_side(specification.encoder, model, "source")
    _fill_side(specification.decoder, model, "target")
    specification.encoder.embeddings[0].weight = _array(model.source_embedding.embeddings)
    specification.decoder.embeddings.weight = _array(model.target_embedding.embeddings)
    specification.decoder.projection.weight = _array(model.output_projection.embeddings)
    if model.output_projection.bias is not None:
        specification.decoder.projection.bias = _array(model.output_projection.bias)
    specification.encoder.scale_embeddings = specification.decoder.scale_embeddings = config.embedding_scale
    for spec, block in zip(specification.encoder.layer, model.encoder.blocks, strict=True):
        _fill_block(spec, block)
    for spec, block in zip(specification.decoder.layer, model.decoder.blocks, strict=True):
        _fill_block(spec, block)
        attention = block.cross_attention
        projections = attention.query_projection, attention.key_value_projection, attention.output_projection
        for linear, projection in zip(spec.attention.linear, projections, strict=True):
            _fill_linear(linear, projection)
        _fill_norm(spec.attention.layer_norm, block.cross_residual.norm)
    for tokenizer, register in (
        (run.source_tokenizer, specification.register_source_vocabulary),
        (run.target_tokenizer, specification.register_target_vocabulary),
    ):
        register([tokenizer.lookup(i) for i in range(len(tokenizer))])
    tokens = {"unk_token": "[UNK]", "bos_token": "[START]", "eos_token": "[END]", "decoder_start_token": "[START]"}
    for name, value in (tokens | {"add_source_eos": True, "layer_norm_epsilon": config.norm_epsilon}).items():
        setattr(specification.config, name, value)
    return specification


def check_parity(run, folder, pairs, report=print):
    """Translate `pairs` with both engines, greedily and with a beam of 4, and compare.

    Args:
        run: the exported `Run`.
        folder: its CTranslate2 model.
        pairs: (source, reference) texts.
        report: called with a line for each search.

    Returns:
        A list of dicts: search, identical (share of equal translations), score_difference (largest, in nats, between
        equal translations), bleu and bleu_ctranslate2.
    """
    config, lowercase = run.config.decode, run.target_tokenizer.lowercase
    lines, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    results = []
    for beam_size in (1, 4):
        # Plain log-probabilities and one limit for all: what both engines mean the same by.
        decode = dataclasses.replace(
            config, beam_size=beam_size, n_best=1, length_penalty=0.0, coverage_penalty=0.0, stop="attainable",
            sample=False, min_ratio=0.0, min_p=0.0, precision="float32", max_ratio=1e6,
            max_length=run.config.model.max_length,
        )  # fmt: skip
        own = Translator.from_run(run)
        own.decode = decode
        other = ctranslate2_translator(run, decode, folder)
        ours, theirs = own.n_best(lines), other.n_best(lines)
        same = [one[0][0] == two[0][0] for one, two in zip(ours, theirs, strict=True)]
        differences = [abs(one[0][1] - two[0][1]) for one, two, equal in zip(ours, theirs, same, strict=True) if equal]
        result = {
            "search": "greedy" if beam_size == 1 else f"beam {beam_size}",
            "sentences": len(lines),
            "identical": sum(same) / len(same),
            "score_difference": max(differences, default=0.0),
            "bleu": score_text([candidates[0][0] for candidates in ours], references, lowercase)["bleu"],
            "bleu_ctranslate2": score_text([candidates[0][0] for candidates in theirs], references, lowercase)["bleu"],
        }
        report(
            f"{result['search']}: {result['identical']:.2%} of {len(lines)} translations identical, largest difference "
            f"of their scores {result['score_difference']:.1e}, BLEU {result['bleu']:.2f} and "
            f"{result['bleu_ctranslate2']:.2f} on CTranslate2"
        )
        results.append(result)
    return results


def export_checked(run, folder, pairs, quantization="float32", report=print):
    """Export a run and let it pass the parity gate; the result stands in `parity.json` beside the model.

    Quantized weights are other weights: for them the comparison is reported, and float32 must pass before.

    Raises:
        InputError: the two engines differ by more than rounding; or as `export`.
    """
    folder, began = Path(folder).resolve(), time.monotonic()  # "." has no name to put another beside
    _require_quantization(quantization)  # which is exported last
    _refuse_foreign(folder)
    tried = folder.with_name(f".{folder.name}.tried")  # an earlier export stays until this one has passed
    try:
        export(run, tried)
        results = check_parity(run, tried, pairs, report)
        failed = [
            result for result in results
            if result["identical"] < 1 - MOST_DIFFERENT or result["score_difference"] > MOST_SCORE_DIFFERENCE
        ]  # fmt: skip
        if failed:
            raise InputError(
                f"CTranslate2 does not translate as heedful does ({failed[0]['search']}: "
                f"{failed[0]['identical']:.2%} identical, scores differ by {failed[0]['score_difference']:.1e}); "
                "the export was not kept."
            )
        if quantization != "float32":
            export(run, tried, quantization)
            report(f"{quantization}, which changes the weights:")
            results += [result | {"quantization": quantization} for result in check_parity(run, tried, pairs, report)]
        write_text(tried / PARITY, json.dumps(results, indent=2) + "\n")
        _move(tried, folder)
    finally:
        shutil.rmtree(tried, ignore_errors=True)
    report(f"parity checked in {time.monotonic() - began:.0f} s; model in {folder}")
    report(
        "identical translations: "
        + ", ".join(f"{result['search']} {result['identical']:.2%}" for result in results)
        + f" of {len(pairs):,}"
    )
    return results


def _fill_side(spec, model, side):
    text_input = getattr(model, f"{side}_input")
    if (positions := text_input.positions) is not None:
        length = model.max_length + 1
        learned = getattr(positions, "embeddings", None)
        if learned is not None:
            table = _array(learned)
        else:
            table = np.asarray(backend.to_numpy(sinusoid(np.arange(length), model.d_model, positions.concatenated)))
        spec.position_encodings.encodings = table
    if text_input.norm is not None:
        _fill_norm(spec.layernorm_embedding, text_input.norm)
    stack = model.encoder if side == "source" else model.decoder
    if stack.final_norm is not None:
        _fill_norm(spec.layer_norm, stack.final_norm)


def _fill_block(spec, block):
    attention = block.attention
    projections = attention.joint_projection, attention.output_projection
    for linear, projection in zip(spec.self_attention.linear, projections, strict=True):
        _fill_linear(linear, projection)
    _fill_norm(spec.self_attention.layer_norm, block.attention_residual.norm)
    _fill_linear(spec.ffn.linear_0, block.feed_forward.inner)
    _fill_linear(spec.ffn.linear_1, block.feed_forward.outer)
    if block.feed_forward.gate:
        _fill_linear(spec.ffn.linear_0_noact, block.feed_forward.gate)
    _fill_norm(spec.ffn.layer_norm, block.feed_forward_residual.norm)


def _fill_linear(spec, projection):
    spec.weight = np.ascontiguousarray(_array(projection.kernel).T)
    if projection.use_bias:
        spec.bias = _array(projection.bias)


def _fill_norm(spec, norm):
    if isinstance(norm, keras.layers.RMSNormalization):
        spec.gamma = _array(norm.scale)
        return
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta) if norm.center else np.zeros_like(spec.gamma)


def _array(variable):
    return np.asarray(backend.to_numpy(variable), np.float32)
