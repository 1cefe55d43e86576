"""A run proves itself: on its own configuration, text, backend and precision, before it is trained or when asked."""
