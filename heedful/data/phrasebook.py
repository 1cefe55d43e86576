"""The built-in Portuguese-English corpus: a grammar that generates sentence pairs.

Nouns have gender and number; articles and adjectives agree with them, and some adjectives precede the noun. Verbs
inflect for person and tense and may drop their subject. Prepositions contract with articles (do, na). Each sentence
belongs to one part of the corpus only, and some word pairs occur only in the part `unseen`.
"""

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

from heedful.data.phrasebook_words import (
    LASTING,
    NAMES,
    NOUNS,
    NUMBERS,
    OWNED,
    PERSONS,
    PREPOSITIONS,
    PRONOUNS,
    STATES,
    TIMES,
    VERBS,
    Noun,
    adjectives,
    conjugate,
    goes_with,
    nouns,
)


@dataclass
class Phrase:
    """A phrase in both languages, with its grammatical features."""

    source: str
    target: str
    person: str = "ele"  # eu, ele, nós, eles: what the Portuguese verb agrees with
    gender: str = "m"
    english: str = "it"  # I, you, it, we, they: what the English verb agrees with
    noun: Noun | None = None
    bonds: set = field(default_factory=set)  # pairs of words that this phrase combines

    @property
    def many(self) -> bool:
        """Whether the phrase is plural."""
        return self.person == "eles"

    def form(self, forms: Any) -> str:
        """Return the one of four forms (masculine, feminine, and their plurals) that agrees with the phrase."""
        return forms[2 * self.many + (self.gender == "f")]

    @property
    def article(self) -> Any:
        """The definite article in Portuguese."""
        return self.form("o a os as".split())


