"""The words of the phrasebook: nouns, adjectives and verbs of both languages, and the conjugation of Portuguese.

A row of a table says which nouns it goes with: a list of kinds (`person`) and of single Portuguese nouns (`chave`), so
that sentences say what people say: one reads a letter in the garden, and nobody drinks a bicycle.
"""

import functools
from typing import Any, NamedTuple


class Noun(NamedTuple):
    """A row of `NOUNS`; "-" for a noun that has no plural. Adults, children and relatives are persons too."""

    singular: str
    plural: str
    gender: str
    english: str
    english_plural: str
    kind: str


class Adjective(NamedTuple):
    """A row of `ADJECTIVES`: the Portuguese forms, the nouns that it goes with, its place beside the noun."""

    masculine: str
    feminine: str
    masculine_plural: str
    feminine_plural: str
    english: str
    nouns: str
    position: str


class Verb(NamedTuple):
    """A row of `VERBS`: the Portuguese infinitive, three English forms, and the nouns that it goes with; "-": none."""

    infinitive: str
    base: str
    third: str
    past: str
    subjects: str
    objects: str
    places: str


_NOUNS = """
homem homens m man men adult|mulher mulheres f woman women adult
professor professores m teacher teachers adult|médica médicas f doctor doctors adult
vizinho vizinhos m neighbour neighbours adult|cozinheiro cozinheiros m cook cooks adult
cantora cantoras f singer singers adult|menino meninos m boy boys child|menina meninas f girl girls child
irmã irmãs f sister sisters relative|irmão irmãos m brother brothers relative|amigo amigos m friend friends relative
avó avós f grandmother grandmothers relative|mãe - f mother - relative|tio tios m uncle uncles relative
gato gatos m cat cats animal|cão cães m dog dogs animal|cavalo cavalos m horse horses animal
vaca vacas f cow cows animal|pássaro pássaros m bird birds animal|ovelha ovelhas f sheep sheep animal
maçã maçãs f apple apples food|laranja laranjas f orange oranges food|bolo bolos m cake cakes food
ovo ovos m egg eggs food|peixe peixes m fish fish food|batata batatas f potato potatoes food
pão - m bread - food|arroz - m rice - food|queijo - m cheese - food|carne - f meat - food
água - f water - drink|leite - m milk - drink|café - m coffee - drink|vinho - m wine - drink|chá - m tea - drink
livro livros m book books text|carta cartas f letter letters text|jornal jornais m newspaper newspapers text
poema poemas m poem poems text|história histórias f story stories text|lista listas f list lists text
carro carros m car cars thing|bicicleta bicicletas f bicycle bicycles thing|barco barcos m boat boats thing
mesa mesas f table tables thing|cadeira cadeiras f chair chairs thing|relógio relógios m clock clocks thing
camisa camisas f shirt shirts thing|chapéu chapéus m hat hats thing|vestido vestidos m dress dresses thing
caixa caixas f box boxes thing|chave chaves f key keys thing|garrafa garrafas f bottle bottles thing
porta portas f door doors thing|janela janelas f window windows thing
casa casas f house houses place|escola escolas f school schools place|jardim jardins m garden gardens place
cidade cidades f city cities place|igreja igrejas f church churches place|mercado mercados m market markets place
cozinha cozinhas f kitchen kitchens place|rua ruas f street streets place|parque parques m park parks place
museu museus m museum museums place|floresta florestas f forest forests place|quarto quartos m room rooms place
"""

