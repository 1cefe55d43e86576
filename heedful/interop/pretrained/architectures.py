"""The supported classes of pretrained models, by their `model_type`; an export takes the first one that fits."""

from heedful.interop.pretrained.bert_like import BERT, DISTILBERT, ROBERTA, XLM_ROBERTA
from heedful.interop.pretrained.language_models import GPT2, Llama, Qwen3
from heedful.interop.pretrained.translators import BART, BLENDERBOT, MARIAN, MBART, PEGASUS

LAYOUTS = {
    layout.kind: layout
    for layout in (
        BERT, DISTILBERT, ROBERTA, XLM_ROBERTA, GPT2(), Qwen3(), Llama(), MARIAN, PEGASUS, BART, MBART, BLENDERBOT,
    )
}  # fmt: skip
