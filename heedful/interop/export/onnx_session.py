"""Run an ONNX export with onnxruntime: greedy search with its caches, and logits of encoders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful.core.errors import extra_needed
from heedful.core.special_tokens import END_ID, PAD_ID, START_ID

BATCH = 32


def onnxruntime() -> Any:
    """Import onnxruntime; raise `InputError` if it or onnx is not installed."""
    with extra_needed("onnx", "This export needs onnx and onnxruntime"):
        import onnx  # noqa: F401
        import onnxruntime
    return onnxruntime


class Session:
    """The models of an ONNX export.

    Args:
        folder: with the files that `onnx.export` wrote.
        ending: of the file names: `_quantized`, or empty for float32.
        never: ids that are never written.
    """

    def __init__(self, folder: Path, ending: str = "", never: Sequence[int] = ()):
        runtime = onnxruntime()
        names = ("encoder_model", "decoder_model_merged", "model")
        paths = {name: folder / f"{name}{ending}.onnx" for name in names}
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        self._models = {
            name: runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            for name, path in paths.items()
            if path.exists()
        }
        self._never = list(never)

    def run(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a model; return its outputs by name."""
        model = self._models[name]
        names = [output.name for output in model.get_outputs()]
        return dict(zip(names, model.run(names, inputs), strict=True))

    def translate(
        self, sources: Sequence[Sequence[int]], max_tokens: int, prefix: Sequence[int] = ()
    ) -> list[list[int]]:
        """Return greedy translations of source ids, of at most `max_tokens` with the end token, `prefix` first."""
        written: list[list[int]] = []
        for start in range(0, len(sources), BATCH):
            ids, mask = padded(sources[start : start + BATCH])
            memory = self.run("encoder_model", {"input_ids": ids, "attention_mask": mask})["last_hidden_state"]
            fixed = {"encoder_attention_mask": mask, "encoder_hidden_states": memory}
            begun = np.full((len(ids), 1), START_ID, np.int64)
            written += self._write("decoder_model_merged", begun, fixed, max_tokens, prefix)
        return written

    def continue_text(self, prompt: Sequence[int], max_tokens: int) -> list[int]:
        """Return the greedy continuation of prompt ids, of at most `max_tokens` tokens."""
        ids = np.array([prompt], np.int64)
        return self._write("model", ids, {"attention_mask": np.ones_like(ids)}, max_tokens)[0]

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Return the output of an encoder for one text."""
        array = np.array([ids], np.int64)
        [output] = self.run("model", {"input_ids": array, "attention_mask": np.ones_like(array)}).values()
        return output

    def _write(self, name, ids, fixed, max_tokens, prefix=()):
        """Write `prefix` after `ids` (B, T), then the likeliest tokens, until the end token or `max_tokens` in all."""
        rows: list[list[int]] = [[] for _ in ids]
        running = np.ones(len(ids), bool)
        past = self._empty_caches(name, len(ids))
        for step in range(max_tokens):
            inputs = fixed | {"input_ids": ids} | past
            if "encoder_hidden_states" in fixed:
                inputs["use_cache_branch"] = np.array([step > 0])
            outputs = self.run(name, inputs)
            logits = outputs.pop("logits")[:, -1]
            logits[:, self._never] = -np.inf
            chosen = np.full(len(ids), prefix[step]) if step < len(prefix) else logits.argmax(-1)
            running &= chosen != END_ID
            if not running.any():
                break
            for row, token, runs in zip(rows, chosen, running, strict=True):
                if runs:
                    row.append(int(token))
            past = {kind.replace("present", "past_key_values"): array for kind, array in outputs.items()}
            ids = np.where(running, chosen, PAD_ID)[:, None]
            if "attention_mask" in fixed:
                more = np.ones((len(ids), 1), np.int64)
                fixed = fixed | {"attention_mask": np.concatenate([fixed["attention_mask"], more], 1)}
        return rows

    def _empty_caches(self, name, rows):
        caches = (one for one in self._models[name].get_inputs() if one.name.startswith("past_key_values"))
        return {one.name: np.zeros((rows, one.shape[1], 0, one.shape[3]), np.float32) for one in caches}


def padded(texts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (B, T), padded at the end, and their mask."""
    length = max(map(len, texts))
    ids = np.array([[*text, *[PAD_ID] * (length - len(text))] for text in texts], np.int64)
    mask = np.array([[1] * len(text) + [0] * (length - len(text)) for text in texts], np.int64)
    return ids, mask