class Grammar:
    """A generator of random sentence pairs.

    Args:
        chance: a `random.Random`.
    """

    def __init__(self, chance: random.Random):
        self.chance = chance

    def sentence(self) -> Any:
        """Return (Portuguese, English, bonds)."""
        kinds = [self.statement, self.copula, self.question, self.who_question, self.where_question]
        write = self.chance.choices(kinds, weights=(60, 18, 12, 5, 5))[0]
        source, target, bonds = write()
        return source[0].upper() + source[1:], target[0].upper() + target[1:], bonds

    def statement(self) -> Any:
        """Somebody does something: *A menina leu a carta no jardim.*"""
        verb = self.chance.choice(VERBS)
        subject = self.subject(verb)
        tense = self.tense(verb)
        negative = tense != "habit" and self._maybe(0.15)
        source_verb, target_verb = self.verb(verb, subject, tense, negative)
        thing = self.object(verb)
        source, target = f"{source_verb} {thing.source}", f"{target_verb} {thing.target}"
        bonds = subject.bonds | thing.bonds
        if verb.places != "-" and self._maybe(0.35):
            place = self.place(verb)
            source, target, bonds = f"{source} {place.source}", f"{target} {place.target}", bonds | place.bonds
        # `Compramos` is past and present, so the past says when.
        if (self._maybe(0.25) and verb.infinitive not in LASTING) or (subject.person == "nós" and tense == "past"):
            when = self.chance.choice(TIMES[tense])
            source, target = f"{source} {when[0]}", f"{target} {when[1]}"
        # The verb's ending identifies `eu` and `nós`, except that `eu` and `ele` share the form of the imperfect.
        dropped = subject.source == "nós" or (subject.source == "eu" and tense != "habit")
        if not (dropped and self._maybe(0.6)):
            source = f"{subject.source} {source}"
        return f"{source}.", f"{subject.target} {target}.", bonds

    def copula(self) -> Any:
        """A subject with a predicate adjective: *A minha irmã estava cansada.*"""
        if self._maybe(0.2):
            name, gender = self.chance.choice(NAMES)
            subject = Phrase(name, name, gender=gender)
            row = self.chance.choice(adjectives(nouns("amigo")[0]))
        else:
            noun = self.chance.choice([noun for noun in NOUNS if adjectives(noun)])
            subject = self.noun_phrase(noun, definite=True, adjective=0.1)
            row = self.chance.choice(adjectives(noun))
            subject.bonds.add((noun.singular, row.masculine))
        tense = self.chance.choice(["present", "habit"])
        no, no_en = ("não ", " not") if self._maybe(0.2) else ("", "")
        be = {"present": ("is", "are"), "habit": ("was", "were")}[tense][subject.many]
        infinitive = "estar" if row.masculine in STATES else "ser"
        source = f"{subject.source} {no}{conjugate(infinitive, tense)[subject.person]} {subject.form(row)}"
        return f"{source}.", f"{subject.target} {be}{no_en} {row.english}.", subject.bonds

    def question(self) -> Any:
        """Does somebody do something: *Você perdeu a chave?*"""
        verb = self.chance.choice(VERBS)
        subject = self.subject(verb)
        thing = self.object(verb)
        tense = self.chance.choice(["present", "past"] if verb.infinitive in LASTING else ["present", "past", "future"])
        source = f"{subject.source} {conjugate(verb.infinitive, tense)[subject.person]} {thing.source}"
        target = f"{self.helper(tense, subject)} {subject.target} {verb.base} {thing.target}"
        if subject.person == "nós" and tense == "past":
            source, target = f"{source} ontem", f"{target} yesterday"
        return f"{source}?", f"{target}?", subject.bonds | thing.bonds

    def who_question(self) -> Any:
        """Who does something: *Quem comeu o bolo?*"""
        verb = self.chance.choice(VERBS)
        thing = self.object(verb)
        tense = self.chance.choice(["present", "past"] if verb.infinitive in LASTING else ["present", "past", "future"])
        english = {"present": verb.third, "past": verb.past, "future": f"will {verb.base}"}[tense]
        source = f"quem {conjugate(verb.infinitive, tense)['ele']} {thing.source}"
        return f"{source}?", f"who {english} {thing.target}?", thing.bonds

    def where_question(self) -> Any:
        """Where is something: *Onde está a minha chave?*"""
        thing = self.noun_phrase(self.chance.choice(nouns("person,animal,thing,text")), definite=True)
        source = f"onde {conjugate('estar', 'present')[thing.person]} {thing.source}"
        return f"{source}?", f"where {'are' if thing.many else 'is'} {thing.target}?", thing.bonds

    def tense(self, verb: Any) -> str:
        if verb.infinitive in LASTING:
            return self.chance.choice(["present", "past"])
        tenses = {"present": 30, "past": 38, "going": 14, "future": 12, "habit": 6}
        return self.chance.choices(list(tenses), list(tenses.values()))[0]

    def subject(self, verb: Any) -> Any:
        """Return a subject of the verb: a pronoun, a name, or a noun phrase."""
        human = verb.subjects == "person"
        draw = self.chance.random()
        if human and draw < 0.4:
            source, target, person, english = self.chance.choice(PRONOUNS)
            return Phrase(source, target, person, english=english)
        if human and draw < 0.55:
            name, gender = self.chance.choice(NAMES)
            return Phrase(name, name, gender=gender)
        return self.noun_phrase(self.chance.choice(nouns(verb.subjects)), relative=0.12 if human else 0)

    def object(self, verb: Any) -> Any:
        """Return an object of the verb, with the bond between the verb and the noun."""
        noun = self.chance.choice(nouns(verb.objects))
        phrase = self.noun_phrase(noun, relative=0.08)
        phrase.bonds.add((verb.infinitive, noun.singular))
        return phrase

    def place(self, verb: Any) -> Any:
        """Return a place where the verb happens: *no jardim*."""
        noun = self.chance.choice(nouns(verb.places))
        phrase = self.noun_phrase(noun, plain=True, adjective=0.2)
        preposition = PREPOSITIONS.get(noun.singular, "in")
        phrase.source, phrase.target = f"n{phrase.source}", f"{preposition} {phrase.target}"
        return phrase

    def noun_phrase(
        self, noun: Any, plain: bool = False, definite: bool = False, adjective: float = 0.3, relative: float = 0.0
    ) -> Phrase:
        """Return a determiner and a noun, at random with an adjective, an owner or a relative clause.

        Args:
            noun: a row of `NOUNS`.
            plain: whether the phrase is singular, with a definite article and without an owner.
            definite: whether it has a definite determiner.
            adjective: probability of an adjective.
            relative: probability of a relative clause, for a person with an article.
        """
        mass = noun.plural == "-"
        many = not (mass or plain) and self._maybe(0.25)
        phrase = Phrase("", "", "eles" if many else "ele", noun.gender, "they" if many else "it", noun)
        source, target = (noun.plural, noun.english_plural) if many else (noun.singular, noun.english)
        rows = adjectives(noun)
        if rows and self._maybe(adjective):
            row = self.chance.choice(rows)
            word = phrase.form(row)
            source = f"{word} {source}" if row.position == "before" else f"{source} {word}"
            target = f"{row.english} {target}"
            phrase.bonds.add((noun.singular, row.masculine))
        choice = "the" if plain else self.determiner(noun, many, mass, definite)
        article, article_en = self._words(choice, phrase, target)
        phrase.source, phrase.target = f"{article} {source}".strip(), f"{article_en} {target}".strip()
        if choice == "the" and not plain:
            if goes_with(noun, "text,thing,casa,jardim,quarto") and self._maybe(0.25):
                self.own(phrase, target)
            elif goes_with(noun, "adult,child") and self._maybe(relative):
                self.relate(phrase)
        return phrase

    def determiner(self, noun: Any, many: bool, mass: bool, definite: bool) -> Any:
        """Return a kind of determiner: `the`, `a`, `number`, `this`, `that`, `my`, `our`, or "" for none."""
        if goes_with(noun, "relative"):
            return self.chance.choice(["my", "my", "our"])
        choices = ["the"] * 4 + ([] if mass else ["this", "that"])
        if goes_with(noun, OWNED):
            choices += ["my", "my", "our"]
        if not definite:
            choices += [""] * 3 if mass else ["number"] if many else ["a"] * 3
        return self.chance.choice(choices)

    def _words(self, choice, phrase, following):
        """Return the determiner in both languages."""
        if choice == "the":
            return phrase.article, "the"
        if choice == "a":
            return phrase.form(("um", "uma")), ("an" if following[0] in "aeiou" else "a")
        if choice == "number":
            source, target = self.chance.choice(NUMBERS)
            return ("duas" if phrase.gender == "f" and source == "dois" else source), target
        forms = {
            "this": "este esta estes estas", "that": "aquele aquela aqueles aquelas",
            "my": "meu minha meus minhas", "our": "nosso nossa nossos nossas",
        }  # fmt: skip
        english = {"this": ("this", "these"), "that": ("that", "those")}.get(choice, (choice, choice))[phrase.many]
        return (phrase.form(forms[choice].split()) if choice else ""), english

    def own(self, phrase: Phrase, target: Any) -> Any:
        """Add an owner: *a casa do médico*, the doctor's house."""
        noun = self.chance.choice(nouns("person"))
        owner = Phrase("", "", gender=noun.gender)
        phrase.source += f" d{owner.article} {noun.singular}"
        phrase.target = f"the {noun.english}'s {target}"

    def relate(self, phrase: Phrase) -> Any:
        """Add a relative clause whose subject is the phrase: *que comprou o livro*."""
        verb = self.chance.choice([verb for verb in VERBS if verb.subjects == "person"])
        thing = self.object(verb)
        phrase.source += f" que {conjugate(verb.infinitive, 'past')[phrase.person]} {thing.source}"
        phrase.target += f" who {verb.past} {thing.target}"
        phrase.bonds |= thing.bonds

    def verb(self, verb: Any, subject: Phrase, tense: str, negative: bool) -> Any:
        """Return the conjugated verb in both languages."""
        be = {"I": "am", "it": "is"}.get(subject.english, "are")
        no, no_en = ("não ", " not") if negative else ("", "")
        if tense == "going":
            go = dict(zip(PERSONS, ("vou", "vai", "vamos", "vão"), strict=True))[subject.person]
            return f"{no}{go} {verb.infinitive}", f"{be}{no_en} going to {verb.base}"
        form = conjugate(verb.infinitive, tense)[subject.person]
        if tense == "future":
            return f"{no}{form}", f"will{no_en} {verb.base}"
        if tense == "habit":
            return form, f"used to {verb.base}"
        if negative:
            return f"{no}{form}", f"{self.helper(tense, subject)} not {verb.base}"
        present = verb.third if subject.english == "it" else verb.base
        return form, verb.past if tense == "past" else present

    def helper(self, tense: str, subject: Phrase) -> Any:
        """Return the English auxiliary of questions and negations."""
        return {"past": "did", "future": "will"}.get(tense, "does" if subject.english == "it" else "do")

    def _maybe(self, probability):
        return self.chance.random() < probability


def part_of(source: str, bonds: Any) -> str:
    """Return the part that a sentence belongs to: `train`, `valid`, `test`, or `unseen`.

    About one in twenty word pairs (noun and adjective, verb and object) occurs only in `unseen`. A hash of the sentence
    divides the rest 90 : 5 : 5, so the parts cannot overlap.
    """
    if any(_hash(" ".join(bond)) % 20 == 0 for bond in bonds):
        return "unseen"
    percentile = _hash(source) % 100
    return "train" if percentile < 90 else "valid" if percentile < 95 else "test"


def _hash(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def phrasebook(part: str, count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` distinct (Portuguese, English) pairs of a part: `train`, `valid`, `test` or `unseen`."""
    grammar = Grammar(random.Random(f"{seed}/{part}"))
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        source, target, bonds = grammar.sentence()
        if part_of(source, bonds) == part:
            pairs.setdefault(source, target)
    return list(pairs.items())
