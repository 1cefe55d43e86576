"""The data pipeline, from text to NumPy arrays; it needs no Keras backend."""
