"""The importance of each attention head: how the loss changes without it (Michel, Levy and Neubig 2019)."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.core.progress import progress_bar
from heedful.core.storage import write_text
from heedful.runs.run import HEADS, Run
from heedful.training.evaluation import TokenScores

TOKENS = 20_000  # tokens of the validation text that are read for each head, by default


def measure_heads(run: Run, tokens: int = TOKENS) -> dict[str, Any]:
    """Measure the importance of every head on the validation text; write it to heads.json in the run, and return it.

    A head is switched off by setting its rows of the output projection to zero.

    Args:
        run: a trained `Run`.
        tokens: about how many tokens of the text are read for each head.

    Returns:
        `loss` with all heads, in nats per token; `heads`, the change of the loss without each head, by kind
        (`encoder`, `decoder`, `cross`), layer and head; `text` and `tokens`, what it was measured on.

    Raises:
        InputError: the model has no output projections, or the validation text is missing.
    """
    if run.config.model.attention_projections not in ("all", "output"):
        raise InputError("Heads can be switched off one by one only in attention with an output projection.")
    corpora = run.task.find_corpora(run.config)
    model = run.load_model()
    examples: Any = _First(run.task.scored_examples(run, corpora, "valid"), tokens)
    scores = TokenScores(model, examples)
    summary = scores()
    changes_of = {
        kind: np.zeros((len(layers), run.config.model.num_heads)) for kind, layers in attention_layers(model).items()
    }
    count = sum(changes.size for changes in changes_of.values())
    with progress_bar() as bar:
        task = bar.add_task("heads", total=count)
        for kind, layers in attention_layers(model).items():
            for layer, attention in enumerate(layers):
                for head in range(attention.num_heads):
                    with _without(attention, head):
                        changes_of[kind][layer, head] = scores()["loss"] - summary["loss"]
                    bar.advance(task)
    result = {
        "loss": round(summary["loss"], 6), "tokens": summary["tokens"], "text": corpora["valid"].name,
        "heads": {kind: changes.round(6).tolist() for kind, changes in changes_of.items()},
    }  # fmt: skip
    write_text(run.path / HEADS, json.dumps(result, ensure_ascii=False) + "\n")
    return result


def attention_layers(model: Any) -> dict[str, list[Any]]:
    """Return the attention layers of a model by kind: `encoder`, `decoder`, `cross`; of those that it has."""
    stacks = {name: getattr(model, name).blocks for name in ("encoder", "decoder") if hasattr(model, name)}
    layers = {name: [block.attention for block in blocks] for name, blocks in stacks.items()}
    cross = [block.cross_attention for block in stacks.get("decoder", ()) if hasattr(block, "cross_attention")]
    return layers | ({"cross": cross} if cross else {})


class _without:
    """A context in which a head is off."""

    def __init__(self, attention, head):
        self.kernel = attention.output_projection.kernel
        self.rows = slice(head * attention.head_dim, (head + 1) * attention.head_dim)

    def __enter__(self):
        self.before = np.array(backend.to_numpy(self.kernel))
        changed = self.before.copy()
        changed[self.rows] = 0
        self.kernel.assign(changed)

    def __exit__(self, *_):
        self.kernel.assign(self.before)


class _First:
    """The first batches of some examples, of about `tokens` tokens; held in memory, since they are read many times."""

    def __init__(self, examples, tokens):
        self.batches = []
        for batch in examples.one_pass():
            if tokens <= 0:
                break
            self.batches.append(batch)
            tokens -= int((batch["weights"] > 0).sum())

    def one_pass(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(self.batches)
