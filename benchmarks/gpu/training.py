"""Speed and memory of training, beside a compiled loop on PyTorch, and a whole small training."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.gpu.work import LENGTH, VOCABULARY, RandomPairs, model_config, new_model

STOPPING = 20  # seconds in which a training that runs out of time validates and saves


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
            if not trained.runs_ahead_after(self.number):
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


def stopped(training):
    """Stop a training, at the latest after `STOPPING` seconds; return what it wrote to its standard error."""
    training.terminate()  # it stops after an update and saves
    try:
        return training.communicate(timeout=STOPPING / 2)[1]
    except subprocess.TimeoutExpired:
        training.kill()
        return training.communicate()[1]


def shakespeare(options):
    """Return the result of training `shakespeare-char` in bfloat16, to its end or as far as the time allows."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = "shakespeare-char-cpu" if options.small else "shakespeare-char"
        more = (
            ["--train.updates", "4", "--train.validate_every", "4"]
            if options.small
            else ["--train.precision", "bfloat16"]
        )
        command = [sys.executable, "-m", "heedful", "train", recipe, "--run", f"{folder}/run", *more]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as training:
            try:
                _, errors = training.communicate(timeout=options.seconds - STOPPING)
            except subprocess.TimeoutExpired:
                errors = stopped(training)
        log = Path(folder, "run", "log.jsonl")
        if not log.exists():
            sys.exit(errors or "no validation yet")
        entries = [json.loads(line) for line in log.read_text().splitlines()]
    best = min(entry["valid_loss"] for entry in entries)
    return {"seconds": time.perf_counter() - began, "updates": entries[-1]["update"], "valid_loss": best}
