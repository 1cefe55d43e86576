"""Translate a text file with Ray Data: workers on one machine or a cluster, in the order of the lines.

    pip install 'ray[data]'
    python translate.py RUN in.txt out.txt --workers 2

A worker that dies is started again by Ray, and its batch is translated once more. If the driver dies, nothing of its
work is kept: for many hours of work, use `heedful translate --share` instead.
"""

import argparse
from pathlib import Path

import ray

WINDOW = 3200  # lines in a batch: as many as a translator with batches of 64 sorts and decodes together


class Worker:
    """Holds the model in a process of its own.

    Args:
        run: path of a run folder that every machine sees.
    """

    def __init__(self, run: str):
        import heedful

        self.translator = heedful.load(run)

    def __call__(self, batch):
        """Add the column `translation` to a batch with the columns `number` and `text`."""
        first = int(batch["number"][0]) + 1  # warnings and samples are numbered by the place in the file
        translated = self.translator.predict_stream(list(batch["text"]), first=first)
        batch["translation"] = [candidates[0].text for candidates in translated]
        return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    lines = options.source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    rows = ray.data.from_items([{"number": number, "text": line} for number, line in enumerate(lines)])
    translated = rows.map_batches(
        Worker, fn_constructor_args=(str(options.run.resolve()),), batch_size=WINDOW,
        compute=ray.data.ActorPoolStrategy(size=options.workers),
    )  # fmt: skip
    aside = options.target.with_name(f".{options.target.name}.part")
    with aside.open("w", encoding="utf-8") as file:
        for row in translated.iter_rows():
            file.write(" ".join(row["translation"].split("\n")) + "\n")
    aside.replace(options.target)


if __name__ == "__main__":
    main()