_ADJECTIVES = """
preto preta pretos pretas black animal,carro,camisa,chapéu,vestido,bicicleta,barco,caixa,cadeira after
branco branca brancos brancas white animal,casa,igreja,camisa,chapéu,vestido,carro,barco,porta,mesa,cadeira after
vermelho vermelha vermelhos vermelhas red casa,maçã,carro,bicicleta,barco,camisa,chapéu,vestido,porta,caixa after
azul azul azuis azuis blue casa,carro,bicicleta,barco,camisa,chapéu,vestido,porta,janela,garrafa,mesa after
verde verde verdes verdes green casa,maçã,carro,bicicleta,barco,camisa,vestido,porta,garrafa,cadeira after
pequeno pequena pequenos pequenas small animal,thing,place,maçã,bolo,peixe,batata after
velho velha velhos velhas old adult,amigo,tio,animal,thing,place,livro,jornal,carta after
novo nova novos novas new thing,livro,poema,história,lista,casa,escola,museu,mercado,cozinha after
caro cara caros caras expensive thing,livro,queijo,carne,peixe,vinho,casa after
barato barata baratos baratas cheap thing,livro,queijo,carne,peixe,vinho,pão,arroz,casa after
feliz feliz felizes felizes happy person,gato,cão,cavalo,vaca after
cansado cansada cansados cansadas tired person,gato,cão,cavalo,vaca after
frio fria frios frias cold água,leite,café,chá,carne,casa,igreja,cidade,quarto,cozinha after
quente quente quentes quentes hot água,leite,café,chá,pão,arroz,bolo,batata,cozinha after
inteligente inteligente inteligentes inteligentes intelligent person,gato,cão,cavalo after
longo longa longos longas long livro,carta,poema,história,lista,rua after
bom boa bons boas good person,food,drink,text,carro,bicicleta,relógio,escola,museu,mercado before
belo bela belos belas beautiful animal,livro,carta,poema,história,camisa,chapéu,vestido,relógio,barco,place before
famoso famosa famosos famosas famous professor,médica,cantora,cozinheiro,livro,poema,história,museu,igreja,cidade after
escuro escura escuros escuras dark casa,igreja,cozinha,rua,floresta,quarto after
jovem jovem jovens jovens young adult,amigo,gato,cão,cavalo after
triste triste tristes tristes sad person,cão,livro,carta,poema,história after
"""

_VERBS = """
comprar buy buys bought person food,drink,livro,jornal,thing,casa mercado,cidade,rua
vender sell sells sold person food,drink,livro,jornal,thing,casa mercado,cidade,rua
comer eat eats ate person food cozinha,jardim,parque,escola,mercado
comer eat eats ate animal maçã,batata,peixe,pão,carne jardim,cozinha,rua,parque
beber drink drinks drank person drink cozinha,jardim,parque,quarto
beber drink drinks drank animal água,leite jardim,cozinha,rua
abrir open opens opened person caixa,garrafa,porta,janela,livro,carta,jornal,museu,igreja -
lavar wash washes washed person carro,bicicleta,barco,camisa,vestido,mesa,garrafa,janela,maçã,cavalo,cão jardim,rua
encontrar find finds found person chave,relógio,chapéu,livro,carta,gato,cão,bicicleta,caixa rua,parque,jardim,floresta
pintar paint paints painted person casa,porta,janela,mesa,cadeira,barco,caixa,cozinha,quarto,animal -
limpar clean cleans cleaned person casa,cozinha,quarto,rua,jardim,mesa,janela,porta,carro,garrafa,relógio -
visitar visit visits visited person person,museu,igreja,escola,cidade,parque,mercado,jardim -
ajudar help helps helped person person,cão,cavalo,vaca escola,mercado,rua,cozinha,jardim
chamar call calls called person person,gato,cão,cavalo rua,parque,jardim
escrever write writes wrote person livro,carta,poema,história,lista quarto,jardim,parque,escola,cozinha
receber receive receives received person carta,livro,jornal,poema,relógio,chapéu,vestido,caixa,chave escola,quarto
ler read reads read person text quarto,jardim,parque,escola,cozinha
ver see sees saw person person,animal,carro,barco,bicicleta rua,parque,mercado,jardim,cidade,floresta,museu
ver see sees saw animal person,animal rua,parque,jardim,floresta
perder lose loses lost person chave,relógio,chapéu,livro,carta,lista,bicicleta,camisa rua,parque,mercado,cidade,floresta
amar love loves loved person person,gato,cão,cavalo,poema,livro,cidade,jardim,casa,chá,café,queijo,bolo -
desenhar draw draws drew person person,animal,casa,igreja,barco,mesa,bicicleta parque,jardim,escola,museu,rua
seguir follow follows followed person person,animal,carro rua,parque,cidade,floresta
seguir follow follows followed animal person,animal rua,parque,jardim,floresta
"""

