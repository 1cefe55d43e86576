"""The model card of an exported run, from the run's config and scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful import __version__
from heedful.config.named_texts import licence_of
from heedful.config.settings import flat
from heedful.core.special_tokens import MASK
from heedful.interop.export.plain_search import never_written_ids, read_tokens
from heedful.runs.scores.provenance import newest_scores

if TYPE_CHECKING:
    from heedful.runs.run import Run

SECTIONS = ("model.", "tokenizer.", "train.updates", "train.schedule", "train.learning_rate", "train.seed",
            "data.batch_tokens", "data.max_tokens")  # settings in the card  # fmt: skip
TWO_VOCABULARIES = """
Source and target have vocabularies of their own: the tokenizer of this folder is that of the source, the target's is in
`target/`. `pipeline("translation")` would decode with the wrong one; the code above decodes with the right one.
"""
# The use of an export to ONNX with numpy, onnxruntime and tokenizers alone.
ONNX_TRANSLATOR = """
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(".")
source = Tokenizer.from_file(str(folder / "tokenizer.json"))
other = folder / "target" / "tokenizer.json"
target = Tokenizer.from_file(str(other)) if other.exists() else source
source.enable_truncation(READ_TOKENS)
source.encode_special_tokens = True  # "[END]" in a text is text
encoder, decoder = (
    onnxruntime.InferenceSession(folder / "onnx" / name)
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx")
)
names = [output.name for output in decoder.get_outputs()]
caches = {one.name: (1, one.shape[1], 0, one.shape[3]) for one in decoder.get_inputs() if "past" in one.name}


never_written = NEVER_WRITTEN
prefix = PREFIX  # what each translation begins with


