"""Complete models, with one forward path each."""

from heedful.models.causal_lm import CausalLM
from heedful.models.masked_lm import Classifier, MaskedLM
from heedful.models.transformer import Transformer

__all__ = ["CausalLM", "Classifier", "MaskedLM", "Transformer"]
