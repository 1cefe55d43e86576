"""From text to arrays, in NumPy: no backend is needed here."""
