# %% [markdown]
# # A miniature GPT
#
# A language model answers one question: given the text so far, what comes next? Asked repeatedly, it writes text.
# This page trains one on characters, shows how it chooses the next one, and how sampling settings change the choice.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import heedful  # before Keras: it chooses the backend
from heedful import backend
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from heedful.data.phrasebook import phrasebook

UPDATES = int(os.environ.get("EXAMPLE_UPDATES", "800"))
PICTURES = Path("pictures")
PICTURES.mkdir(exist_ok=True)

# %% [markdown]
# ## Text
#
# Any text will do: set EXAMPLE_TEXT to the path of your own. The default is the English side of the phrasebook.

# %%
text = Path(os.environ.get("EXAMPLE_TEXT", "phrases.txt"))
if not text.exists():
    text.write_text("".join(f"{english}\n" for _, english in phrasebook("train", 8000)), encoding="utf-8")
print(text.read_text(encoding="utf-8")[:200])

# %% [markdown]
# ## Model and training
#
# The model is a stack of the same blocks as an encoder, with one difference: no position attends to later ones. So a
# window of 64 characters is 64 training examples at once, each with one more character of context. At every validation
# the model generates a sample that begins with `prompt`.

# %%
config = Config(
    task="generate",
    name="miniature-gpt",
    data=DataConfig(train=(str(text),), max_tokens=64, batch_sentences=32, held_out=0.05),
    tokenizer=TokenizerConfig(kind="char", vocab_size=120),
    model=ModelConfig(
        num_layers=2, d_model=96, num_heads=4, d_ff=256, norm_position="pre", activation="gelu", positions="rotary",
        dropout=0.0, max_length=64,
    ),
    train=TrainConfig(
        updates=UPDATES, validate_every=max(1, UPDATES // 4), schedule="cosine", learning_rate=3e-3, warmup_updates=50,
        label_smoothing=0.0, prompt="The ", tensorboard=False, check=UPDATES > 100,
    ),
)  # fmt: skip
run = heedful.train(config, "runs/miniature-gpt", force=True)

# %% [markdown]
# ## How it chooses
#
# For each next character the model gives a probability. Greedy search takes the likeliest; sampling draws one,
# and a temperature below 1 makes likely characters likelier still.

# %%
generator = heedful.load("runs/miniature-gpt")
prompt = "The king "
print("greedy     ", generator.generate(prompt, max_length=60).replace("\n", " / "))
for temperature in (0.5, 1.0, 1.5):
    sample = generator.generate(prompt, sample=True, temperature=temperature, max_length=60)
    print(f"t = {temperature}    ", sample.replace("\n", " / "))
print("ten best   ", generator.generate(prompt, sample=True, top_k=10, max_length=60).replace("\n", " / "))

# %%
ids = np.array([generator.tokenizer.encode(prompt)])
logits = backend.to_numpy(generator.model(ids))[0, -1]
best = np.argsort(-logits)[:12]
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for temperature in (0.5, 1.0, 1.5):
    scaled = np.exp((logits - logits.max()) / temperature)
    axis.plot(scaled[best] / scaled.sum(), marker="o", label=f"temperature {temperature}")
axis.set_xticks(range(len(best)), [repr(generator.tokenizer.lookup(i)) for i in best])
axis.set_ylabel("probability")
axis.set_title(f"what follows {prompt!r}")
axis.legend()
figure.savefig(PICTURES / "next_character.png")

# %% [markdown]
# ## Longer than the context
#
# The context is 64 characters. A longer text is generated in rounds; each first reads the end of the text so far.

# %%
story = generator.generate(prompt, sample=True, temperature=0.7, max_length=300)
print(story)
assert len(story) == len(prompt) + 300  # a token is a character
