"""Inspection of trained runs: attention and probabilities as data, and figures of them."""