def translate(text, max_tokens=MAX_TOKENS):
    ids = np.array([source.encode(text).ids], np.int64)
    mask = np.ones_like(ids)
    [memory] = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    inputs = {"encoder_attention_mask": mask, "encoder_hidden_states": memory}
    inputs |= {name: np.zeros(shape, np.float32) for name, shape in caches.items()}
    token, written = target.token_to_id("[START]"), []
    for step in range(max_tokens):
        inputs |= {"input_ids": np.array([[token]], np.int64), "use_cache_branch": np.array([step > 0])}
        outputs = dict(zip(names, decoder.run(names, inputs)))
        logits = outputs.pop("logits")[0, -1]
        logits[never_written] = -np.inf
        token = prefix[step] if step < len(prefix) else int(logits.argmax())
        if token == target.token_to_id("[END]"):
            break
        written.append(token)
        inputs |= {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
    return target.decode(written[len(prefix) :])
"""
ONNX_LANGUAGE_MODEL = """
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.encode_special_tokens = True  # "[END]" in a text is text
model = onnxruntime.InferenceSession("onnx/model.onnx")
names = [output.name for output in model.get_outputs()]
caches = {one.name: (1, one.shape[1], 0, one.shape[3]) for one in model.get_inputs() if "past" in one.name}


never_written = NEVER_WRITTEN


def generate(prompt, tokens=MAX_TOKENS):
    ids = tokenizer.encode(prompt).ids[-max(1, READ_TOKENS - tokens) :]  # the end of a long one
    inputs = {name: np.zeros(shape, np.float32) for name, shape in caches.items()}
    new = ids
    for _ in range(tokens):
        inputs |= {"input_ids": np.array([new], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
        outputs = dict(zip(names, model.run(names, inputs)))
        logits = outputs.pop("logits")[0, -1]
        logits[never_written] = -np.inf
        new = [int(logits.argmax())]
        if new == [tokenizer.token_to_id("[END]")]:
            break
        ids = [*ids, *new]
        inputs |= {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
    return tokenizer.decode(ids)
"""
ONNX_ENCODER = """
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation(READ_TOKENS)
model = onnxruntime.InferenceSession("onnx/model.onnx")


def outputs(text):
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    return model.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
"""

CLASS_OF_ONNX = """
transformers.js and Optimum open this folder too. config.json names a class for them that is called like this model; it
does not describe the model itself.
"""


def model_card(run: "Run", architecture: str) -> str:
    """Return the README.md of an exported run, in the format of the Hugging Face hub."""
    use = [_code(run, architecture), TWO_VOCABULARIES.strip() if _two_vocabularies(run) else ""]
    return _card(run, "transformers", f"A `{architecture}`", use)


def onnx_card(run: "Run") -> str:
    """Return the README.md of an export to ONNX."""
    task = run.task
    code = ONNX_TRANSLATOR if task.translates else ONNX_LANGUAGE_MODEL if task.writes else ONNX_ENCODER
    limit = read_tokens(run.config)
    values: dict[str, Any] = {"READ_TOKENS": limit}
    if task.translates or task.writes:
        values["MAX_TOKENS"] = min(100, limit if task.translates else limit // 2)
        values |= {"NEVER_WRITTEN": never_written_ids(run), "PREFIX": list(run.target_tokenizer.prefix_ids)}
    for name, value in values.items():
        code = code.replace(name, str(value))
    use = [f"```python\n{code.strip()}\n```", CLASS_OF_ONNX.strip()]
    return _card(
        run, "onnx", "Models for onnxruntime", [*use, TWO_VOCABULARIES.strip() if _two_vocabularies(run) else ""]
    )


def _card(run, library, what, use):
    config, licence = run.config, licence_of(run.config.data.corpus)
    front = ["---", f"library_name: {library}", f"pipeline_tag: {_hub_task(run)}", "tags:", "- heedful"]
    if licence:
        front.append(f"# The licence of the training text is {licence}; choose the one of the model accordingly.")
    parts = [
        "\n".join([*front, "---"]),
        f"# {config.name}",
        f"{what}, trained and exported with heedful {__version__}.",
        "## Use", *use,
        "## Training text", _text(run, licence),
        "## Scores", _scores(run),
        "## Settings", _settings(run),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _hub_task(run):
    """Return the task of the pipeline that uses the model."""
    return "feature-extraction" if run.config.model.untrained_head else run.task.hub_task


def _two_vocabularies(run):
    return len(set(run.fingerprints())) > 1


def _code(run, architecture):
    task = run.task
    if task.translates:
        target = 'AutoTokenizer.from_pretrained(folder + "/target")' if _two_vocabularies(run) else "tokenizer"
        return "\n".join([
            "```python",
            f"from transformers import AutoTokenizer, {architecture}",
            "",
            'folder = "."',
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
            f"target_tokenizer = {target}",
            f"model = {architecture}.from_pretrained(folder)",
            'ids = model.generate(**tokenizer(["..."], return_tensors="pt", padding=True))',
            "print(target_tokenizer.batch_decode(ids, skip_special_tokens=True))",
            "```",
        ])  # fmt: skip
    text = f"... {MASK}" if _hub_task(run) == "fill-mask" else "..."
    return f'```python\nfrom transformers import pipeline\n\npipeline("{_hub_task(run)}", model=".")("{text}")\n```'


def _text(run, licence):
    data = run.config.data
    if not data.train and data.corpus == "files":
        return " ".join(["The model was imported; heedful does not know its training text.", data.origin]).strip()
    shown = (Path(name).name if Path(name).is_absolute() else name for name in data.train)  # no folders of a machine
    names = ", ".join(f"`{name}`" for name in shown) or f"`{data.corpus}`"
    lines = [f"Trained on {names}.", data.origin, f"Licence of the text: {licence}." if licence else ""]
    return " ".join(line for line in lines if line)


def _scores(run):
    """Return a table of the newest scores on each text."""
    rows = []
    for name, scores in newest_scores(run).items():
        text = " + ".join(Path(part).name for part in name.split(" + "))
        for metric in dict.fromkeys((*run.task.compared_by, "loss", "perplexity")):
            if isinstance(scores.get(metric), (int, float)):
                low, high = scores.get("intervals", {}).get(metric) or (None, None)
                interval = f"{low:.2f} to {high:.2f}" if low is not None else ""
                signature = scores.get("signatures", {}).get(metric, "").replace("|", "\\|")
                rows.append(f"| {text} | {metric} | {scores[metric]:.4g} | {interval} | {signature} |")
    if not rows:
        return "None was recorded."
    return "\n".join(["| text | score | value | 95 % interval | signature |", "|---|---|---|---|---|", *rows])


def _settings(run):
    settings = flat(run.config)
    rows = [f"| {name} | {value} |" for name, value in settings.items() if name.startswith(SECTIONS)]
    command = next((scores["command"] for scores in newest_scores(run).values() if scores.get("command")), "")
    program, _, rest = command.partition(" ")
    shown = " ".join(word for word in (program, *(Path(part).name for part in rest.split())) if word)
    command_line = [f"Command of the newest score: `{shown}`"] if command else []
    return "\n\n".join([*command_line, "\n".join(["| setting | value |", "|---|---|", *rows])])
