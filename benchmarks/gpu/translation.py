"""Greedy search with random weights, beside other engines with the same weights and sentences."""

import tempfile
import time
from pathlib import Path

from benchmarks.gpu.work import VOCABULARY, WRITTEN, model_config, new_model, random_sources, vocabulary


def translation(options):
    """Return output tokens a second of greedy search with random weights."""
    from heedful.config import DecodeConfig
    from heedful.decoding.batch_search import BatchSearch

    sources = random_sources(options)
    search = BatchSearch(
        new_model("tiny" if options.small else "base", "bfloat16"),
        DecodeConfig(batch_size=256, max_length=WRITTEN),
        vocabulary(),
    )
    return translated_per_second(lambda: sum(len(candidates[0].ids) for candidates in search(sources)))


def random_run(folder, size):
    """Save a run with the weights of `translation` in a folder, and return it."""
    from heedful.config import Config, TokenizerConfig
    from heedful.runs.run import Run
    from heedful.runs.weights import weights_by_name

    config = Config(task="translate", model=model_config(size), tokenizer=TokenizerConfig(vocab_size=VOCABULARY))
    return Run.create(Path(folder, "run"), config, vocabulary(), weights=weights_by_name(new_model(size)))


def ctranslate2_translation(options):
    """Return output tokens a second of CTranslate2, with the weights and sentences of `translation`."""
    import ctranslate2

    from heedful.interop.export.ctranslate2 import export

    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    supported = ctranslate2.get_supported_compute_types(device)
    precision = next(one for one in ("bfloat16", "float16", "float32") if one in supported)
    words = vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        export(random_run(folder, "tiny" if options.small else "base"), Path(folder, "model"))
        engine = ctranslate2.Translator(str(Path(folder, "model")), device=device, compute_type=precision)
        texts = [[words.lookup(token) for token in ids] for ids in random_sources(options)]

        def translate():
            done = engine.translate_batch(texts, beam_size=1, max_batch_size=256, max_decoding_length=WRITTEN)
            return sum(len(result.hypotheses[0]) for result in done)

        return translated_per_second(translate) | {"device": device, "precision": precision}


def transformers_translation(options):
    """Return output tokens a second of `generate` in transformers, with the weights and sentences of `translation`."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from heedful.interop.export.huggingface import export

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        export(random_run(folder, "tiny" if options.small else "base"), Path(folder, "model"))
        model = AutoModelForSeq2SeqLM.from_pretrained(str(Path(folder, "model")), dtype=torch.bfloat16).to(device)
    sources = sorted(random_sources(options), key=len)

    def translate():
        written = 0
        for first in range(0, len(sources), 256):
            rows = sources[first : first + 256]
            longest = max(map(len, rows))
            ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
            done = model.generate(
                input_ids=ids, attention_mask=ids != 0, num_beams=1, do_sample=False, max_new_tokens=WRITTEN
            )
            written += int((done[:, 1:] != model.config.pad_token_id).sum())
        return written

    return translated_per_second(translate) | {"device": device}


def translated_per_second(translate):
    """Return output tokens a second of the second call of a function that returns how many it wrote."""
    translate()
    began = time.perf_counter()
    written = translate()
    return {"output_tokens_per_second": written / (time.perf_counter() - began), "written": written}
