"""Checks of a run on its own configuration, text, backend and precision, before training or on request."""
