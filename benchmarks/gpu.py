"""What heedful does on an accelerator, in at most nine minutes: correctness, speed beside PyTorch, memory.

    python benchmarks/gpu.py [--out gpu.json] [--minutes 9] [--small]

Each stage is a process of its own. Stages that no longer fit into the time, or whose library is missing, are left out,
and the table says so. `--small` runs tiny sizes, to try the script on a CPU.

- correctness: logits, loss and greedy translations of a random model, beside the same on the CPU
- updates of `base` and `big` in bfloat16 with 25,000 target tokens, beside the compiled loop on PyTorch; MFU of both
- `shakespeare-char` to its end or as far as the time allows, with its validation loss
- translation of 2,000 random sentences with a model of size `base`, beside transformers and CTranslate2
  with the same weights
- one update on all devices, if there are several, beside one device
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

VOCABULARY, LENGTH, WRITTEN = 16_000, 64, 40  # WRITTEN: tokens of a translation at most
STOPPING = 20  # seconds in which a training that runs out of time validates and saves
SMALL = {"tokens": 512, "updates": 4, "sentences": 64, "sizes": ["tiny"]}
FULL = {"tokens": 25_000, "updates": 64, "sentences": 2000, "sizes": ["base", "big"]}


class RandomPairs:
    """Training examples: one batch of random pairs without padding, again and again."""

    batches_per_epoch = 1.0

    def __init__(self, tokens):
        rows = max(8, tokens // LENGTH)
        rng = np.random.default_rng(0)
        source, labels = (rng.integers(4, VOCABULARY, (rows, LENGTH), dtype=np.int32) for _ in range(2))
        target = np.concatenate([np.full((rows, 1), 2, np.int32), labels[:, :-1]], axis=1)
        self.arrays = {
            "source": source,
            "target": target,
            "labels": labels,
            "weights": np.ones_like(labels, np.float32),
        }

    def batch(self, number):
        return self.arrays

    def tokens(self, number):
        return self.arrays["labels"].size

    def shape(self, number):
        return (len(self.arrays["labels"]), LENGTH, LENGTH)

    def first_of_each_shape(self):
        return [0]


def model_config(size):
    """Return the architecture of a size."""
    from heedful.config import ModelConfig

    return ModelConfig(size=size, tie="all", max_length=LENGTH, dropout=0.1)


def new_model(size, precision="float32"):
    """Return a random translation model of a size."""
    from heedful import Transformer, backend
    from heedful.config import TrainConfig

    backend.set_seed(1)
    policy = TrainConfig(precision=precision).policy
    return Transformer(VOCABULARY, VOCABULARY, dtype=policy, **model_config(size).keywords())


def vocabulary():
    """Return a tokenizer of as many words as the models have."""
    from heedful.data.tokenizer import Tokenizer

    return Tokenizer.train([" ".join(f"word{number}" for number in range(VOCABULARY - 4))], "word", VOCABULARY)


def random_sources(options):
    """Return lists of random ids to translate."""
    rng = np.random.default_rng(0)
    return [rng.integers(4, VOCABULARY, size).tolist() for size in rng.integers(5, 40, options.sentences)]


def correctness(options):
    """Return logits, loss and greedy translations, as arrays."""
    from heedful import backend
    from heedful.config import DecodeConfig
    from heedful.decoding.batch_search import BatchSearch
    from heedful.training.objective import batch_sums

    model, batch = new_model("tiny"), RandomPairs(512).arrays
    with backend.full_float32_products():
        logits = backend.compiled(lambda one: model(one), model)(batch)
        sums = backend.compiled(lambda one: batch_sums(model, one, 0.1), model)(batch)
        search = BatchSearch(model, DecodeConfig(max_length=20), vocabulary())
        ids = [candidates[0].ids for candidates in search([row.tolist() for row in batch["source"]])]
    lengths = np.array([len(row) for row in ids])
    padded = np.array([[*row, *[0] * (64 - len(row))] for row in ids])
    return {"logits": backend.to_numpy(logits), "sums": backend.to_numpy(sums), "lengths": lengths, "ids": padded}


def updates(size, options, devices=0):
    """Return target tokens a second, MFU and memory of training."""
    from heedful import backend
    from heedful.config import TrainConfig
    from heedful.training.flops import FlopCounter
    from heedful.training.machine import peak_memory, product_rate
    from heedful.training.updates import Updates

    examples = RandomPairs(options.tokens)
    config = TrainConfig(precision="bfloat16", devices=devices)
    trained = Updates(new_model(size, "bfloat16"), examples, config)
    monitor = SimpleNamespace()
    import keras

    class Waiting(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.number = 0

        def on_train_batch_end(self, batch, logs=None):
            self.number += 1
            if not trained.continues(self.number):
                monitor.loss = float(logs["loss"])

    began = time.perf_counter()
    trained.run(0, 8, Waiting())  # with compilation
    compiling = time.perf_counter() - began
    began = time.perf_counter()
    trained.run(8, 8 + options.updates, Waiting())
    seconds = (time.perf_counter() - began) / options.updates
    rate = product_rate("bfloat16")
    used = backend.training_devices(devices)
    operations = FlopCounter(trained.model).of(examples.batch(0))
    return {
        "tokens_per_second": examples.tokens(0) / seconds, "seconds": seconds, "first_8_updates": compiling,
        "mfu": operations / seconds / rate / used if rate else None, "peak_gib": peak_memory() / 2**30,
        "loss": monitor.loss, "devices": used,
    }  # fmt: skip


def torch_updates(size, options):
    """Return target tokens a second and memory of a compiled loop on PyTorch, with the same sizes."""
    import torch
    from torch import nn

    from heedful.training.flops import FlopCounter
    from heedful.training.machine import product_rate

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        raise SystemExit("PyTorch sees no GPU")
    sizes = model_config(size)
    torch.manual_seed(1)
    table = torch.zeros(LENGTH, sizes.d_model, device=device)  # its values make no difference to the speed
    future = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=device, dtype=torch.bool)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, sizes.d_model)
            layers = sizes.num_layers
            self.transformer = nn.Transformer(
                sizes.d_model, sizes.num_heads, layers, layers, sizes.d_ff, 0.1, batch_first=True
            )

        def forward(self, source, target):
            one, other = (self.embedding(ids) * sizes.d_model**0.5 + table for ids in (source, target))
            return self.transformer(one, other, tgt_mask=future, tgt_is_causal=True) @ self.embedding.weight.T

    model = Plain().to(device).train()
    forward = torch.compile(model) if device == "cuda" else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=device == "cuda")
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    arrays = RandomPairs(options.tokens).arrays
    source, target, labels = (
        torch.from_numpy(arrays[name].astype(np.int64)).to(device) for name in ("source", "target", "labels")
    )

    def update():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            logits = forward(source, target)
            mean_loss = loss(logits.flatten(0, 1), labels.flatten())
        mean_loss.backward()
        optimizer.step()
        return mean_loss

    def timed(count):
        began = time.perf_counter()
        for _ in range(count):
            mean_loss = update()
        last = float(mean_loss.detach())  # waits
        return (time.perf_counter() - began) / count, last

    timed(4)
    seconds, last = timed(options.updates)
    rate, operations = product_rate("bfloat16"), FlopCounter(new_model(size)).of(arrays)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    return {
        "tokens_per_second": labels.numel() / seconds, "seconds": seconds, "peak_gib": peak, "loss": last,
        "mfu": operations / seconds / rate if rate else None,
    }  # fmt: skip


def translation(options):
    """Return output tokens a second of greedy search with random weights."""
    from heedful.config import DecodeConfig
    from heedful.decoding.batch_search import BatchSearch

    sources = random_sources(options)
    search = BatchSearch(
        new_model("tiny" if options.small else "base", "bfloat16"),
        DecodeConfig(batch_size=256, max_length=WRITTEN),
        vocabulary(),
    )
    for _ in range(3):  # compiles, and finds out how long the results are
        search(sources)
    return translated_per_second(lambda: sum(len(candidates[0].ids) for candidates in search(sources)))


def random_run(folder, size):
    """Save a run with the weights of `translation` in a folder, and return it."""
    from heedful.config import Config, TokenizerConfig
    from heedful.runs.run import Run
    from heedful.runs.weights import weights_by_name

    config = Config(task="translate", model=model_config(size), tokenizer=TokenizerConfig(vocab_size=VOCABULARY))
    return Run.create(Path(folder, "run"), config, vocabulary(), weights=weights_by_name(new_model(size)))


def ctranslate2_translation(options):
    """Return output tokens a second of CTranslate2, with the weights and sentences of `translation`."""
    import ctranslate2

    from heedful.interop.export.ctranslate2 import export

    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    supported = ctranslate2.get_supported_compute_types(device)
    precision = next(one for one in ("bfloat16", "float16", "float32") if one in supported)
    words = vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        export(random_run(folder, "tiny" if options.small else "base"), Path(folder, "model"))
        engine = ctranslate2.Translator(str(Path(folder, "model")), device=device, compute_type=precision)
        texts = [[words.lookup(token) for token in ids] for ids in random_sources(options)]

        def translate():
            done = engine.translate_batch(texts, beam_size=1, max_batch_size=256, max_decoding_length=WRITTEN)
            return sum(len(result.hypotheses[0]) for result in done)

        return translated_per_second(translate) | {"device": device, "precision": precision}


def transformers_translation(options):
    """Return output tokens a second of `generate` in transformers, with the weights and sentences of `translation`."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from heedful.interop.export.huggingface import export

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        export(random_run(folder, "tiny" if options.small else "base"), Path(folder, "model"))
        model = AutoModelForSeq2SeqLM.from_pretrained(str(Path(folder, "model")), dtype=torch.bfloat16).to(device)
    sources = sorted(random_sources(options), key=len)

    def translate():
        written = 0
        for first in range(0, len(sources), 256):
            rows = sources[first : first + 256]
            longest = max(map(len, rows))
            ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
            done = model.generate(
                input_ids=ids, attention_mask=ids != 0, num_beams=1, do_sample=False, max_new_tokens=WRITTEN
            )
            written += int((done[:, 1:] != model.config.pad_token_id).sum())
        return written

    return translated_per_second(translate) | {"device": device}


