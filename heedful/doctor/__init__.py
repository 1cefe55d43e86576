"""The doctor: examines text before a model learns its mistakes, and writes a cleaned copy. NumPy only."""
