"""Run folders: config, tokenizers, weights, checkpoints, logs and scores."""
