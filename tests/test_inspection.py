"""Figures: training curves."""

import matplotlib.image
import numpy as np
import pytest

from heedful.inspection.figures import curves, draw_curves
from heedful.inspection.style import DPI, STYLE

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
