"""heedful inspect: draw attention maps, the positional encoding, the learning rate; measure heads."""

import argparse
from pathlib import Path

from heedful.commands.arguments import add_run, count

ATTENTION_KINDS = ("encoder self", "decoder self", "cross")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument("sentence", nargs="?", help="a source sentence")
    parser.add_argument("--target", help="its translation (default: the model's own)")
    parser.add_argument("--layer", type=count, help="layer, from 1 (default: all)")
    parser.add_argument("--head", type=count, help="one head, from 1 (default: all heads in one figure)")
    parser.add_argument("--kind", choices=ATTENTION_KINDS, help="default: all three")
    parser.add_argument("--positions", action="store_true", help="draw the positional encoding")
    parser.add_argument("--schedule", action="store_true", help="draw the learning rate")
    parser.add_argument("--heads", action="store_true", help="measure how the loss changes without each head")
    parser.add_argument(
        "--tokens", type=count, help="tokens of the validation text that --heads reads (default: 20000)"
    )
    parser.add_argument("--out", type=Path, help="folder for the figures (default: RUN/figures)")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.core.errors import InputError
    from heedful.inspection import figures
    from heedful.inspection.positions import position_encoding
    from heedful.runs.run import Run
    from heedful.training.schedule import training_schedule

    run = Run.open(options.run)
    if not (options.sentence or options.positions or options.schedule or options.heads):
        raise InputError("Give a sentence, --positions, --schedule or --heads.")
    if not options.sentence and (options.target or options.layer or options.head or options.kind):
        raise InputError("--target, --layer, --head and --kind say what to draw of a sentence: give one.")

    if options.tokens and not options.heads:
        raise InputError("--tokens is for --heads.")
    if options.out and not (options.sentence or options.positions or options.schedule):
        raise InputError("--out is for figures, and --heads draws none.")
    layers = _layers_to_draw(run.of_task("translate"), options) if options.sentence else []

    def figure(name):
        """Return the file of a figure: links in a folder that the user names are followed, those in a run replaced."""
        return (options.out / name).resolve() if options.out else run.path / "figures" / name

    if options.positions:
        print(figures.draw_positions(figure("positions.png"), position_encoding(run)))
    if options.schedule:
        train = run.config.train
        schedule = training_schedule(train, run.config.model.d_model)
        print(figures.draw_schedule(figure("schedule.png"), schedule, train.updates))
    if options.heads:
        _measure_heads(run, options.tokens or 20_000)
    if options.sentence:
        _draw_attention(run, options, layers, figure)


def _layers_to_draw(run, options):
    """Return the kinds and layers of attention to draw; `InputError` for a layer or head that the model lacks."""
    from heedful.core.errors import InputError

    model, kinds = run.config.model, [options.kind] if options.kind else ATTENTION_KINDS
    depths = {kind: model.depths["encoder" if kind == "encoder self" else "decoder"] for kind in kinds}
    deepest = max(depths.values())
    if options.layer and options.layer > deepest:
        kind = options.kind or "attention"
        raise InputError(f"There is no layer {options.layer}: {kind} has layers 1 to {deepest}.")
    if options.head and options.head > model.num_heads:
        raise InputError(f"There is no head {options.head}: each layer has heads 1 to {model.num_heads}.")
    pairs = ((kind, layer) for kind, depth in depths.items() for layer in range(1, depth + 1))
    return [(kind, layer) for kind, layer in pairs if options.layer in (None, layer)]


def _draw_attention(run, options, layers, figure):
    """Draw the attention of a sentence and its translation, one figure for each of the `layers` with their kinds."""
    from heedful.inference.translator import Translator
    from heedful.inspection.figures import draw_attention
    from heedful.inspection.translation import TranslationInspection

    maps = TranslationInspection.of(Translator.from_run(run), options.sentence, options.target)
    print(maps.translation)
    for kind, layer in layers:
        name = f"{kind.replace(' ', '-')}-layer{layer}" + (f"-head{options.head}" if options.head else "")
        print(draw_attention(figure(f"{name}.png"), maps, kind, layer, options.head))


def _measure_heads(run, tokens):
    """Measure the heads, and print them, the most important first."""
    from heedful import backend
    from heedful.core.errors import counted
    from heedful.inspection.head_importance import measure_heads

    backend.keep_compilations()
    importance = measure_heads(run, tokens)
    changes = [
        (change, f"{kind} layer {layer} head {head}")
        for kind, layers in importance["heads"].items()
        for layer, row in enumerate(layers, start=1)
        for head, change in enumerate(row, start=1)
    ]
    unit = "text" if run.task.text_layout(run.config.data) == "labelled" else "token"
    amount = counted(importance["tokens"], unit)
    print(f"loss {importance['loss']:.4f} nats per {unit}, on {amount} of {importance['text']}")
    for change, name in sorted(changes, reverse=True):
        print(f"{change:+.4f}  without {name}")
