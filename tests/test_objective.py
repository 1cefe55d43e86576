"""The model that `fit` trains."""

import keras
import numpy as np
import pytest

import heedful
from heedful.config import TrainConfig
from heedful.training.objective import Objective, training_objective, with_update_tokens
from tests.conftest import fast

SIZES = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 10}
IDS = np.array([[5, 6, 7], [8, 9, 0]], np.int32)
MODELS = {
    "translate": (lambda: heedful.Transformer(11, 11, **SIZES), {"source": IDS, "target": IDS, "labels": IDS}),
    "generate": (lambda: heedful.CausalLM(11, **SIZES), {"ids": IDS, "labels": IDS}),
    "classify, mean": (lambda: heedful.Classifier(11, 3, **SIZES), {"ids": IDS, "labels": IDS[:, :1] % 3}),
    "classify, first": (
        lambda: heedful.Classifier(11, 3, pooling="first", **SIZES), {"ids": IDS, "labels": IDS[:, :1] % 3},
    ),
}  # fmt: skip


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="counts traces of JAX")
@pytest.mark.parametrize("name", fast(MODELS, 1))
def test_only_the_first_fit_traces_the_model(name, monkeypatch):
    """Keras traces a model with an unbuilt layer in every `fit`, and a training calls `fit` at each validation."""
    new_model, batch = MODELS[name]
    objective = training_objective(new_model(), TrainConfig(warmup_updates=1))
    batch = with_update_tokens([batch | {"weights": np.ones(batch["labels"].shape, np.float32)}])[0]
    called = []
    call = Objective.call
    monkeypatch.setattr(Objective, "call", lambda self, *given, **more: called.append(1) or call(self, *given, **more))
    for _ in range(3):
        objective.fit(((batch,) for _ in range(1)), steps_per_epoch=1, epochs=1, verbose=0, shuffle=False)
    assert len(called) == 1
