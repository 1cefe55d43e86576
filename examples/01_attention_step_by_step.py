# %% [markdown]
# # Attention, step by step
#
# Attention is a soft dictionary lookup. A dictionary has keys and values; a query asks for one key and gets its value.
# In attention no key matches exactly, so every key contributes a little: more, the more similar it is to the query.
# This page does the lookup with numbers small enough to check by hand, and ends with the layer that models use.

# %%
from pathlib import Path

import heedful  # before Keras: it chooses the backend

import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from heedful.layers import MultiHeadAttention, Trace, attention_weights, masks

PICTURES = Path("pictures")
PICTURES.mkdir(exist_ok=True)

# %% [markdown]
# ## One query, three keys
#
# Keys and query are vectors of two numbers. The score of a key is its dot product with the query, divided by the
# square root of the size: otherwise large vectors would give large scores, and only the best key would count.

# %%
keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
values = np.array([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])
query = np.array([2.0, 0.0])

scores = keys @ query / np.sqrt(2)
weights = np.exp(scores) / np.exp(scores).sum()
print("scores ", scores.round(3))  # 1.414, 0, 1.414: the first and the third key match this query equally
print("weights", weights.round(3))
print("result ", (weights @ values).round(3))

# %% [markdown]
# The function of the package gives the same. It works on whole batches: (batch, positions, heads, head size).

# %%
by_package = attention_weights(query[None, None, None], keys[None, :, None])
assert np.allclose(ops.convert_to_numpy(by_package)[0, 0, 0], weights, atol=1e-6)

# %% [markdown]
# ## A lookup that is almost hard
#
# The longer the query, the sharper the choice. Multiplied by ten, it takes the two keys that match and nothing else.

# %%
for length in (0.0, 1.0, 10.0):
    found = attention_weights((length * query)[None, None, None], keys[None, :, None])
    print(f"query x {length:4.1f}: weights", ops.convert_to_numpy(found)[0, 0, 0].round(3))

# %% [markdown]
# ## Masks: who may look where
#
# A mask is a table of booleans, one row for each query and one column for each key; True means *may look*. A masked
# key gets a weight of exactly 0, and the others share its part. A Transformer needs only two masks: one hides the
# padding at the end of short sentences, the other hides words that are still to be generated.

# %%
padding = masks.padding(np.array([[True, True, True, False, False]]))
future = masks.causal(ops.arange(5), ops.arange(5))
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
both = ops.logical_and(padding, future)
titles = ("padding is not read", "the future is not read", "both")
for axis, mask, title in zip(axes, (ops.broadcast_to(padding, (1, 1, 5, 5)), future, both), titles, strict=True):
    axis.imshow(ops.convert_to_numpy(mask)[0, 0], vmin=0, vmax=1, cmap="Greens")
    axis.set_title(title)
    axis.set_xlabel("key")
    axis.set_ylabel("query")
figure.savefig(PICTURES / "masks.png")

rng = np.random.default_rng(0)
vectors = rng.normal(size=(1, 5, 1, 4)).astype("float32")
seen = ops.convert_to_numpy(attention_weights(vectors, vectors, both))[0, 0]
print(seen.round(2))
assert (seen[np.triu_indices(5, 1)] == 0).all()  # nothing above the diagonal
assert (seen[:, 3:] == 0).all()  # no padding

# %% [markdown]
# ## Many heads
#
# One lookup gives one mixture of the values. A layer with several heads projects its input into several small spaces,
# attends in each, and projects the results back. Two heads of size 4 cost as much as one of size 8, and can look at
# two places at once. A `Trace` keeps the weights of each head.

# %%
layer = MultiHeadAttention(d_model=8, num_heads=2, name="attention")
layer.build()
sentence = rng.normal(size=(1, 5, 8)).astype("float32")
trace = Trace()
attended = layer(sentence, visible=future, trace=trace)
print("in", sentence.shape, "out", tuple(attended.shape))

(path,) = trace
heads = ops.convert_to_numpy(trace[path])[0]
figure, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
for number, (axis, head) in enumerate(zip(axes, heads, strict=True), start=1):
    axis.imshow(head, vmin=0, vmax=1)
    axis.set_title(f"head {number}")
figure.savefig(PICTURES / "heads.png")
assert np.allclose(heads.sum(-1), 1, atol=1e-5)
print(f"heedful {heedful.__version__}: pictures in {PICTURES}/")
