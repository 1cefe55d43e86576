"""Models that were saved are loaded in a new process, with `import heedful` alone."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from heedful import backend
from heedful.core import keras_registry
from heedful.layers import EncoderBlock, TokenEmbedding
from heedful.models import CausalLM, Classifier, MaskedLM, Transformer
from heedful.training.loss import TokenCrossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy
from heedful.training.optimizer import adam
from heedful.training.schedule import Schedule

SIZES = {"num_layers": 1, "d_model": 6, "num_heads": 2, "d_ff": 10, "max_length": 13}
IDS = np.array([[3, 4, 5, 6, 7, 0, 0], [8, 9, 4, 0, 0, 0, 0]], "int32")
LOAD = """
import {modules}
import sys
import numpy as np
ids = np.array({ids}, "int32")
for path in sys.argv[1:]:
    inputs = {{"source": ids, "target": ids}} if "Transformer" in path else ids
    if path.endswith(".weights.h5"):
        model = heedful.CausalLM(11, **{sizes})
        model.load_weights(path)
    else:
        model = keras.saving.load_model(path)
        assert type(model.loss).__name__ == "TokenCrossentropy" or "Classifier" in path
    np.save(path + ".npy", keras.ops.convert_to_numpy(model(inputs)))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Trained models in all three formats; their outputs by path."""
    folder = tmp_path_factory.mktemp("saved")
    models = {
        "Transformer": Transformer(11, 11, **SIZES),
        "CausalLM": CausalLM(11, **SIZES),
        "MaskedLM": MaskedLM(11, **SIZES),
        "Classifier": Classifier(11, 11, **SIZES),
        "Sequential": keras.Sequential([TokenEmbedding(11, 6), EncoderBlock(6, 2, 10), keras.layers.Dense(11)]),
    }
    outputs = {}
    for name, model in models.items():
        inputs = {"source": IDS, "target": IDS} if name == "Transformer" else IDS
        if name == "Classifier":
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        else:
            metrics = {"metrics": [TokenAccuracy()], "weighted_metrics": [Perplexity()]}
            model.compile(adam(Schedule("paper", 1.0, 2, 6), weight_decay=0.1), TokenCrossentropy(0.1), **metrics)
            model.fit(inputs, IDS, verbose=0)
        for ending in ("keras", "h5"):
            model.save(folder / f"{name}.{ending}")
            outputs[str(folder / f"{name}.{ending}")] = backend.to_numpy(model(inputs))
    models["CausalLM"].save_weights(folder / "CausalLM.weights.h5")
    outputs[str(folder / "CausalLM.weights.h5")] = outputs[str(folder / "CausalLM.keras")]
    return outputs


@pytest.mark.slow
@pytest.mark.parametrize("modules", [
    "keras, heedful", pytest.param("heedful, keras", marks=[pytest.mark.any_backend, pytest.mark.slow]),
    pytest.param("heedful.layers, keras", marks=[pytest.mark.any_backend, pytest.mark.slow]),
])  # fmt: skip
def test_a_new_process_loads_what_was_saved(modules, saved):
    """In heedful 0.1.0 `load_model` could not locate the classes, of whole `.h5` files not even after their import."""
    code = LOAD.format(modules=modules, ids=IDS.tolist(), sizes=SIZES)
    subprocess.run([sys.executable, "-c", code, *saved], check=True)
    for path, out in saved.items():
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
