"""The built-in Portuguese-English corpus: a grammar that generates sentence pairs.

Nouns have gender and number; articles and adjectives agree with them, and some adjectives precede the noun. Verbs
inflect for person and tense and may drop their subject. Prepositions contract with articles (do, na), and relative
clauses nest. Each sentence belongs to one part of the corpus only, and some word pairs occur only in the part `unseen`.
"""

import hashlib
import random
from dataclasses import dataclass, field

from heedful.data.phrasebook_words import ADJECTIVES, NAMES, NOUNS, NUMBERS, PERSONS, PRONOUNS, STATES, VERBS, conjugate


@dataclass
class Phrase:
    """A phrase in both languages, with its grammatical features."""

    source: str
    target: str
    person: str = "ele"  # eu, ele, nós, eles: what the Portuguese verb agrees with
    gender: str = "m"
    kind: str = ""
    english: str = "it"  # I, you, it, we, they: what the English verb agrees with
    bonds: set = field(default_factory=set)  # pairs of words that this phrase combines


class Grammar:
    """A generator of random sentence pairs.

    Args:
        chance: a `random.Random`.
    """

    def __init__(self, chance):
        self.chance = chance

    def sentence(self):
        """Return (Portuguese, English, bonds)."""
        kinds = [self.statement, self.copula, self.question, self.who_question, self.where_question]
        write = self.chance.choices(kinds, weights=(60, 18, 12, 5, 5))[0]
        source, target, bonds = write()
        return source[0].upper() + source[1:], target[0].upper() + target[1:], bonds

    def statement(self):
        verb = self.chance.choice(VERBS)
        subject = self.subject(verb[4])
        thing = self.object(verb)
        tense = self.chance.choice(["present", "past", "habit", "future", "going"])
        negative = self.chance.random() < 0.2
        source_verb, target_verb = self.verb(verb, subject, tense, negative)
        source, target = f"{source_verb} {thing.source}", f"{target_verb} {thing.target}"
        if self.chance.random() < 0.35:
            place = self.place()
            source, target = f"{source} {place.source}", f"{target} {place.target}"
            thing.bonds |= place.bonds
        source, target = self.when(source, target, tense, subject.person)
        # The verb ending identifies `eu` and `nós`, except that `eu` and `ele` share the form of the imperfect.
        dropped = subject.source == "nós" or (subject.source == "eu" and tense != "habit")
        if not (dropped and self.chance.random() < 0.6):
            source = f"{subject.source} {source}"
        return f"{source}.", f"{subject.target} {target}.", subject.bonds | thing.bonds

    def copula(self):
        subject = self.noun_phrase(
            self.chance.choice(["person", "animal", "thing", "place", "food", "text", "drink"]), definite=True
        )
        row = self.adjective(subject.kind)
        infinitive = "estar" if row[0] in STATES else "ser"
        tense = self.chance.choice(["present", "habit"])
        no, no_en = ("não ", " not") if self.chance.random() < 0.2 else ("", "")
        be = {"present": ("is", "are"), "habit": ("was", "were")}[tense][subject.english == "they"]
        quality = _agree(row, subject)
        source = f"{subject.source} {no}{conjugate(infinitive, tense)[subject.person]} {quality}"
        return f"{source}.", f"{subject.target} {be}{no_en} {row[4]}.", subject.bonds | {(self._head, row[0])}

    def question(self):
        verb = self.chance.choice(VERBS)
        subject = self.subject(verb[4])
        thing = self.object(verb)
        tense = self.chance.choice(["present", "past", "future"])
        helper = self.helper(tense, subject)
        form = conjugate(verb[0], tense)[subject.person]
        source = f"{subject.source} {form} {thing.source}"
        if subject.person == "nós" and tense == "past":  # compramos is present and past
            return f"{source} ontem?", f"{helper} {subject.target} {verb[1]} {thing.target} yesterday?", thing.bonds
        return f"{source}?", f"{helper} {subject.target} {verb[1]} {thing.target}?", subject.bonds | thing.bonds

    def who_question(self):
        verb = self.chance.choice(VERBS)
        thing = self.object(verb)
        tense = self.chance.choice(["present", "past", "future"])
        english = {"present": verb[2], "past": verb[3], "future": f"will {verb[1]}"}[tense]
        return f"quem {conjugate(verb[0], tense)['ele']} {thing.source}?", f"who {english} {thing.target}?", thing.bonds

    def where_question(self):
        thing = self.noun_phrase(self.chance.choice(["person", "animal", "thing", "text"]), definite=True)
        be = "are" if thing.english == "they" else "is"
        verb = conjugate("estar", "present")[thing.person]
        return f"onde {verb} {thing.source}?", f"where {be} {thing.target}?", thing.bonds

    def subject(self, kinds):
        """Return a subject: a pronoun, a name, or a noun phrase of one of the `kinds`."""
        draw = self.chance.random()
        if draw < 0.35:
            source, target, person = self.chance.choice(PRONOUNS)
            english = {"he": "it", "she": "it"}.get(target, target)
            return Phrase(source, target, person, english=english, kind="person")
        if draw < 0.45:
            name = self.chance.choice(NAMES)
            return Phrase(name, name, "ele", kind="person")
        return self.noun_phrase(self.chance.choice(kinds.split(",")), relative=self.chance.random() < 0.12)

    def object(self, verb):
        """Return an object of the verb, with the bond between the verb and the noun."""
        kind, _, word = self.chance.choice(verb[5].split(",")).partition(":")
        row = next(row for row in NOUNS if row[0] == word) if word else None
        phrase = self.noun_phrase(kind, row=row, relative=self.chance.random() < 0.08)
        head = self._head
        phrase.bonds.add((verb[0], head))
        return phrase

    def noun_phrase(self, kind, row=None, definite=False, relative=False):
        """Return a determiner and a noun of a kind, optionally with an adjective, an owner and a relative clause."""
        row = row or self.chance.choice([row for row in NOUNS if row[5] == kind])
        singular, plural, gender, english, english_plural, kind = row
        mass = plural == "-"
        many = not mass and self.chance.random() < 0.35
        phrase = Phrase("", "", "eles" if many else "ele", gender, kind, "they" if many else "it")
        source, target = (plural, english_plural) if many else (singular, english)
        if self.chance.random() < 0.35:
            adjective = self.adjective(kind)
            word = _agree(adjective, phrase)
            source = f"{word} {source}" if adjective[6] == "before" else f"{source} {word}"
            target = f"{adjective[4]} {target}"
            phrase.bonds.add((singular, adjective[0]))
        article, article_en = self.determiner(phrase, mass, definite, target)
        phrase.source, phrase.target = f"{article} {source}".strip(), f"{article_en} {target}".strip()
        if kind in ("thing", "text", "place") and article == _article(phrase) and self.chance.random() < 0.25:
            self.own(phrase, target)
        if relative:
            self.relate(phrase)
        self._head = singular
        return phrase

    def determiner(self, phrase, mass, definite, following):
        many, feminine = phrase.person == "eles", phrase.gender == "f"
        choices = ["the"] * 4 + ([] if mass else ["this", "that"]) + ["my", "our"]
        if not definite:
            choices += [""] if mass else (["number"] * 2 if many else ["a"] * 2)
        choice = self.chance.choice(choices)
        index = 2 * many + feminine
        if choice == "the":
            return _article(phrase), "the"
        if choice == "a":
            return ("uma" if feminine else "um"), ("an" if following[0] in "aeio" else "a")
        if choice == "number":
            source, target = self.chance.choice(NUMBERS).split()
            return ("duas" if feminine and source == "dois" else source), target
        forms = {
            "this": "este esta estes estas", "that": "aquele aquela aqueles aquelas",
            "my": "meu minha meus minhas", "our": "nosso nossa nossos nossas", "": "",
        }  # fmt: skip
        english = {"this": ("this", "these"), "that": ("that", "those")}.get(choice, (choice, choice))[many]
        return (forms[choice].split()[index] if choice else ""), english

    def own(self, phrase, target):
        """Add an owner: a casa do médico, the doctor's house."""
        row = self.chance.choice([row for row in NOUNS if row[5] == "person"])
        many = self.chance.random() < 0.3
        owner = Phrase("", "", "eles" if many else "ele", row[2])
        name = row[4] if many else row[3]
        possessive = f"{name}'" if many and name.endswith("s") else f"{name}'s"
        phrase.source += f" d{_article(owner)} {row[1] if many else row[0]}"
        phrase.target = f"the {possessive} {target}"

    def relate(self, phrase):
        """Add a relative clause whose subject is the phrase: que comprou o livro."""
        actor = phrase.kind if phrase.kind in ("person", "animal") else None
        if actor is None:
            return
        verb = self.chance.choice([verb for verb in VERBS if actor in verb[4].split(",")])
        tense = self.chance.choice(["present", "past"])
        many = phrase.english == "they"
        english = verb[3] if tense == "past" else verb[1] if many else verb[2]
        thing = self.object(verb)
        pronoun = "who" if actor == "person" else "that"
        phrase.source += f" que {conjugate(verb[0], tense)[phrase.person]} {thing.source}"
        phrase.target += f" {pronoun} {english} {thing.target}"
        phrase.bonds |= thing.bonds

    def place(self):
        row = self.chance.choice([row for row in NOUNS if row[5] == "place"])
        many = self.chance.random() < 0.2
        phrase = Phrase("", "", "eles" if many else "ele", row[2], "place")
        source, target = (row[1], row[4]) if many else (row[0], row[3])
        if self.chance.random() < 0.25:
            adjective = self.adjective("place")
            word = _agree(adjective, phrase)
            source = f"{word} {source}" if adjective[6] == "before" else f"{source} {word}"
            target = f"{adjective[4]} {target}"
            phrase.bonds.add((row[0], adjective[0]))
        return Phrase(f"n{_article(phrase)} {source}", f"in the {target}", bonds=phrase.bonds)

    def adjective(self, kind):
        return self.chance.choice([row for row in ADJECTIVES if kind in row[5].split(",")])

    def verb(self, verb, subject, tense, negative):
        """Return the conjugated verb in both languages."""
        base, third, past = verb[1:4]
        alone = subject.english == "it"
        be = {"I": "am", "it": "is"}.get(subject.english, "are")
        no, no_en = ("não ", " not") if negative else ("", "")
        if tense == "going":
            go = dict(zip(PERSONS, ("vou", "vai", "vamos", "vão"), strict=True))[subject.person]
            return f"{no}{go} {verb[0]}", f"{be}{no_en} going to {base}"
        form = conjugate(verb[0], tense)[subject.person]
        if tense == "future":
            return f"{no}{form}", f"will{no_en} {base}"
        if tense == "habit":
            return f"{no}{form}", f"did not use to {base}" if negative else f"used to {base}"
        if negative:
            return f"{no}{form}", f"{self.helper(tense, subject)} not {base}"
        return form, past if tense == "past" else third if alone else base

    def helper(self, tense, subject):
        return {"past": "did", "future": "will"}.get(tense, "does" if subject.english == "it" else "do")

    def when(self, source, target, tense, person):
        """Add a time expression at random, and always if the Portuguese verb could be past or present."""
        words = {
            "present": [("agora", "now"), ("todos os dias", "every day")],
            "past": [("ontem", "yesterday")],
            "habit": [("antigamente", "in the old days")],
            "future": [("amanhã", "tomorrow")],
            "going": [("hoje", "today"), ("amanhã", "tomorrow")],
        }[tense]
        if self.chance.random() < 0.2 or (person == "nós" and tense == "past"):
            source_word, target_word = self.chance.choice(words)
            if target_word == "now":  # "now" does not fit the simple present
                source_word, target_word = "todos os dias", "every day"
            return f"{source} {source_word}", f"{target} {target_word}"
        return source, target


def _agree(adjective, phrase):
    return adjective[2 * (phrase.person == "eles") + (phrase.gender == "f")]


def _article(phrase):
    return ("o", "a", "os", "as")[2 * (phrase.person == "eles") + (phrase.gender == "f")]


def part_of(source, bonds):
    """Return the part that a sentence belongs to: `train`, `valid`, `test`, or `unseen`.

    About one in twenty word pairs (noun and adjective, verb and object) occurs only in `unseen`. A hash of the sentence
    divides the rest 96 : 2 : 2, so the parts cannot overlap.
    """
    if any(_hash(" ".join(bond)) % 20 == 0 for bond in bonds):
        return "unseen"
    place = _hash(source) % 100
    return "train" if place < 96 else "valid" if place < 98 else "test"


def _hash(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def phrasebook(part, count, seed=0) -> list[tuple[str, str]]:
    """Return `count` distinct (Portuguese, English) pairs of a part: `train`, `valid`, `test` or `unseen`."""
    grammar = Grammar(random.Random(f"{seed}/{part}"))
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        source, target, bonds = grammar.sentence()
        if part_of(source, bonds) == part:
            pairs.setdefault(source, target)
    return list(pairs.items())
