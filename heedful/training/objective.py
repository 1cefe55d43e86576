"""A model together with what it is trained for: the thing that `fit` fits.

Axes: B batch, T target length, D d_model, V vocabulary.
"""

import keras
from keras import ops

from heedful.training.loss import projected_crossentropy
from heedful.training.metrics import Perplexity, TokenAccuracy, TokenMean


def batch_sums(model, batch, label_smoothing=0.0, training=False):
    """Return the four sums (4,) of `projected_crossentropy` for what a model makes of a batch with its labels."""
    features, output = model.features(batch, training=training), model.output_projection
    return projected_crossentropy(
        features, output.embeddings, batch["labels"], batch["weights"], label_smoothing, bias=output.bias
    )


@keras.saving.register_keras_serializable("heedful")
class Objective(keras.Model):
    """The training loss of a model, from features straight to summed cross-entropy.

    Its input is a whole batch: what the model reads, `labels` and `weights` (B, T), and for training
    `update_tokens` (1,), the number of tokens of the update that the batch belongs to. Dividing by that, and not by
    the tokens of the batch, weighs accumulated batches by their tokens.

    Args:
        model: has `features(inputs, training)` -> (B, T, D) and `output_projection`.
        label_smoothing: from 0 up to 1.
        micro_batches: batches that make one update; Keras takes the mean of their gradients.
    """

    def __init__(self, model, label_smoothing=0.0, micro_batches=1):
        # float32, or Keras would round weights and token counts to the model's compute type
        super().__init__(name="objective", dtype="float32")
        self.model = model
        self.label_smoothing, self.micro_batches = label_smoothing, micro_batches
        # The first is what validation measures too; the second is what is minimised.
        self.loss_mean, self.smoothed_loss = TokenMean(name="loss"), TokenMean(name="smoothed_loss")
        self.accuracy, self.perplexity = TokenAccuracy(), Perplexity()
        self.built = True

    def build(self, input_shape=None):
        """Nothing to do: the model is built already."""

    def call(self, batch, training=None):
        """Return the four sums of `projected_crossentropy` (4,)."""
        return batch_sums(self.model, batch, self.label_smoothing, training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Return the loss whose gradient makes the update, and count the metrics."""
        smoothed, nll, right, tokens = (y_pred[i] for i in range(4))
        self.loss_mean.add(nll, tokens)
        self.smoothed_loss.add(smoothed, tokens)
        self.perplexity.add(nll, tokens)
        self.accuracy.add(right, tokens)
        return self.micro_batches * smoothed / ops.cast(x["update_tokens"][0], "float32")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()

    def get_metrics_result(self):
        """Return means over all tokens since the last reset."""
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self):
        return [self.loss_mean, self.smoothed_loss, self.accuracy, self.perplexity]

    def get_config(self):
        model = keras.saving.serialize_keras_object(self.model)
        return {"model": model, "label_smoothing": self.label_smoothing, "micro_batches": self.micro_batches}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"model": keras.saving.deserialize_keras_object(config["model"])})
