"""The plan of a distillation. It is saved in the run folder of the student, from which a distillation is resumed."""

import dataclasses
import json
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.config import Config, DecodeConfig
from heedful.core.errors import InputError
from heedful.core.storage import write_text
from heedful.core.validation import at_least, at_most, fraction, from_dict, positive, read_json
from heedful.interop.export.formats import FORMATS, Format, format_named

FOLDER = "distillation"  # in the run folder of the student
PLAN, CONFIG = "plan.json", "student.json"
FORMAT = 1
BACK_TAG = "<back>"  # begins a source that was translated from its target (Caswell et al. 2019)
DEFAULT_EXPORTS = ("ctranslate2:int8",)
NO_EXPORT = "none"


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """The teacher: runs, a CTranslate2 model, or a model that an OpenAI-compatible API serves."""

    paths: tuple[str, ...] = ()
    """Run folders, several as an ensemble; or the folder of a CTranslate2 model."""
    engine: str = "heedful"
    """Of a run: heedful or ctranslate2."""
    endpoint: str = ""
    """Address of an OpenAI-compatible API, such as http://localhost:8000/v1."""
    model: str = ""
    """Name of the model that it serves."""
    system_prompt: str = ""
    """System prompt of each request."""
    parallel: int = 4
    """Requests at the same time."""
    budget: int = 0
    """Tokens that requests may read and write in all; 0: any number."""

    def __post_init__(self) -> None:
        if bool(self.paths) == bool(self.endpoint):
            raise InputError("Name a teacher: run folders, or the address of an endpoint.")
        if bool(self.endpoint) != bool(self.model):
            raise InputError("An endpoint needs the name of its model, and only an endpoint has one.")
        address = urllib.parse.urlsplit(self.endpoint)
        if address.username or address.query:
            raise InputError("The address of an endpoint holds no key: set OPENAI_API_KEY.")
        positive(self, "parallel")
        at_most(self, parallel=1000)
        at_least(self, 0, "budget")

    def __str__(self) -> str:
        return f"{self.model} at {self.endpoint}" if self.endpoint else " and ".join(self.paths)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A distillation."""

    teacher: TeacherPlan
    format: int = FORMAT
    """Version of this format."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How the teacher searches."""
    text: tuple[str, ...] = ()
    """Files of the texts to translate, lines or tables with references. Empty: the training text of the recipe."""
    references: tuple[str, ...] = ()
    """Files with a translation of each of them."""
    back: bool = False
    """Whether the teacher translates from the student's target language: back-translation (Sennrich et al. 2016)."""
    real_weight: float = 0.0
    """How often real pairs are read too, relative to the pairs of the teacher. 0: they are not."""
    drop: float = 0.05
    """Share of the translations, the worst ones, that are dropped."""
    exports: tuple[str, ...] = ()
    """Forms of the student: FORMAT or FORMAT:QUANTIZATION."""
    shortlist: bool = False
    """Whether the exports consider only likely translations of the tokens of a text."""
    origins: tuple[str, ...] = ()
    """Where the settings of the student came from: NAME=ORIGIN."""

    def __post_init__(self) -> None:
        fraction(self, "drop")
        at_least(self, 0, "real_weight")
        if self.references and not self.text:
            raise InputError("References need the text that they are translations of.")
        forms = [export_of(name)[0] for name in self.exports]
        if len(set(map(id, forms))) < len(forms):
            raise InputError("A form of an export is given twice: each has one quantization.")
        if self.shortlist and not forms:
            raise InputError("A shortlist is part of an export: leave out --shortlist, or name a form of --to.")
        if self.shortlist:
            for form in forms:
                form.require_shortlist()
        if self.teacher.endpoint and self.decode.n_best > 1 and not self.decode.sample:
            raise InputError("An endpoint has several candidates only if they are sampled: give --sample too.")

    def save(self, folder: Path, config: Config) -> None:
        """Write the plan, and the config of the student, into a folder."""
        write_text(folder / CONFIG, config.to_json())
        write_text(folder / PLAN, json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "tuple[Plan, Config]":
        """Read what `save` wrote; raise `InputError` if a folder has none of it, or of a newer format."""
        if not (folder / PLAN).is_file():
            raise InputError(f"{folder} holds no distillation to continue.")
        table: Any = read_json(folder / PLAN)
        if isinstance(table, dict) and table.get("format") != FORMAT:
            raise InputError(f"{folder / PLAN} has format {table.get('format')!r}; this version reads {FORMAT}.")
        return from_dict(cls, table, str(folder / PLAN)), Config.from_json(folder / CONFIG)


def export_of(name: str) -> tuple[Format, str]:
    """Return the `Format` and the quantization that a text such as `ctranslate2:int8` names.

    Raises:
        InputError: it names none, its library is not installed, or it does not export translators.
    """
    form_name, _, quantization = name.partition(":")
    if form_name not in FORMATS:
        raise InputError(f"{form_name!r} is not an export format: choose one of {', '.join(FORMATS)}.")
    form = format_named(form_name)
    form.require_quantization(quantization or "float32")
    form.require()
    return form, quantization or "float32"
