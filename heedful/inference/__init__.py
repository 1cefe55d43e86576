"""Inference with trained runs: a thread-safe predictor for each kind of model."""
