"""The page as a person uses it, on a translator that was trained in a moment."""

import contextlib
import itertools
import json
import re
import shutil

import pytest

from heedful import load, workflows
from heedful.cli import main
from heedful.config import Config
from heedful.data.glossary import Glossary
from heedful.runs.run import Run
from tests.conftest import quiet
from tests.page.conftest import READY, page_of

pytestmark = pytest.mark.any_backend

VIEWS = ("why", "maps", "beam", "training", "compare", "errors", "heads")
SOURCE = "o gato preto bebe"


NOUNS = {"gato": "cat", "cão": "dog", "boi": "ox", "pato": "duck"}
ADJECTIVES = {"preto": "black", "branco": "white", "velho": "old"}
VERBS = {"bebe": "drinks", "come": "eats", "dorme": "sleeps"}
PAIRS = [
    (f"o {noun} {adjective} {verb}", f"the {ADJECTIVES[adjective]} {NOUNS[noun]} {VERBS[verb]}")
    for noun in NOUNS
    for adjective in ADJECTIVES
    for verb in VERBS
]
RECIPE = """
task = "translate"
name = "phrases"

[data]
train = ["train.tsv"]
valid = ["train.tsv"]
test = ["train.tsv"]
batch_sentences = 36
max_tokens = 8

[tokenizer]
kind = "word"
vocab_size = 100

[model]
num_layers = 2
d_model = 32
d_ff = 64
num_heads = 4
dropout = 0.0
max_length = 16

[train]
updates = 120
warmup_updates = 10
schedule = "constant"
learning_rate = 0.005
label_smoothing = 0.1
validate_every = 40
validate_sentences = 9
snapshots = true
tensorboard = false
check = false
examine = false
"""


