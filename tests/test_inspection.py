"""Figures: the curves of a training."""

import matplotlib.image
import numpy as np
import pytest

from heedful.inspection import STYLE, curves, plot_curves

pytestmark = pytest.mark.any_backend

LOG = [
    {"update": 500 * n, "loss": 4.0 / n, "valid_loss": 3.0 / n, "valid_bleu": 30.0 * n, "valid_chrf": 25.0 * n,
     "accuracy": 0.3 * n, "valid_accuracy": 0.2 * n, "tokens_per_second": 12_345.0}
    for n in (1, 2, 3)
]  # fmt: skip


def shown(figure):
    """Return, by the title of each panel, its lines by label: lists of values."""
    return {
        axis.get_title(): {line.get_label(): list(line.get_ydata()) for line in axis.lines}
        for axis in figure.axes
        if axis.lines
    }


def test_quantities_of_different_units_have_axes_of_their_own():
    """Guards accuracy, 0 to 1, which heedful 0.1.0 drew on the axis of BLEU, 0 to 100: a line at the bottom."""
    panels = shown(curves(LOG))
    assert panels["translation (score of 100)"] == {"BLEU": [30, 60, 90], "chrF": [25, 50, 75]}
    assert panels["accuracy (%)"]["validation"] == pytest.approx([20, 40, 60])
    assert panels["loss (nats per token)"] == {"training": [4, 2, 4 / 3], "validation": [3, 1.5, 1]}
    assert list(panels) == [
        "loss (nats per token)", "translation (score of 100)", "accuracy (%)", "speed (tokens/s)",
    ]  # fmt: skip


def test_a_task_has_the_panels_that_its_log_fills():
    log = [{name: value for name, value in entry.items() if name in ("update", "valid_loss")} for entry in LOG]
    assert shown(curves(log)) == {"loss (nats per token)": {"validation": [3, 1.5, 1]}}


def test_curves_are_legible_at_half_size(tmp_path):
    """Letters are 9 pixels or more high at half the size, and ticks of thousands do not run into each other."""
    picture = matplotlib.image.imread(plot_curves(tmp_path / "curves.png", LOG))
    height, width, _ = picture.shape
    assert width <= 1300  # so that half of it is no thumbnail of a poster
    assert 0.5 * STYLE["font.size"] * 110 / 72 > 9
    assert np.ptp(picture[..., :3]) > 0.9
    assert height < width
