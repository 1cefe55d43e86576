"""Cross-entropy over a large vocabulary: integer targets, token weights, label smoothing in closed form.

Axes: B batch, T length, N = B x T tokens, P tokens in one chunk, D d_model, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Tensor
from heedful.core.special_tokens import PAD_ID
from heedful.data.lengths import round_up
from heedful.layers.embeddings import writable
from heedful.training.consistency import Consistency

CHUNK = 256  # tokens whose logits fit into a CPU's caches, see docs/performance.md
ACCELERATED_CHUNK = 4096  # on an accelerator, where small products one after the other leave most of it idle
CHUNK_STEP = 128  # a chunk there has a multiple of these tokens, as matrix products prefer
MAX_LOGITS = 1 << 28  # logits in a chunk: a gigabyte
LARGE = 1 << 14  # vocabulary size above which half as many tokens are as fast and take less memory


@keras.saving.register_keras_serializable("heedful")
class TokenCrossentropy(keras.losses.Loss):
    """Label-smoothed cross-entropy of integer targets, averaged over the tokens with weight.

    For `compile(loss=...)` on any model that returns logits. Tokens whose label is `ignored_label` do not count, nor do
    those that `sample_weight` or the Keras mask of the logits excludes: the loss of a batch is the sum of weight times
    loss over the sum of weights, in tokens. Keras averages batches by their rows, whatever their weights: what `fit`
    and `evaluate` print is not the mean over all tokens, which is the logarithm of `Perplexity`.

    With smoothing e the target distribution is (1 - e) one-hot + e / V uniform (Szegedy et al. 2016, section 7; e = 0.1
    in Vaswani et al. 2017, section 5.4). V counts only words that may be generated: an imported model can exclude
    others by the bias `NEVER_WRITTEN`. The `class_weight` of `fit` is not for tokens: Keras would weight whole texts.

    Args:
        label_smoothing: e, from 0 up to 1.
        ignored_label: the label of padding; None: every label counts.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        name: str = "token_crossentropy",
        ignored_label: int | None = PAD_ID,
        **kwargs: Any,
    ):
        kwargs.setdefault("reduction", "mean_with_sample_weight")
        super().__init__(name=name, **kwargs)
        self.label_smoothing, self.ignored_label = label_smoothing, ignored_label

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        y_true = ops.convert_to_tensor(y_true)
        if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == 1:  # as Keras' own losses accept
            y_true = ops.squeeze(y_true, -1)
        return super().__call__(y_true, y_pred, label_weights(y_true, sample_weight, self.ignored_label))

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each token (B, T) from targets (B, T) and logits (B, T, V)."""
        logits = ops.cast(y_pred, "float32")
        nll, uniform = token_losses(logits, known_labels(ops.cast(y_true, "int32"), self.ignored_label))
        return (1 - self.label_smoothing) * nll + self.label_smoothing * uniform

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"label_smoothing": self.label_smoothing, "ignored_label": self.ignored_label}


def label_weights(labels: Tensor, sample_weight: Tensor, ignored_label: int | None) -> Tensor:
    """Return weights (B, T) that are 0 where a label (B, T) is `ignored_label`; `sample_weight` if that is None.

    On JAX the logits that reach a metric in `fit` have lost their Keras mask, so the labels must say what is padding.
    """
    if getattr(getattr(sample_weight, "shape", ()), "rank", 0) is None:
        # (B, T), whose shape Keras has lost on TensorFlow
        sample_weight = ops.reshape(sample_weight, (ops.shape(labels)[0], -1))
    if ignored_label is None:
        return sample_weight
    counts = ops.cast(ops.not_equal(labels, ignored_label), "float32")
    if sample_weight is None:
        return counts
    weights = ops.cast(sample_weight, "float32")
    missing = len(counts.shape) - len(weights.shape)  # one weight for each text
    return counts * ops.reshape(weights, (*ops.shape(weights), *[1] * missing))


def known_labels(labels: Tensor, ignored_label: int | None) -> Tensor:
    """Return labels (B, T) with padding for `ignored_label`, which may be no word, such as -100."""
    return labels if ignored_label is None else ops.where(ops.equal(labels, ignored_label), PAD_ID, labels)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return, for logits (..., V) and integer targets (...), two losses in nats (...).

    The first is the negative log-likelihood of the target; the second the cross-entropy against a uniform
    distribution over the words that may be generated, which label smoothing mixes in.
    """
    normaliser = ops.logsumexp(logits, axis=-1)
    gold = ops.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return normaliser - gold, normaliser - _mean_of(logits, writable(logits))


