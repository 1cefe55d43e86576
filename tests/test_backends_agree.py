"""The three backends compute the same logits and loss from the same weights and batch."""

import numpy as np
import pytest

from tests.make_golden import MODELS, PATH, one_sided_outputs, outputs

pytestmark = pytest.mark.usefixtures("optimized")


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_loss_match_the_golden_values(name):
    golden = np.load(PATH)
    logits, sums = outputs(MODELS[name])
    np.testing.assert_allclose(logits, golden[f"{name}/logits"], atol=1e-5)
    np.testing.assert_allclose(sums, golden[f"{name}/sums"], rtol=1e-5)


def test_one_sided_models_match_the_golden_values():
    golden = np.load(PATH)
    for index, array in enumerate(one_sided_outputs()):
        np.testing.assert_allclose(array, golden[f"one-sided/{index}"], atol=1e-5, rtol=1e-5)
