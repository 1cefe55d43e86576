"""Measure BLEU over training time of the plain PyTorch loop of `benchmarks.bench`, on the text of a recipe.

    HEEDFUL_DATA=... python -m benchmarks.torch_curve --minutes 10

The model has size tutorial and tied embeddings. Batches hold 1,024 tokens of similar lengths; the schedule is that of
the paper, with 1,000 updates of warm-up. Only updates count as time. Between them the first 200 validation sentences
are scored, greedy; at the end, all test sentences.
"""

import argparse
import itertools
import time

import torch

from benchmarks.bench.peers import TorchLoop
from benchmarks.bench.preparation import prepare
from heedful.config.recipes import find_recipe
from heedful.config.settings import of_recipe
from heedful.core.special_tokens import END_ID, START_ID
from heedful.tasks.translation_data import corpora, train_tokenizers
from heedful.training.evaluation import score_text
from heedful.training.schedule import Schedule

SENTENCES, WARMUP, TOGETHER = 200, 1000, 100


@torch.inference_mode()
def translate(model, tokenizer, lines, longest):
    """Translate lines greedily, TOGETHER at a time; each step recomputes the whole prefix."""
    model.eval()
    made = []
    for start in range(0, len(lines), TOGETHER):
        batch = lines[start : start + TOGETHER]
        ids = [torch.tensor([*tokenizer.encode(line)[: longest - 1], END_ID]) for line in batch]
        source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        target = torch.full((len(ids), 1), START_ID)
        ended = torch.zeros(len(ids), dtype=torch.bool)
        while target.shape[1] < longest and not ended.all():
            following = model(source, target)[:, -1].argmax(dim=-1) * ~ended
            target = torch.cat([target, following[:, None]], dim=1)
            ended |= following == END_ID
        made += map(tokenizer.decode, target.tolist())
    model.train()
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="multi30k-de-en")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--scored", type=int, default=5, help="number of scorings during training (default: 5)")
    parser.add_argument("--dropout", type=float, default=0.1, help="(default: 0.1)")
    options = parser.parse_args()
    settings = ["--model.dropout", str(options.dropout)]
    config = of_recipe(find_recipe(options.recipe), settings)
    work, text = prepare(options.recipe, settings, "tutorial", 1024), corpora(config)
    tokenizer, _ = train_tokenizers(config, text["train"])
    loop = TorchLoop(work)
    rate = Schedule("paper", warmup_updates=WARMUP, d_model=work.model.d_model)
    seconds, updates = 0.0, 0

    def score(part, count=None):
        sources, references = zip(*itertools.islice(text[part], count), strict=True)
        made = translate(loop.model, tokenizer, sources, work.longest)
        return score_text(made, list(references))

    for number in range(1, options.scored + 1):
        while seconds < options.minutes * 60 * number / options.scored:
            began = time.perf_counter()
            for group in loop.optimizer.param_groups:
                group["lr"] = float(rate(updates))
            loss = loop.update(loop.padded(work.single.batch(updates)))
            seconds += time.perf_counter() - began
            updates += 1
        bleu = score("valid", SENTENCES)["bleu"]
        print(
            f"{seconds / 60:5.1f} min  {updates:6,d} updates  loss {loss:.3f}  validation BLEU {bleu:.1f}", flush=True
        )
    scores = score("test")
    print(f"after {seconds / 60:.1f} min: BLEU {scores['bleu']:.2f} chrF {scores['chrf']:.2f} on the test text, greedy")


if __name__ == "__main__":
    main()
