"""Decoding: search strategies, constraints on tokens, and batches of sources."""
