"""Inside a run: what a model reads and how sure it is as data, and the figures that show it."""
