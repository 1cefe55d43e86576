"""The words of the phrasebook: nouns, adjectives and verbs of both languages, and the conjugation of Portuguese."""

# Portuguese singular, plural, gender, English singular, plural, kind; "-": no plural
_NOUNS = """
homem homens m man men person|mulher mulheres f woman women person|menino meninos m boy boys person
menina meninas f girl girls person|professor professores m teacher teachers person
médica médicas f doctor doctors person
vizinho vizinhos m neighbour neighbours person|cozinheiro cozinheiros m cook cooks person
cantora cantoras f singer singers person|irmã irmãs f sister sisters person|irmão irmãos m brother brothers person
amigo amigos m friend friends person|avó avós f grandmother grandmothers person|rei reis m king kings person
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
casa casas f house houses place|escola escolas f school schools place|jardim jardins m garden gardens place
cidade cidades f city cities place|igreja igrejas f church churches place|mercado mercados m market markets place
cozinha cozinhas f kitchen kitchens place|rua ruas f street streets place|parque parques m park parks place
museu museus m museum museums place|floresta florestas f forest forests place|quarto quartos m room rooms place
"""

# masculine, feminine, masculine plural, feminine plural, English, kinds, position
_ADJECTIVES = """
preto preta pretos pretas black animal,thing after|branco branca brancos brancas white animal,thing,place after
vermelho vermelha vermelhos vermelhas red thing,place after|azul azul azuis azuis blue thing,place after
verde verde verdes verdes green thing,place after|pequeno pequena pequenos pequenas small animal,thing,place,food after
velho velha velhos velhas old person,animal,thing,place,text after|novo nova novos novas new thing,place,text after
caro cara caros caras expensive thing,food,drink after|barato barata baratos baratas cheap thing,food,drink after
feliz feliz felizes felizes happy person,animal after|cansado cansada cansados cansadas tired person,animal after
frio fria frios frias cold food,drink,place after|quente quente quentes quentes hot food,drink after
inteligente inteligente inteligentes inteligentes intelligent person,animal after
longo longa longos longas long text after|bom boa bons boas good person,food,drink,text,thing before
belo bela belos belas beautiful person,animal,place,thing,text before
famoso famosa famosos famosas famous person,place,text after|escuro escura escuros escuras dark place after
jovem jovem jovens jovens young person,animal after|triste triste tristes tristes sad person,text after
"""

# infinitive, English base, third person, past, subjects, objects
_VERBS = """
comprar buy buys bought person thing,food,drink,text,animal,place|vender sell sells sold person thing,food,drink,animal
comer eat eats ate person,animal food|beber drink drinks drank person,animal drink
abrir open opens opened person thing:caixa,thing:garrafa,place:casa,place:escola,place:museu,text:livro,text:carta
lavar wash washes washed person thing:carro,thing:camisa,thing:vestido,thing:mesa,thing:bicicleta,animal
encontrar find finds found person,animal thing,food,animal,text,person
pintar paint paints painted person thing,place,person
limpar clean cleans cleaned person thing,place|visitar visit visits visited person place,person
ajudar help helps helped person person,animal|chamar call calls called person person,animal
escrever write writes wrote person text|receber receive receives received person thing,text,food
ler read reads read person text|ver see sees saw person,animal person,animal,thing,place
perder lose loses lost person thing,text|amar love loves loved person person,animal,place,text,food
desenhar draw draws drew person person,animal,thing,place
seguir follow follows followed person,animal person,animal,thing:carro
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
PRONOUNS = [
    ("eu", "I", "eu"), ("ele", "he", "ele"), ("ela", "she", "ele"), ("você", "you", "ele"), ("nós", "we", "nós"),
    ("eles", "they", "eles"), ("elas", "they", "eles"),
]  # fmt: skip
NUMBERS = ["dois two", "três three", "quatro four", "cinco five", "seis six", "sete seven", "oito eight", "nove nine",
            "dez ten", "doze twelve", "vinte twenty"]  # fmt: skip
NAMES = ["Maria", "João", "Ana", "Pedro", "Clara", "Tiago"]
STATES = {"feliz", "cansado", "triste"}  # take `estar`; the others take `ser`


def conjugate(infinitive, tense):
    """Return the forms of eu, ele, nós, eles; tenses are `present`, `past`, `habit` (imperfect) and `future`."""
    if (infinitive, tense) in _IRREGULAR:
        return dict(zip(PERSONS, _IRREGULAR[infinitive, tense].split(), strict=True))
    if tense == "future":
        return {person: infinitive + end for person, end in zip(PERSONS, ("ei", "á", "emos", "ão"), strict=True)}
    stem, conjugation = infinitive[:-2], infinitive[-2:]
    return {p: stem + end for p, end in zip(PERSONS, _ENDINGS[conjugation, tense].split(), strict=True)}


def _table(text):
    return [row.split() for line in text.strip().splitlines() for row in line.split("|")]


NOUNS = _table(_NOUNS)
ADJECTIVES = _table(_ADJECTIVES)
VERBS = _table(_VERBS)
