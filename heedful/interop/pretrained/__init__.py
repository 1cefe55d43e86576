"""Import of pretrained models, mainly from folders in the Hugging Face layout."""

from heedful.interop.pretrained.importing import import_model

__all__ = ["import_model"]