# irregular forms for eu, ele, nós, eles
_IRREGULAR = {
    ("ler", "present"): "leio lê lemos leem",
    ("ler", "past"): "li leu lemos leram",
    ("ver", "present"): "vejo vê vemos veem",
    ("ver", "past"): "vi viu vimos viram",
    ("perder", "present"): "perco perde perdemos perdem",
    ("seguir", "present"): "sigo segue seguimos seguem",
    ("ser", "present"): "sou é somos são",
    ("ser", "past"): "fui foi fomos foram",
    ("ser", "habit"): "era era éramos eram",
    ("estar", "present"): "estou está estamos estão",
    ("estar", "habit"): "estava estava estávamos estavam",
}
_ENDINGS = {
    ("ar", "present"): "o a amos am", ("ar", "past"): "ei ou amos aram", ("ar", "habit"): "ava ava ávamos avam",
    ("er", "present"): "o e emos em", ("er", "past"): "i eu emos eram", ("er", "habit"): "ia ia íamos iam",
    ("ir", "present"): "o e imos em", ("ir", "past"): "i iu imos iram", ("ir", "habit"): "ia ia íamos iam",
}  # fmt: skip
PERSONS = ("eu", "ele", "nós", "eles")
PRONOUNS = [  # Portuguese, English, person, the pronoun that the English verb agrees with
    ("eu", "I", "eu", "I"), ("ele", "he", "ele", "it"), ("ela", "she", "ele", "it"), ("você", "you", "ele", "you"),
    ("nós", "we", "nós", "we"), ("eles", "they", "eles", "they"), ("elas", "they", "eles", "they"),
]  # fmt: skip
NUMBERS = [("dois", "two"), ("três", "three"), ("quatro", "four"), ("cinco", "five"), ("seis", "six"), ("dez", "ten")]
NAMES = [("Maria", "f"), ("João", "m"), ("Ana", "f"), ("Pedro", "m"), ("Clara", "f"), ("Tiago", "m")]
STATES = {"feliz", "cansado", "triste", "quente", "frio"}  # take `estar`; the others take `ser`
LASTING = {"amar"}  # verbs of a state, which sound odd with "going to"
OWNED = "vizinho,professor,médica,animal,thing,text,café,chá,bolo,casa,jardim,cozinha,quarto,escola,cidade,rua"
PREPOSITIONS = {"mercado": "at", "escola": "at", "museu": "at"}  # of places in English; the others take "in"
TIMES = {
    "present": [("todos os dias", "every day"), ("aos domingos", "on Sundays")],
    "past": [("ontem", "yesterday"), ("esta manhã", "this morning"), ("na semana passada", "last week")],
    "future": [("amanhã", "tomorrow"), ("na próxima semana", "next week")],
    "going": [("hoje", "today"), ("amanhã", "tomorrow"), ("esta noite", "tonight")],
    "habit": [("todos os dias", "every day"), ("aos domingos", "on Sundays")],
}


def conjugate(infinitive: str, tense: str) -> Any:
    """Return the forms of eu, ele, nós, eles; tenses are `present`, `past`, `habit` (imperfect) and `future`."""
    if (infinitive, tense) in _IRREGULAR:
        return dict(zip(PERSONS, _IRREGULAR[infinitive, tense].split(), strict=True))
    if tense == "future":
        return {person: infinitive + end for person, end in zip(PERSONS, ("ei", "á", "emos", "ão"), strict=True)}
    stem, conjugation = infinitive[:-2], infinitive[-2:]
    return {p: stem + end for p, end in zip(PERSONS, _ENDINGS[conjugation, tense].split(), strict=True)}


def _table(row, text):
    return [row(*words.split()) for line in text.strip().splitlines() for words in line.split("|")]


NOUNS = _table(Noun, _NOUNS)
ADJECTIVES = _table(Adjective, _ADJECTIVES)
VERBS = _table(Verb, _VERBS)
_PERSONS = {"adult", "child", "relative"}


@functools.cache
def goes_with(noun: Any, allowed: Any) -> Any:
    """Return whether a noun is in a comma-separated list of kinds and nouns."""
    names = {noun.singular, noun.kind} | ({"person"} if noun.kind in _PERSONS else set())
    return not names.isdisjoint(allowed.split(","))


@functools.cache
def nouns(allowed: Any) -> Any:
    """Return the nouns in a comma-separated list of kinds and nouns."""
    return [noun for noun in NOUNS if goes_with(noun, allowed)]


@functools.cache
def adjectives(noun: Any) -> Any:
    """Return the adjectives that go with a noun."""
    return [row for row in ADJECTIVES if goes_with(noun, row.nouns)]
