"""The commands of the command line, one module each, with the functions `add_arguments` and `run`.

A module is imported only when its command is called; slow imports happen only in `run`.
"""

import importlib
from types import ModuleType

# Groups of commands, each command with one line of help.
GROUPS = (
    ("train", (
        ("quickstart", "train on the built-in Portuguese-English corpus, translate, show attention"),
        ("train", "train a run on text or from a recipe, or resume one"),
        ("tune", "find the settings that give the best model of a text in a given time"),
        ("distil", "train a small, fast translator on the translations of a larger one"),
        ("check", "check that a run reads, writes and learns correctly: masks, caches, gradients, ..."),
    )),
    ("use", (
        ("translate", "translate lines: one line out for each line in"),
        ("align", "link the words of translations with those of their sources, in Pharaoh format"),
        ("generate", "continue prompts with a language model"),
        ("fill", "predict the token at each [MASK] of a text"),
        ("classify", "write a class for each line"),
        ("embed", "write a vector for each line: numbers separated by tabs"),
    )),
    ("inspect", (
        ("evaluate", "score a run: BLEU and chrF, loss and bits per byte, or accuracy and F1"),
        ("compare", "compare the scores of runs: intervals, differences, and whether they could be chance"),
        ("inspect", "draw attention maps, positions, the learning rate; measure what each head is worth"),
        ("page", "write one HTML file that shows why a run writes each word; it needs no network"),
        ("explain", "explain a setting: heedful explain train.learning_rate"),
        ("diff", "list the settings in which two runs or recipes differ"),
    )),
    ("data", (
        ("data list", "list the texts that can be downloaded by name"),
        ("data info", "show what a named text is, its licence and where it comes from"),
        ("data get", "download a named text"),
        ("doctor", "examine text: what is misaligned, repeated, in the wrong language, broken, leaked, ..."),
    )),
    ("ship", (
        ("serve", "answer requests over HTTP: LibreTranslate, DeepL and OpenAI clients"),
        ("export", "export to transformers, ONNX, CTranslate2, Marian or Bergamot, and check the results"),
        ("push", "upload an export to the Hugging Face hub"),
        ("import", "create a run from a pretrained BERT, RoBERTa, GPT-2, Llama, Qwen3, Marian, ..."),
    )),
)  # fmt: skip
HELP = {name: text for _, commands in GROUPS for name, text in commands}


def module_of(command: str) -> ModuleType:
    """Import the module of a command."""
    name = "import_" if command == "import" else command.replace(" ", "_")
    return importlib.import_module(f"heedful.commands.{name}")
