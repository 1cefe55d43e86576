"""Benchmarks of heedful against other toolkits: the same work, alternating in one run."""
