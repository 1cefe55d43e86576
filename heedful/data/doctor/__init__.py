"""`heedful doctor`: finds faults in a text before training, and writes a cleaned copy. NumPy only."""