def _mean_of(logits, chosen):
    """Return the mean of logits (..., V) over the `chosen` words, a boolean (V,) or (..., V)."""
    count = ops.sum(ops.cast(chosen, "float32"), axis=-1)
    return ops.sum(ops.where(chosen, logits, 0.0), axis=-1) / ops.maximum(count, 1.0)


def tokens_per_chunk(words: int, tokens: int | None = None) -> int:
    """Return how many of `tokens` tokens `projected_crossentropy` processes at once, for that many words.

    On an accelerator the chunks are equally large, so that the last one is not mostly padding.
    """
    if backend.runs_ahead():
        largest = min(ACCELERATED_CHUNK, max(CHUNK, MAX_LOGITS // max(1, words)))
        return round_up(tokens / -(-tokens // largest), CHUNK_STEP, largest) if tokens else largest
    return CHUNK if words <= LARGE else CHUNK // 2


def projected_crossentropy(
    features: Tensor,
    table: Tensor,
    targets: Tensor,
    weights: Tensor,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    bias: Tensor | None = None,
    consistency: Consistency | None = None,
) -> Any:
    """Project features onto the vocabulary and sum the cross-entropy, without materializing all logits.

    Equivalent to a projection and `TokenCrossentropy`, but logits exist for one chunk of tokens at a time, and the
    gradient is computed along with them. Sums are float32 for any compute type.

    Args:
        features: (B, T, D) in the compute type.
        table: output projection (V, D).
        targets: integer ids (B, T).
        weights: (B, T) float32; 0 leaves a token out.
        label_smoothing: from 0 up to 1.
        chunk: tokens per chunk; None: `tokens_per_chunk`.
        bias: of the output projection (V,), or None. Smoothing leaves out words whose bias is `NEVER_WRITTEN`.
        consistency: what is added for each pair of rows, which are two passes over one text; None: nothing.

    Returns:
        float32 (4,), weighted sums over tokens: smoothed loss with what is added (the differentiable one), negative
        log-likelihood in nats, correct predictions, and the weights themselves.
    """
    table = ops.cast(table, features.dtype)
    chosen = None if bias is None else writable(ops.cast(bias, "float32"))  # (V,)
    if bias is not None:  # as one more column of the table, for a feature that is always 1
        table = ops.concatenate([table, ops.cast(bias, table.dtype)[:, None]], axis=-1)
        features = ops.concatenate([features, ops.ones_like(features[..., :1])], axis=-1)
    width = features.shape[-1]
    if consistency is not None:  # the two passes of a token next to each other
        features, targets, weights = (_pairs_together(array) for array in (features, targets, weights))
    features = ops.reshape(features, (-1, width))  # (N, D)
    targets = ops.reshape(ops.cast(targets, "int32"), (-1,))
    weights = ops.reshape(ops.cast(weights, "float32"), (-1,))
    tokens = features.shape[0]
    chunk = chunk or tokens_per_chunk(table.shape[0], tokens)
    if consistency is not None:
        chunk += chunk % 2
    if tokens is None or tokens <= chunk:  # TensorFlow traces one graph for all lengths, without a static count
        chunks = 1
    else:
        chunks = -(-tokens // chunk)
        spare = chunks * chunk - tokens
        features = ops.pad(features, ((0, spare), (0, 0)))
        targets, weights = ops.pad(targets, (0, spare)), ops.pad(weights, (0, spare))

    return _summed(targets, weights, chunks, label_smoothing, chosen, consistency)(features, table)


def _pairs_together(rows):
    """Return an array (2 B, T, ...) of pairs of rows with the pairs of tokens next to each other: (B, T, 2, ...)."""
    return ops.swapaxes(ops.reshape(rows, (-1, 2, *ops.shape(rows)[1:])), 1, 2)


def label_set_crossentropy(
    logits: Tensor,
    labels: Tensor,
    weights: Tensor,
    label_smoothing: float = 0.0,
    consistency: Consistency | None = None,
) -> Tensor:
    """Sum the cross-entropy of texts that have each of C labels or not, decided by a sigmoid each.

    Args:
        logits: (B, C).
        labels: 0 or 1 (B, C).
        weights: of the texts (B,).
        label_smoothing: e from 0 up to 1; the targets are then e / 2 and 1 - e / 2.
        consistency: what is added for each pair of rows, which are two passes over one text; None: nothing.

    Returns:
        float32 (4,), weighted sums over texts: smoothed loss, negative log-likelihood of all C decisions in nats, texts
        with all of them correct, and the weights themselves.
    """
    logits, labels = ops.cast(logits, "float32"), ops.cast(labels, "float32")
    weights = ops.cast(weights, "float32")
    smoothed = (1 - label_smoothing) * labels + label_smoothing / 2
    losses = [ops.sum(ops.softplus(logits) - target * logits, axis=-1) for target in (smoothed, labels)]
    right = ops.all(ops.equal(logits > 0, labels > 0.5), axis=-1)
    sums = [ops.sum(weights * x) for x in (*losses, ops.cast(right, "float32"), ops.ones_like(weights))]
    if consistency is not None:
        sums[0] = sums[0] + ops.sum(ops.sum(ops.reshape(weights, (-1, 2)), axis=1) * consistency.of_decisions(logits))
    return ops.stack(sums)


def _summed(targets, weights, chunks, label_smoothing, chosen, consistency):
    """Return a function with a custom gradient from features (N, D) and table (V, D) to the four sums."""

    @ops.custom_gradient
    def summed(features, table):
        inputs = tuple(
            ops.reshape(x, (chunks, -1, *x.shape[1:])) if chunks > 1 else x[None] for x in (features, targets, weights)
        )

        def one(carry, item):
            sums, by_table = carry
            features, targets, weights = item
            new_sums, by_features, more = _chunk(
                features, targets, weights, table, label_smoothing, chosen, consistency
            )
            return (sums + new_sums, by_table + more), by_features

        start = (ops.zeros((4,), "float32"), ops.zeros(table.shape[::-1], "float32"))
        (sums, by_table), by_features = backend.scan(one, start, inputs, chunks)
        # The target's part of the gradient with respect to the logits, -weight (1 - e), is added after the products:
        # there it is a row of the table or a feature vector, not an array of V columns.
        kept = ((1 - label_smoothing) * weights)[:, None]
        gold = ops.cast(ops.take(table, targets, axis=0), "float32")
        by_features = ops.reshape(by_features, (-1, features.shape[-1])) - kept * gold
        pulled = ops.segment_sum(kept * ops.cast(features, "float32"), targets, num_segments=table.shape[0])
        by_table = ops.transpose(by_table) - pulled

        def gradient(*arguments, upstream=None):
            scale = (arguments[-1] if upstream is None else upstream)[0]
            return ops.cast(scale * by_features, features.dtype), ops.cast(scale * by_table, table.dtype)

        return sums, gradient

    return summed


def _chunk(features, targets, weights, table, label_smoothing, chosen, consistency):
    """Return the four sums of one chunk, and the gradients of the first: features (P, D) and transposed table (D, V).

    The gradients lack the targets' part. Smoothing is over the `chosen` words (V,), or over all if that is None.
    """
    logits = backend.multiply(features, ops.transpose(table))  # (P, V)
    top = ops.max(logits, axis=-1, keepdims=True)
    exponentials = ops.exp(logits - top)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    gold = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    normaliser = (top + ops.log(total))[:, 0]
    nll = normaliser - gold
    uniform = normaliser - (ops.mean(logits, axis=-1) if chosen is None else _mean_of(logits, chosen))
    smoothed = (1 - label_smoothing) * nll + label_smoothing * uniform
    right = gold >= top[:, 0]
    if backend.NAME != "jax" and keras.backend.standardize_dtype(features.dtype) == "bfloat16":
        right = ops.equal(ops.argmax(logits, axis=-1), targets)  # rounded logits can tie: only the first maximum counts
    right = ops.cast(right, "float32")
    sums = ops.stack([ops.sum(weights * x) for x in (smoothed, nll, right, ops.ones_like(weights))])
    each = 1 / table.shape[0]
    if chosen is not None:
        chosen = ops.cast(chosen, "float32")
        each = chosen / ops.maximum(ops.sum(chosen), 1.0)
    dense = exponentials * (weights[:, None] / total) - (label_smoothing * each) * weights[:, None]
    if consistency is not None:
        log_probabilities = ops.reshape(logits - normaliser[:, None], (-1, 2, table.shape[0]))
        added, by_logits = consistency.of_tokens(log_probabilities)
        of_pairs = ops.sum(ops.reshape(weights, (-1, 2)), axis=1)
        sums = sums + ops.sum(of_pairs * added) * ops.convert_to_tensor([1.0, 0.0, 0.0, 0.0], "float32")
        dense = dense + ops.reshape(of_pairs[:, None, None] * by_logits, ops.shape(dense))
    dense = ops.cast(dense, features.dtype)
    return sums, backend.multiply(dense, table), backend.multiply_transposed(features, dense)