@pytest.fixture(scope="session")
def trained_well(tmp_path_factory, cache):
    """A folder with a translator that knows all of its phrases, and one of few updates."""
    folder = tmp_path_factory.mktemp("trained_well")
    (folder / "train.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in PAIRS), encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE.replace("train.tsv", str(folder / "train.tsv")), encoding="utf-8")
    config = Config.from_toml(folder / "recipe.toml")
    run = workflows.train(config, folder / "phrases", quiet)
    assert run.log.read()[-1]["valid_bleu"] > 99
    early = Run.open(shutil.copytree(run.path, folder / "early"))
    early.save_weights(run.snapshots.read(run.snapshots.paths()[0]))  # as at the beginning
    return folder


@pytest.fixture(scope="session")
def path(trained_well):
    out = trained_well / "page.html"
    assert main(["inspect", str(trained_well / "phrases"), "--heads"]) == 0
    arguments = [trained_well / "phrases", out, "--compare", trained_well / "early", "--example", SOURCE]
    assert main(["page", *map(str, arguments), "--text", str(trained_well)]) == 0
    return out


@pytest.fixture
def opened(browser, path):
    """Return a function that opens the page; what it opened is checked and closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda fragment="", **options: stack.enter_context(page_of(browser, path, fragment, **options))


@pytest.fixture
def expect(browser):
    from playwright.sync_api import expect

    return expect


def show(page, view):
    page.evaluate("(view) => { location.hash = `view=${view}`; }", view)
    page.locator(f"#tab-{view}[aria-selected=true]").wait_for()
    page.locator(READY).wait_for(state="attached")
    page.wait_for_timeout(200)


def targets(page):
    return page.get_by_role("listbox").get_by_role("option")


def words(page):
    return page.locator(".target .word").all_inner_texts()


def test_what_is_typed_is_translated(opened, expect, trained_well):
    page = opened()
    want = load(trained_well / "phrases").translate(["o boi branco dorme"])[0]
    page.get_by_role("textbox", name="Source text").fill("o boi branco dorme")
    expect(page.locator(".target .word")).to_have_text([*want.split(" "), "end"])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("o boi branco dorme? o pato velho come! o gato preto bebe", 3),
        ("o boi branco dorme\n\no pato velho come\n", 2),
        ("o gato Sr. Branco dorme\t o boi dorme", 1),  # an abbreviation; a tab
    ],
)
def test_several_sentences_are_translated_one_by_one(opened, expect, trained_well, text, count):
    """The whole text as the command translates it; the views are about the sentence that is chosen."""
    page = opened()
    page.get_by_role("textbox", name="Source text").fill(text)
    whole = page.get_by_role("group", name="Translation of the whole text")
    if count == 1:
        expect(whole).to_have_count(0)
        return
    want = load(trained_well / "phrases").translate(text.strip())
    expect(whole).to_have_text(want, use_inner_text=True)
    buttons = whole.get_by_role("button")
    expect(buttons).to_have_count(count)
    buttons.last.click()
    expect(buttons.last).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".target .word")).to_have_text([*buttons.last.inner_text().split(" "), "end"])
    expect(page).to_have_url(re.compile("sentence"))


def test_terms_stand_in_the_translation(browser, expect, trained_well, tmp_path):
    """As in that of the command: in place of what the model wrote, and in each sentence of a text."""
    (tmp_path / "terms.tsv").write_text("gato\ttomcat\n", encoding="utf-8")
    arguments = ["--type", "float32", "--checkpoints", "0", "--example", SOURCE]
    arguments += ["--glossary", str(tmp_path / "terms.tsv")]
    assert main(["page", str(trained_well / "phrases"), str(tmp_path / "page.html"), *arguments]) == 0
    translator = load(trained_well / "phrases")
    with page_of(browser, tmp_path / "page.html") as page:
        field, note = page.get_by_role("textbox", name="Terms"), page.get_by_role("status", name="With your terms")
        expect(field).to_have_value("gato\ttomcat")
        expect(note).to_contain_text("tomcat")
        terms = {"gato": "tomcat", "preto": "pitch-black", "dorme": "sleeps", "boi": "bull"}
        translator.glossary = Glossary(terms)
        field.fill("\n".join(f"{term} = {result}" for term, result in terms.items()))
        expect(note.locator("q")).to_have_text(translator.translate(SOURCE))
        expect(note).to_contain_text("pitch-black")
        text = "o boi branco dorme? o pato velho come! o gato preto bebe"
        page.get_by_role("textbox", name="Source text").fill(text)
        shown = page.get_by_role("group", name="Translation of the whole text")
        expect(shown).to_have_text(translator.translate(text), use_inner_text=True)
        page.get_by_role("textbox", name="Source text").fill("www.gato.pt e `gato`")  # terms do not count there
        expect(note).to_have_count(0)


def test_a_model_that_was_trained_with_terms_reads_them(browser, expect, path, tmp_path, trained_well):
    document = path.read_text(encoding="utf-8")
    assert '"soft_terms":false' in document
    (tmp_path / "page.html").write_text(document.replace('"soft_terms":false', '"soft_terms":true'), encoding="utf-8")
    with page_of(browser, tmp_path / "page.html") as page:
        page.get_by_text("Terms", exact=True).click()
        page.get_by_role("textbox", name="Terms").fill("gato = cat")
        expect(page.locator(".source .word")).to_have_count(len([*SOURCE.split(), "[UNK]", "[UNK]", "end"]))
        expect(page.get_by_role("status", name="With your terms")).to_have_count(0)
        page.get_by_role("textbox", name="Terms").fill("gato = tomcat")  # which it does not know
        translator = load(trained_well / "phrases")
        translator.reader.soft_terms, translator.glossary = True, Glossary({"gato": "tomcat"})
        expect(page.get_by_role("status", name="With your terms").locator("q")).to_have_text(
            translator.translate(SOURCE)
        )


def test_a_page_needs_a_sound_glossary(trained_well, tmp_path):
    (tmp_path / "terms.tsv").write_text("gato\t\n", encoding="utf-8")
    arguments = [str(trained_well / "phrases"), str(tmp_path / "page.html"), "--glossary", str(tmp_path / "terms.tsv")]
    assert main(["page", *arguments]) == 2
    assert not (tmp_path / "page.html").exists()


def test_arrow_keys_choose_a_word(opened, expect):
    page = opened()
    options = targets(page)
    options.first.focus()
    page.keyboard.press("ArrowRight")
    expect(options.nth(1)).to_be_focused()
    expect(page.locator(".big")).to_have_text(words(page)[1])
    page.keyboard.press("End")
    expect(page.locator(".big")).to_have_text("the end")
    page.keyboard.press("Home")
    expect(options.first).to_be_focused()


def test_the_whole_page_can_be_used_with_the_keyboard(opened, expect):
    page = opened()
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.tagName.toLowerCase()")
        )
    assert {"tab", "textarea", "option", "button", "select"} <= reached


def test_the_model_continues_from_an_alternative_and_goes_back(opened, expect):
    page = opened()
    before = words(page)
    other = page.locator(".rivals button:not([aria-current], [disabled])").first
    name = other.locator(".piece").inner_text()
    other.click()
    expect(page.locator(".target .word").first).to_have_text(re.compile(f"^{re.escape(name)}"))
    expect(page.locator(".note").first).to_contain_text("the model continues from there")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".target .word")).to_have_text(before)


def test_a_head_that_is_off_changes_the_probability(opened, expect):
    page = opened()
    before = page.locator(".facts b").first.inner_text()
    heads = page.locator(".heads button")
    strongest = heads.evaluate_all(
        "all => all.map((b) => +b.style.getPropertyValue('--much')).reduce((m, v, i, a) => v > a[m] ? i : m, 0)"
    )
    heads.nth(strongest).press("Enter")
    expect(heads.nth(strongest)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".facts")).to_contain_text(f"was {before}")
    expect(page.locator(".note").first).to_contain_text("1 head is off")
    page.get_by_role("button", name="Switch all on").click()
    expect(page.locator(".facts")).to_contain_text("probability")
    assert page.locator(".facts b").first.inner_text() == before


def test_removal_names_the_word_that_is_translated(opened):
    """In "gato preto" and "black cat" the words change places."""
    page = opened()
    names = words(page)
    targets(page).get_by_text("cat", exact=True).click()
    page.mouse.move(0, 0)
    shades = page.locator(".source .word").evaluate_all(
        "all => all.map((w) => [w.innerText, +w.style.getPropertyValue('--much')])"
    )
    assert max(shades, key=lambda pair: pair[1])[0] == "gato", (names, shades)


def test_attention_of_a_chosen_head_replaces_removal(opened, expect):
    page = opened()
    page.get_by_label("Layer and head").select_option("0/1")
    expect(page.locator(".why")).to_have_class(re.compile("by-attention"))
    shares = page.locator(".leans .attention .number").all_inner_texts()
    source = page.locator(".source .word").count()
    assert sum(map(float, shares[:source])) == pytest.approx(1, abs=0.05)


def test_the_beam_is_a_tree_and_its_width_can_be_changed(opened, expect):
    page = opened("#view=beam")
    expect(page.locator(".results dd")).to_have_count(4)
    page.get_by_label("Width of the beam").fill("2")
    expect(page.locator(".results dd")).to_have_count(2)
    nodes = page.locator(".tree text").count()
    page.get_by_text("show pruned candidates").click()
    expect(page.locator(".tree .faint").first).to_be_visible()
    assert page.locator(".tree text").count() > nodes
    expect(page).to_have_url(re.compile("width=2"))


def test_the_slider_shows_how_the_model_learned(opened, expect):
    page = opened("#view=training")
    slider = page.get_by_label("Checkpoint", exact=True)
    film = page.locator(".film button")
    expect(film).to_have_count(int(slider.get_attribute("max")) + 1)
    expect(film.last).to_have_attribute("aria-pressed", "true")
    slider.fill("0")
    expect(film.first).to_have_attribute("aria-pressed", "true")
    texts = page.locator(".film .quoted").all_inner_texts()
    assert texts[0] != texts[-1]


def test_curves_have_a_scale_of_round_values(opened):
    """The labels rise from bottom to top in equal steps, and the curve lies between the axis and the top."""
    page = opened("#view=training")
    curve = page.locator(".curves svg").first
    ticks = [(float(one.get_attribute("y")), float(one.text_content())) for one in curve.locator(".tick text").all()]
    heights, values = zip(*ticks, strict=True)
    assert len(ticks) >= 2
    assert sorted(heights, reverse=True) == list(heights)
    steps = {round(later - earlier, 6) for earlier, later in itertools.pairwise(values)}
    assert len(steps) == 1
    assert steps.pop() > 0


def test_a_run_that_is_chosen_has_views_of_its_own(opened, expect):
    """Another run may have fewer layers, and has curves of its own."""
    page = opened("#view=maps")
    page.get_by_role("combobox", name="Run").select_option("1")
    expect(page.locator("#view")).to_have_attribute("data-ready", "true")
    for view in VIEWS:
        if page.locator(f"#tab-{view}").count():
            show(page, view)
    page.get_by_role("combobox", name="Run").select_option("0")
    expect(page.locator("#view")).to_have_attribute("data-ready", "true")


def test_two_runs_are_compared_on_one_sentence(opened, expect):
    page = opened("#view=compare")
    sides = page.locator(".compared")
    expect(sides).to_have_count(2)
    left, right = sides.all_inner_texts()
    assert left != right
    expect(page.locator(".compared .different").first).to_be_visible()
    expect(page.get_by_text("nats for the other's text")).to_have_count(2)


def test_the_other_run_can_be_looked_into(opened, expect):
    page = opened()
    before = words(page)
    page.get_by_label("Run", exact=True).select_option("1")
    expect(page.locator(".target .word")).not_to_have_text(before)


def test_a_sentence_of_the_test_text_is_opened(opened, expect):
    page = opened("#view=errors")
    sentence = page.locator(".errors button").first
    text = sentence.inner_text()
    page.get_by_role("button", name="Rarest words").click()
    page.get_by_role("button", name="Lowest score").click()
    sentence.click()
    expect(page.get_by_role("tab", name="Why this word?")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("textbox", name="Source text")).to_have_value(text)


def test_the_measured_heads_are_shown_as_the_run_has_them(opened, trained_well):
    page = opened("#view=heads")
    measured = json.loads((trained_well / "phrases" / "heads.json").read_text(encoding="utf-8"))
    best = max(change for layers in measured["heads"].values() for row in layers for change in row)
    assert f"+{best:.4f}" in page.locator(".ranking").first.inner_text()


def test_the_address_holds_the_view(opened, expect, browser, path):
    """A reader sends the address; whoever opens it sees the same sentence, word, head and alternative."""
    page = opened()
    page.get_by_role("textbox", name="Source text").fill("o pato velho come")
    page.locator(READY).wait_for(state="attached")
    targets(page).nth(1).click()
    page.locator(".rivals button:not([aria-current], [disabled])").first.click()
    expect(page.locator(".note").first).to_contain_text("You chose")
    page.locator(".heads button").nth(2).press("Enter")
    expect(page.locator(".note").nth(1)).to_contain_text("1 head is off")
    expect(page).to_have_url(re.compile("off"))
    address, texts = page.evaluate("location.hash"), targets(page).all_text_contents()
    with page_of(browser, path, address) as again:
        expect(again.get_by_role("textbox")).to_have_value("o pato velho come")
        expect(again.locator(".target .word")).to_have_text(texts)
        expect(targets(again).nth(1)).to_have_attribute("aria-selected", "true")
        expect(again.locator('.heads button[aria-pressed="true"]')).to_have_count(1)


@pytest.mark.parametrize(
    "fragment",
    ["#view=nothing&chosen=x&off=a.b.c&forced=-1.x&run=9&width=zz", "#off=__proto__.0.0", "#&&&=%", "#text="],
)
def test_a_damaged_address_shows_a_page(opened, expect, fragment):
    page = opened(fragment)
    expect(page.get_by_role("tab", name="Why this word?")).to_have_attribute("aria-selected", "true")


def test_an_address_that_was_just_entered_is_not_overwritten(opened, expect):
    """The page writes its address with a delay, which may end between a new address and its event."""
    page = opened()
    address = page.evaluate(
        """async () => {
          const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
          document.getElementById("tab-maps").click();
          await wait(100);
          document.getElementById("tab-beam").click(); // its address is written 250 ms later
          await wait(100);
          history.replaceState(null, "", "#view=training"); // without its event
          await wait(600);
          return location.hash;
        }"""
    )
    assert address == "#view=training"
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    expect(page.locator("#tab-training")).to_have_attribute("aria-selected", "true")


def test_every_view_fits_a_phone(opened):
    page = opened(width=390)
    for view in VIEWS:
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


@pytest.mark.slow
def test_axe_finds_nothing(opened):
    """Names for screen readers, roles, contrast, and more, in every view, light and dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for dark in (False, True):
        page = opened(dark=dark, bypass_csp=True)
        for view in VIEWS:
            show(page, view)
            results = axe.run(page)
            assert results.violations_count == 0, (view, results.generate_report())


def test_without_simd_the_page_computes_the_same(opened, expect):
    fast, slow = opened(), opened("#nosimd")
    expect(fast.locator("footer")).to_contain_text("WASM SIMD")
    expect(slow.locator("footer")).to_contain_text("JavaScript")
    assert words(fast) == words(slow)
    assert fast.locator(".facts b").first.inner_text() == slow.locator(".facts b").first.inner_text()


def test_an_empty_text_is_asked_for(opened, expect):
    page = opened("#text=")
    expect(page.get_by_text("Write something above.")).to_be_visible()
