"""What heedful does on an accelerator: correctness, speed and memory; `python -m benchmarks.gpu`."""
