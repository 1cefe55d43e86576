"""heedful bench decode: compare decoding speed with CTranslate2."""

from heedful.commands.arguments import add_run, count


def add_arguments(parser):
    """Add the arguments of the command."""
    add_run(parser, "a trained translator with test text")
    parser.add_argument("--rounds", type=count, default=5, help="measurements per row (default: 5)")
    parser.add_argument("--sentences", type=count, default=1000, help="sentences to translate (default: 1000)")
    parser.add_argument("--quantization", default="float32", help="type of CTranslate2's weights (default: float32)")
    parser.add_argument(
        "--precision", nargs="+", default=["float32"], choices=("float32", "bfloat16", "int8"),
        help="precisions of heedful's matrix products, one or several (default: float32)",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", nargs="+", choices=("trained", "base"), default=["trained", "base"],
        help="the run's own weights, random ones of size base, or both (default)",
    )  # fmt: skip


def run(options):
    """Run the command."""
    from heedful.bench import decoding
    from heedful.commands.terminal import report_progress

    decoding.compare(options, report_progress)
