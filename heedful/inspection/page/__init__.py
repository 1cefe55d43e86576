"""One HTML file that looks into a run: its weights, its tokenizers, and an engine that computes in the browser."""
