"""Count the translations that do not depend on batch size, neighbours or order, greedy and with a beam of 4.

    HEEDFUL_DATA=... python benchmarks/invariance.py RUN [--sentences 1000] [--precision float32]

RUN is a trained multi30k-de-en run; the text is test_2016_flickr of Multi30k. Products are in float32 by default, the
precision for which heedful guarantees identical translations. The last line has the number of identical translations
for each search.
"""

import argparse
import random
from pathlib import Path

from heedful.core.memory import keep_freed_memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--precision", default="float32", help="float32, bfloat16, int8 or as_trained")
    options = parser.parse_args()
    keep_freed_memory()
    import heedful
    from heedful import backend
    from heedful.data.corpus import resolve
    from heedful.data.text_files import read_lines

    backend.keep_compilations()
    translator = heedful.load(options.run)
    lines = list(read_lines(resolve("multi30k/test_2016_flickr.de.gz")))[: options.sentences]
    order = random.Random(1).sample(range(len(lines)), len(lines))
    summary = []
    for name, beam_size in (("greedy", 1), ("beam 4", 4)):
        settings = {"beam_size": beam_size, "precision": options.precision}
        made = [translator.translate(lines, batch_size=size, **settings) for size in (64, 7, 1)]
        shuffled = translator.translate([lines[index] for index in order], **settings)
        restored = dict(zip(order, shuffled, strict=True))
        same = sum(len({*texts, restored[index]}) == 1 for index, texts in enumerate(zip(*made, strict=True)))
        summary.append(f"{name} {same} of {len(lines)}")
        print(f"{summary[-1]} identical for batches of 64, 7, 1 and shuffled", flush=True)
    print("identical translations: " + ", ".join(summary))


if __name__ == "__main__":
    main()
