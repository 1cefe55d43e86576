"""What people use today, each as an update on a batch: the same sizes, loss and optimizer, written as its makers do.

Where a peer is not what ours is, its docstring says so. A peer is imported when it is measured; it is installed where
all of its `MODULES` are.
"""

from heedful.bench.peers.eole import Eole
from heedful.bench.peers.hugging_face import HuggingFace
from heedful.bench.peers.joeynmt import JoeyNMT
from heedful.bench.peers.keras_hub import KerasHub
from heedful.bench.peers.torch_loop import TorchLoop, TutorialLoop

PEERS = {
    "torch": TorchLoop,
    "tutorial_loop": TutorialLoop,
    "transformers": HuggingFace,
    "eole": Eole,
    "joeynmt": JoeyNMT,
    "keras_hub": KerasHub,
}