def translated_per_second(translate):
    """Return output tokens a second of the second call of a function that returns how many it wrote."""
    translate()
    began = time.perf_counter()
    written = translate()
    return {"output_tokens_per_second": written / (time.perf_counter() - began), "written": written}


def shakespeare(options):
    """Return the result of training `shakespeare-char`, to its end or as far as the time allows."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = "shakespeare-char-cpu" if options.small else "shakespeare-char"
        more = ["--train.updates", "4", "--train.validate_every", "4"] if options.small else []
        command = [sys.executable, "-m", "heedful", "train", recipe, "--run", f"{folder}/run", *more]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as training:
            try:
                _, errors = training.communicate(timeout=options.seconds - STOPPING)
            except subprocess.TimeoutExpired:
                training.terminate()  # it stops after an update and saves
                _, errors = training.communicate()
        log = Path(folder, "run", "log.jsonl")
        if not log.exists():
            sys.exit(errors or "no validation yet")
        entries = [json.loads(line) for line in log.read_text().splitlines()]
    best = min(entry["valid_loss"] for entry in entries)
    return {"seconds": time.perf_counter() - began, "updates": entries[-1]["update"], "valid_loss": best}


def run_stage(stage, options):
    """Run a stage in this process; write its result to `options.result`."""
    name, _, size = stage.partition(":")
    if name == "correctness":
        np.savez(options.result, **correctness(options))
        return
    stages = {
        "updates": lambda: updates(size, options), "one device": lambda: updates(size, options, devices=1),
        "torch": lambda: torch_updates(size, options), "translation": lambda: translation(options),
        "ctranslate2": lambda: ctranslate2_translation(options),
        "transformers": lambda: transformers_translation(options),
        "shakespeare": lambda: shakespeare(options), "device": device,
    }  # fmt: skip
    Path(options.result).write_text(json.dumps(stages[name]()))


def device():
    """Return the name and number of the devices, and the versions of the libraries."""
    from heedful import __version__, backend  # first: it selects the backend of Keras

    import jax  # isort: skip
    import keras  # isort: skip

    versions = {"heedful": __version__, "jax": jax.__version__, "keras": keras.__version__}
    return {"device": backend.device(), "devices": backend.device_count(), **versions}


def in_process(stage, options, deadline, **environment):
    """Run a stage in a process; return the file of its result, or why there is none."""
    suffix = ".npz" if stage == "correctness" else ".json"
    path = Path(options.folder) / f"{stage.replace(':', '-').replace(' ', '-')}-{len(environment)}{suffix}"
    left = deadline - time.monotonic()
    command = [sys.executable, __file__, "--stage", stage, "--result", str(path), "--seconds", str(left)]
    command += ["--small"] * options.small
    if left < 5:
        return "no time left"
    try:
        done = subprocess.run(
            command, env=os.environ | environment, timeout=left, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "no time left"
    return path if done.returncode == 0 else ([*filter(str.strip, done.stderr.splitlines())] or ["no message"])[-1]


def compare_with_cpu(options, deadline):
    """Return how far the results on the device are from those on the CPU."""
    results = [in_process("correctness", options, deadline, **one) for one in ({}, {"JAX_PLATFORMS": "cpu"})]
    if failed := [one for one in results if isinstance(one, str)]:
        return failed[0]
    ours, cpu = (np.load(path) for path in results)
    equal = (ours["ids"] == cpu["ids"]).all(-1) & (ours["lengths"] == cpu["lengths"])
    return {
        "logits": float(np.abs(ours["logits"] - cpu["logits"]).max()),
        "loss": float(abs(ours["sums"][0] / cpu["sums"][0] - 1)), "equal_translations": float(equal.mean()),
    }  # fmt: skip


def shown(name, result):
    """Return a row of the table."""
    if isinstance(result, str):
        return f"{name:28s} left out: {result}"
    figures = (f"{key} {value:,.4g}" for key, value in result.items() if isinstance(value, (int, float)))
    texts = (value for value in result.values() if isinstance(value, str))
    return f"{name:28s} {', '.join([*texts, *figures])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for the figures, JSON")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=600.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    vars(options).update(SMALL if options.small else FULL)
    if options.stage:
        run_stage(options.stage, options)
        return
    deadline, results = time.monotonic() + 60 * options.minutes, {}

    def add(name, result):
        results[name] = json.loads(result.read_text()) if isinstance(result, Path) else result
        print(shown(name, results[name]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as options.folder:
        add("device", in_process("device", options, deadline))
        add("correctness", compare_with_cpu(options, deadline))
        for size in options.sizes:
            for name in ("updates", "torch"):
                add(f"{name}, {size}", in_process(f"{name}:{size}", options, deadline))
        if isinstance(results["device"], dict) and results["device"]["devices"] > 1:
            add("one device", in_process(f"one device:{options.sizes[0]}", options, deadline))
        for name in ("translation", "transformers", "ctranslate2"):
            add(name, in_process(name, options, deadline))
        add("shakespeare-char", in_process("shakespeare", options, deadline))


if __name__ == "__main__":
    main()
