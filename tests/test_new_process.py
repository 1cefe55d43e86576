"""Models that were saved are loaded in a new process, with `import heedful` alone."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from heedful import keras_registry
from heedful.layers import EncoderBlock, TokenEmbedding
from heedful.models import CausalLM, Classifier, MaskedLM, Transformer
from heedful.training.loss import TokenCrossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy
from heedful.training.optimizer import Schedule, adam

SIZES = {"num_layers": 1, "d_model": 6, "num_heads": 2, "d_ff": 10, "max_length": 13}
IDS = np.array([[3, 4, 5, 6, 7, 0, 0], [8, 9, 4, 0, 0, 0, 0]], "int32")
LOAD = """
import {modules}
import sys
import numpy as np
loaded = [keras.saving.load_model(path) for path in sys.argv[1:]]
ids = np.array({ids}, "int32")
for path, model in zip(sys.argv[1:], loaded):
    inputs = {{"source": ids, "target": ids}} if "Transformer" in path else ids
    np.save(path + ".npy", keras.ops.convert_to_numpy(model(inputs)))
    assert type(model.loss).__name__ == "TokenCrossentropy" or "Classifier" in path
"""


@pytest.mark.any_backend
@pytest.mark.parametrize("modules", ["heedful, keras", "keras, heedful", "heedful.layers, keras"])
def test_a_new_process_loads_what_was_saved(modules, tmp_path, numpy):
    """In heedful 0.1.0 `load_model` could not locate the classes, of whole `.h5` files not even after their import."""
    models = {
        "Transformer": Transformer(11, 11, **SIZES),
        "CausalLM": CausalLM(11, **SIZES),
        "MaskedLM": MaskedLM(11, **SIZES),
        "Classifier": Classifier(11, 11, **SIZES),
        "Sequential": keras.Sequential([TokenEmbedding(11, 6), EncoderBlock(6, 2, 10), keras.layers.Dense(11)]),
    }
    wanted = {}
    for name, model in models.items():
        inputs = {"source": IDS, "target": IDS} if name == "Transformer" else IDS
        if name == "Classifier":
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        else:
            metrics = {"metrics": [TokenAccuracy()], "weighted_metrics": [Perplexity()]}
            model.compile(adam(Schedule("paper", 1.0, 2, 6), weight_decay=0.1), TokenCrossentropy(0.1), **metrics)
            model.fit(inputs, IDS, verbose=0)
        for ending in ("keras", "h5"):
            model.save(tmp_path / f"{name}.{ending}")
            wanted[str(tmp_path / f"{name}.{ending}")] = numpy(model(inputs))
    code = LOAD.format(modules=modules, ids=IDS.tolist())
    subprocess.run([sys.executable, "-c", code, *wanted], check=True)
    for path, out in wanted.items():
        np.testing.assert_array_equal(np.load(f"{path}.npy"), out, path)


@pytest.mark.any_backend
def test_every_registered_class_is_known_by_name():
    """Guards the list of names against new classes."""
    registered = {
        (thing.__module__, name.removeprefix("heedful>"))
        for name, thing in keras.saving.get_custom_objects().items()
        if name.startswith("heedful>") and not isinstance(thing, keras_registry.Awaited)
    }
    named = {name: module for module, names in keras_registry.MODULES.items() for name in names}
    assert {name for _, name in registered} <= named.keys()
    for module, name in registered:
        assert module.startswith(named[name])
