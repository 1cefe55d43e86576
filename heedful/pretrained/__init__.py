"""Models that others have trained: from a folder in the layout of Hugging Face to a run of ours."""

from heedful.pretrained.importing import import_model

__all__ = ["import_model"]
