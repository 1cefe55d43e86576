"""Train the quickstart recipe with one part of the Transformer left out at a time, and print what it costs.

python benchmarks/ablations.py [--updates 210] [--only NAME ...]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

VARIANTS = {
    "as in the recipe": [],
    "without the causal mask": ["--model.causal_mask", "false"],
    "without the output projection": ["--model.attention_projections", "input"],
    "one head instead of eight": ["--model.num_heads", "1"],
    "without positions": ["--model.positions", "none"],
}


def bleu(settings, updates):
    """Train with settings; return BLEU on unseen sentences."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        common = ["--train.updates", str(updates), "--train.validate_every", str(updates), "--train.check", "false"]
        command = [sys.executable, "-m", "heedful", "train", "quickstart", "--run", run, *common, *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    return next(entry["bleu"] for entry in reversed(scores) if entry["data"] == "phrasebook/test")


def main():
    """Run the variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=210, help="updates of each training (default: 210)")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="variants to run")
    options = parser.parse_args()
    for name in options.only:
        print(f"{name}: BLEU {bleu(VARIANTS[name], options.updates):.2f}", flush=True)


if __name__ == "__main__":
    main()
