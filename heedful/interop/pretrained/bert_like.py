"""The names that BERT and its relatives give to settings and tensors in the Hugging Face layout."""

from typing import Any

from heedful.interop.pretrained.encoders import BlockNames, EncoderLayout, HeadNames

_BLOCK = BlockNames(
    tuple(f"encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value")),  # type: ignore[arg-type]
    "encoder.layer.{}.attention.output.dense", "encoder.layer.{}.attention.output.LayerNorm",
    "encoder.layer.{}.intermediate.dense", "encoder.layer.{}.output.dense", "encoder.layer.{}.output.LayerNorm",
)  # fmt: skip
_SETTINGS = {
    "num_layers": "num_hidden_layers", "d_model": "hidden_size", "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size", "max_length": "max_position_embeddings", "activation": "hidden_act",
    "norm_epsilon": "layer_norm_eps", "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}  # fmt: skip
_ROBERTA: dict[str, Any] = {
    "stem": "roberta.", "block": _BLOCK, "settings": _SETTINGS, "skipped": 2,
    "masked": HeadNames("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight"),
    "classes_head": ("classifier.dense", "classifier.out_proj"),
    "specials": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    "required": {"position_embedding_type": "absolute", "is_decoder": False, "hidden_act": "gelu",
                 "pad_token_id": 1},  # positions begin after that number
}  # fmt: skip

BERT = EncoderLayout(
    "bert", "Bert", "bert.", _BLOCK, _SETTINGS,
    HeadNames("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias",
              "cls.predictions.decoder.weight"),
    ("bert.pooler.dense", "classifier"),
    required={"position_embedding_type": "absolute", "is_decoder": False},
)  # fmt: skip
ROBERTA, XLM_ROBERTA = (
    EncoderLayout(kind, name, **_ROBERTA) for kind, name in (("roberta", "Roberta"), ("xlm-roberta", "XLMRoberta"))
)
DISTILBERT = EncoderLayout(
    "distilbert", "DistilBert", "distilbert.",
    BlockNames(
        tuple(f"transformer.layer.{{}}.attention.{part}_lin" for part in "qkv"),  # type: ignore[arg-type]
        "transformer.layer.{}.attention.out_lin", "transformer.layer.{}.sa_layer_norm",
        "transformer.layer.{}.ffn.lin1", "transformer.layer.{}.ffn.lin2", "transformer.layer.{}.output_layer_norm",
    ),
    {"num_layers": "n_layers", "d_model": "dim", "num_heads": "n_heads", "d_ff": "hidden_dim",
     "max_length": "max_position_embeddings", "activation": "activation", "dropout": "dropout",
     "attention_dropout": "attention_dropout"},
    HeadNames("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight"),
    ("pre_classifier", "classifier"), hidden_activation="relu", segments=False,
)  # fmt: skip
