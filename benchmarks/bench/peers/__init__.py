"""Other toolkits, each as an update on a batch: the same sizes, loss and optimizer, written as its authors do.

The docstring of each peer names its differences from ours. A peer counts as installed if all of its `MODULES` are;
it is imported only when it is measured.
"""

from typing import Any

from benchmarks.bench.peers.eole import Eole
from benchmarks.bench.peers.hugging_face import HuggingFace
from benchmarks.bench.peers.joeynmt import JoeyNMT
from benchmarks.bench.peers.keras_hub import KerasHub
from benchmarks.bench.peers.torch_loop import TorchLoop, TutorialLoop

PEERS: dict[str, Any] = {
    "torch": TorchLoop,
    "tutorial_loop": TutorialLoop,
    "transformers": HuggingFace,
    "eole": Eole,
    "joeynmt": JoeyNMT,
    "keras_hub": KerasHub,
}
