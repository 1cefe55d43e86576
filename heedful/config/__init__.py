"""The configuration of a run: frozen dataclasses, checked when they are created; TOML and JSON in, JSON out."""

from heedful.config.data import PARTS, DataConfig, TokenizerConfig
from heedful.config.decode import OF_SOURCE, DecodeConfig
from heedful.config.model import SET_BY_SIZE, SIZES, ModelConfig
from heedful.config.run import FORMAT, Config, read_recipe
from heedful.config.train import TrainConfig

__all__ = [
    "FORMAT", "OF_SOURCE", "PARTS", "SET_BY_SIZE", "SIZES", "Config", "DataConfig", "DecodeConfig", "ModelConfig",
    "TokenizerConfig", "TrainConfig", "read_recipe",
]  # fmt: skip
