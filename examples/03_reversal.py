# %% [markdown]
# # The reversal puzzle
#
# Reading a row of digits and writing it backwards is the "hello world" of sequence models: easy to check, impossible
# without attention, and its attention map is a picture that explains itself - the diagonal runs from corner to corner.

# %%
import os
from pathlib import Path

import heedful
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig, TrainConfig
from heedful.inspection.figures import draw_attention, draw_schedule
from heedful.inspection.translation import TranslationInspection
from heedful.training.optimizer import training_schedule

UPDATES = int(os.environ.get("EXAMPLE_UPDATES", "1200"))
PICTURES = Path("pictures")

# %% [markdown]
# ## What a run is
#
# A `Config` holds everything: where the text comes from, how it becomes ids, the model's sizes, how it is trained. The
# same settings are the keys of a recipe, and the options of `heedful train`.

# %%
config = Config(
    name="reversal",
    data=DataConfig(corpus="reverse", sentences=20_000, length=8, batch_sentences=128, max_tokens=16),
    tokenizer=TokenizerConfig(kind="word", vocab_size=20),
    model=ModelConfig(num_layers=2, d_model=64, num_heads=4, d_ff=128, tie="all", norm_position="pre", dropout=0.0),
    train=TrainConfig(
        updates=UPDATES, validate_every=max(1, UPDATES // 4), schedule="inverse_square_root", learning_rate=2e-3,
        warmup_updates=100, label_smoothing=0.0, select_by="loss", tensorboard=False, check=UPDATES > 100,
    ),
)  # fmt: skip
run = heedful.train(config, "runs/reversal", force=True)

# %% [markdown]
# The learning rate rises for a hundred updates, then falls with the inverse square root of their number.

# %%
schedule = training_schedule(config.train, config.model.d_model)
print(draw_schedule(PICTURES / "schedule.png", schedule, UPDATES))

# %% [markdown]
# ## What it has learned
#
# The puzzle has a twist: X replaces every even occurrence of a digit. Here no digit occurs twice.

# %%
translator = heedful.load("runs/reversal")
digits = "3 1 4 7 5 9 2 6"
made = translator.translate(digits)
print(f"{digits}  ->  {made}")
if UPDATES >= 1000:
    assert made == digits[::-1]

# %% [markdown]
# Each row of the picture is a generated digit, each column a digit of the source.

# %%
inspection = TranslationInspection.of(translator, digits)
print(draw_attention(PICTURES / "reversal.png", inspection, "cross", inspection.num_layers))
