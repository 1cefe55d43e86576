# %% [markdown]
# # A pretrained encoder
#
# Labels are expensive, text is cheap. An encoder that has learned to fill gaps in plain text knows which words occur
# together before it sees the first label. This page trains one, queries it, and builds a classifier and a translator
# on top of it.

# %%
import os
from pathlib import Path

import numpy as np

import heedful  # before Keras: it chooses the backend
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from heedful.data.phrasebook import phrasebook

UPDATES = int(os.environ.get("EXAMPLE_UPDATES", "600"))
SENTENCES = int(os.environ.get("EXAMPLE_SENTENCES", "6000"))
SCHEDULE = {"schedule": "cosine", "learning_rate": 2e-3, "warmup_updates": 50, "tensorboard": False,
            "check": UPDATES > 100, "updates": UPDATES, "validate_every": max(1, UPDATES // 3)}  # fmt: skip

# %% [markdown]
# ## Filling gaps
#
# Some words of each sentence are masked, and the model predicts them. It reads in both directions.

# %%
pairs = list(phrasebook("train", SENTENCES))
Path("portuguese.txt").write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
words = Config(
    task="fill",
    name="words",
    data=DataConfig(train=("portuguese.txt",), documents="lines", max_tokens=32, batch_tokens=1024, max_shapes=2),
    tokenizer=TokenizerConfig(kind="word", vocab_size=2000, lowercase=True),
    model=ModelConfig(num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_position="pre", max_length=48),
    train=TrainConfig(**SCHEDULE),
)
heedful.train(words, "runs/words", force=True)
filler = heedful.load("runs/words")
for gap in ("o gato [MASK] leite .", "a menina come um [MASK] ."):
    text, candidates = filler.fill(gap)
    print(gap, " ->  ", ", ".join(f"{token} {probability:.0%}" for token, probability in candidates[0]))

# %% [markdown]
# ## Sentences as vectors
#
# The mean of a sentence's vectors represents its content: similar sentences lie close together.

# %%
texts = ["o gato bebe leite.", "o gato bebe água.", "as meninas leram os livros."]
vectors = filler.embed(texts)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
print((vectors @ vectors.T).round(2))

# %% [markdown]
# ## A classifier
#
# Is a sentence negated? A few hundred labelled sentences, an encoder that already knows the words, and a layer on top.

# %%
labelled = [("negated" if "não" in source else "plain", source) for source, _ in pairs]
Path("labelled.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in labelled[:500]), encoding="utf-8")
Path("unseen.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in labelled[500:700]), encoding="utf-8")
classes = Config(
    task="classify",
    name="negation",
    data=DataConfig(train=("labelled.tsv",), test=("unseen.tsv",), max_tokens=32, batch_tokens=512, max_shapes=2),
    train=TrainConfig(init_from="runs/words", freeze=True, label_smoothing=0.0, **SCHEDULE),
)
heedful.train(classes, "runs/negation", force=True)
labeller = heedful.load("runs/negation")
print(labeller.classify(["o gato não bebe leite.", "o gato bebe leite."]))

# %% [markdown]
# The confusion matrix of the test sentences is drawn in runs/negation/figures/confusion.png.

# %%
assert Path("runs/negation/figures/confusion.png").exists()

# %% [markdown]
# ## A translator on top
#
# The encoder, its embeddings and its tokenizer become the source side of a translator; only the decoder learns.

# %%
for part, chosen in (("train", pairs[200:]), ("valid", pairs[:200])):
    for side, name in enumerate(("pt", "en")):
        Path(f"{part}.{name}").write_text("".join(f"{pair[side]}\n" for pair in chosen), encoding="utf-8")
translation = Config(
    name="on-top",
    data=DataConfig(train=("train.pt", "train.en"), valid=("valid.pt", "valid.en"), batch_tokens=1024, max_shapes=3),
    tokenizer=TokenizerConfig(kind="word", vocab_size=2000),
    train=TrainConfig(init_from="runs/words", freeze=True, validate_sentences=50, **SCHEDULE),
)
run = heedful.train(translation, "runs/on-top", force=True)
model = run.load_model()
model.freeze()
learning = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
print(f"{learning:,} of {model.count_params():,} parameters were trained")
print(heedful.load("runs/on-top").translate("O gato bebe leite."))
