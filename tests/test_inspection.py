"""Figures: training curves."""

import json

import matplotlib.image
import numpy as np
import pytest

import heedful
from heedful.core.errors import InputError
from heedful.inspection.figures import curves, draw_curves
from heedful.inspection.style import DPI, STYLE
from heedful.inspection.translation import TranslationInspection
from heedful.layers import Trace

pytestmark = pytest.mark.any_backend

LOG = [
    {"update": 500 * n, "loss": 4.0 / n, "valid_loss": 3.0 / n, "valid_bleu": 30.0 * n, "valid_chrf": 25.0 * n,
     "accuracy": 0.3 * n, "valid_accuracy": 0.2 * n, "tokens_per_second": 12_345.0}
    for n in (1, 2, 3)
]  # fmt: skip


def shown(figure):
    """Return {title of a panel: {label of a line: its values}}."""
    return {
        axis.get_title(): {line.get_label(): list(line.get_ydata()) for line in axis.lines}
        for axis in figure.axes
        if axis.lines
    }


def test_quantities_of_different_units_have_separate_axes():
    """Guards accuracy (0 to 1): heedful 0.1.0 drew it as a flat line on the axis of BLEU (0 to 100)."""
    panels = shown(curves(LOG))
    assert panels["translation (score of 100)"] == {"BLEU": [30, 60, 90], "chrF": [25, 50, 75]}
    assert panels["accuracy (%)"]["validation"] == pytest.approx([20, 40, 60])
    assert panels["loss (nats per token)"] == {"training": [4, 2, 4 / 3], "validation": [3, 1.5, 1]}
    assert list(panels) == [
        "loss (nats per token)", "translation (score of 100)", "accuracy (%)", "speed (tokens/s)",
    ]  # fmt: skip


def test_only_quantities_in_the_log_have_panels():
    log = [{name: value for name, value in entry.items() if name in ("update", "valid_loss")} for entry in LOG]
    assert shown(curves(log)) == {"loss (nats per token)": {"validation": [3, 1.5, 1]}}


def test_curves_are_legible_at_half_size(tmp_path):
    """Letters are at least 9 pixels high at half size, and tick labels of thousands do not overlap."""
    picture = matplotlib.image.imread(draw_curves(tmp_path / "curves.png", LOG))
    height, width, _ = picture.shape
    assert width <= 1300  # a page shows it at half size
    assert 0.5 * STYLE["font.size"] * DPI / 72 > 9
    assert np.ptp(picture[..., :3]) > 0.9
    assert height < width


def test_an_inspection_is_plain_data_and_right(whole):
    """Attention of every layer and head, and the probabilities of the written tokens, as scoring gives them."""
    translator = heedful.load(whole.path)
    source, target = "o gato bebe", "the cat drinks"
    found = TranslationInspection.of(translator, source, target)
    assert found.translation == target
    [scores] = translator.score([source], [target])
    assert found.log_probabilities == pytest.approx(scores.tolist(), abs=1e-4)
    for kind in ("encoder self", "decoder self", "cross"):
        weights, rows, columns = found.heads(kind, 1)
        assert weights.shape == (2, len(rows), len(columns))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    for token, score, candidates in zip(found.written_tokens, found.log_probabilities, found.alternatives, strict=True):
        best = [candidate.probability for candidate in candidates]
        assert best == sorted(best, reverse=True)
        for candidate in candidates:
            if candidate.token == token:
                assert np.log(candidate.probability) == pytest.approx(score, abs=1e-6)
    again = json.loads(json.dumps(found.as_dict()))
    assert again["source_tokens"][-1] == "[END]"
    np.testing.assert_allclose(again["attention"]["cross"], found.attention["cross"])
    with pytest.raises(InputError, match="There is no layer 2: cross attention has layers 1 to 1"):
        found.heads("cross", 2)


def test_a_trace_records_what_is_asked_for(whole):
    model, ids = whole.load_model(), np.array([[5, 6, 3]])
    trace = Trace(("output",))
    model((ids, ids), trace=trace)
    assert sorted(trace) == ["decoder/block_0", "encoder/block_0"]
    assert trace["encoder/block_0"].shape == (1, 3, 16)
    both = Trace(("attention", "output"))
    model((ids, ids), trace=both)
    assert len(list(both)) == 2 + 3
