# %% [markdown]
# # Translation with plain Keras
#
# The layers of heedful are Keras layers. This page builds a small translator from them with plain Keras:
# a `Sequential` encoder, a decoder in the functional style, `compile` and `fit`. Then it does the same with the
# finished `heedful.Transformer`, which is what `heedful train` uses.

# %%
import os

import heedful  # before Keras: it chooses the backend

import keras
import numpy as np
from keras import ops

from heedful.data.phrasebook import phrasebook
from heedful.data.tokenizer import Tokenizer
from heedful.special_tokens import END_ID, START_ID
from heedful.inference.translator import Translator
from heedful.layers import DecoderBlock, EncoderBlock, SinusoidalPositions, TokenEmbedding, masks

SENTENCES = int(os.environ.get("EXAMPLE_SENTENCES", "8000"))
EPOCHS = int(os.environ.get("EXAMPLE_EPOCHS", "6"))
keras.utils.set_random_seed(1)

# %% [markdown]
# ## Text
#
# The phrasebook is a grammar that generates any number of Portuguese sentences with their English translations.

# %%
pairs = list(phrasebook("train", SENTENCES))
print(pairs[0])
tokenizer = Tokenizer.train((text for pair in pairs for text in pair), "word", 2000)


def padded(texts, before=(), behind=()):
    """Return ids as one array, padded with 0."""
    rows = [[*before, *ids, *behind] for ids in tokenizer.encode_batch(texts)]
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows], "int32")


source = padded([pair[0] for pair in pairs], behind=[END_ID])
read = padded([pair[1] for pair in pairs], before=[START_ID])  # what the decoder has read so far ...
labels = padded([pair[1] for pair in pairs], behind=[END_ID])  # ... and what comes next

# %% [markdown]
# ## Encoder and decoder
#
# A block maps vectors to vectors; with a cache, during generation, it also returns the updated cache. Masks are
# arguments. A `Sequential` model does not pass them on, so this encoder also reads padding, which costs a little
# quality. The decoder gets all its masks, and the finished model below uses all of them.

# %%
WIDTH, HEADS, INNER = 64, 4, 128
vocabulary = len(tokenizer)

encoder = keras.Sequential(
    [
        TokenEmbedding(vocabulary, WIDTH),
        SinusoidalPositions(WIDTH),
        EncoderBlock(WIDTH, HEADS, INNER),
        EncoderBlock(WIDTH, HEADS, INNER),
    ],
    name="encoder",
)

source_ids = keras.Input((None,), dtype="int32", name="source")
target_ids = keras.Input((None,), dtype="int32", name="target")
memory = encoder(source_ids)
memory_visible = masks.padding(ops.not_equal(source_ids, 0))
visible = keras.layers.Lambda(lambda ids: masks.causal(ops.arange(ops.shape(ids)[1]), ops.arange(ops.shape(ids)[1])))(
    target_ids
)
x = SinusoidalPositions(WIDTH)(TokenEmbedding(vocabulary, WIDTH)(target_ids))
for _ in range(2):
    x = DecoderBlock(WIDTH, HEADS, INNER)(x, memory=memory, visible=visible, memory_visible=memory_visible)
logits = keras.layers.Dense(vocabulary)(x)
by_hand = keras.Model([source_ids, target_ids], logits, name="by_hand")
by_hand.summary()

# %% [markdown]
# ## Training
#
# `sample_weight` leaves padding out: 1 where a label is real, 0 elsewhere.

# %%
by_hand.compile(keras.optimizers.Adam(2e-3), heedful.TokenCrossentropy(), weighted_metrics=[heedful.TokenAccuracy()])
history = by_hand.fit(
    [source, read], labels, sample_weight=(labels != 0).astype("float32"), batch_size=64, epochs=EPOCHS, verbose=2
).history
assert history["loss"][-1] < history["loss"][0]

# %% [markdown]
# ## The finished model
#
# The same with `heedful.Transformer`: it publishes a mask with its logits, so Keras' own losses ignore padding, and
# it has the methods that decoding needs: `prefill` and `decode_step`.

# %%
model = heedful.Transformer(
    vocabulary, vocabulary, num_layers=2, d_model=WIDTH, num_heads=HEADS, d_ff=INNER, norm_position="pre", tie="all"
)
model.compile(
    keras.optimizers.Adam(2e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    weighted_metrics=["accuracy"],
)
history = model.fit({"source": source, "target": read}, labels, batch_size=64, epochs=EPOCHS, verbose=2).history
assert history["loss"][-1] < history["loss"][0]

# %%
translator = Translator(model, tokenizer, tokenizer)
for text, reference in list(phrasebook("test", 5)):
    print(f"{text}  ->  {translator.translate(text)}   [{reference}]")
