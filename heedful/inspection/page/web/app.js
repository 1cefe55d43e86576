// @ts-check
// The page: one state, a few things that can be done to it, and the views.
import { render } from "preact";
import { useEffect, useMemo, useReducer, useRef } from "preact/hooks";
import { readAddress, writeAddress } from "./address.js";
import { Beam } from "./beam.js";
import { Compare } from "./compare.js";
import { Errors } from "./errors.js";
import { Heads } from "./heads.js";
import { Maps } from "./maps.js";
import { Nearest } from "./nearest.js";
import { html, SIDES } from "./parts.js";
import { headEffects, readAs, removalEffects, toggled, withTerms, written } from "./questions.js";
import { Sentences, sentencesOf } from "./sentences.js";
import { linesOf, readTerms } from "./terms.js";
import { Training } from "./training.js";
import { Why } from "./why.js";

/**
 * The views: name, label, component, and whether there is something to show.
 * @type {[string, string, any, (about: any, models: any[]) => boolean][]}
 */
const VIEWS = [
  ["why", "Why this word?", Why, () => true],
  ["maps", "Attention maps", Maps, () => true],
  ["beam", "Beam search", Beam, (about) => about.writes],
  ["training", "Training", Training, () => true],
  ["compare", "Compare", Compare, (about, models) => models.length > 1 || about.checkpoints.length > 1],
  ["errors", "Errors", Errors, (about) => !!about.sentences],
  ["heads", "Heads that matter", Heads, (about) => !!about.importance],
];
const ADDRESS_DELAY = 350; // milliseconds between two addresses: Safari allows 100 in 30 seconds, fewer than one types
const EMPTY = { ids: [], pieces: [], words: [] };
const UNTOUCHED = { chosen: 0, forced: null, forcedWord: null }; // of a sentence that is shown anew
const merge = (state, change) => ({ ...state, ...change });

export async function start(root, models) {
  const abouts = await Promise.all(models.map((model) => model.about()));
  document.title = `${abouts[0].name} · heedful`;
  render(html`<${App} ...${{ models, abouts }} />`, root);
}

function App({ models, abouts }) {
  const first = { text: abouts[0].examples[0] ?? "" };
  const [state, change] = useReducer(merge, null, () => ({
    theme: "",
    source: EMPTY,
    terms: linesOf(abouts[0].glossary ?? []),
    ...readAddress(location.hash, first),
  }));
  const run = Math.min(state.run, models.length - 1);
  const model = models[run];
  const about = abouts[run];
  const terms = useMemo(() => (about.alignment ? readTerms(state.terms) : []), [about, state.terms]);
  const sentences = sentencesOf(terms.length ? state.text.normalize("NFC") : state.text, about);
  const sentence = Math.min(state.sentence, sentences.length - 1);
  const { text } = sentences[sentence];
  const turn = useRef(0);
  const addressed = useRef(-ADDRESS_DELAY); // when the address was written
  const address = useRef(location.hash); // as last read or written

  useEffect(() => {
    const read = () => {
      address.current = location.hash;
      if (location.hash !== writeAddress(state)) change(readAddress(location.hash, first));
    };
    addEventListener("hashchange", read);
    if (location.hash !== address.current) read(); // it was entered before there was a listener
    return () => removeEventListener("hashchange", read);
  });
  useEffect(() => {
    const write = () => {
      if (location.hash !== address.current) return; // another one was just entered, whose event comes next
      addressed.current = performance.now();
      history.replaceState(null, "", location.href.split("#")[0] + writeAddress(state));
      address.current = location.hash;
    };
    const wait = addressed.current + ADDRESS_DELAY - performance.now();
    if (wait <= 0) return write();
    const timer = setTimeout(write, wait);
    return () => clearTimeout(timer);
  }, [state.view, state.run, state.text, state.sentence, state.chosen, state.off, state.forced, state.width]);
  useEffect(() => {
    const mine = ++turn.current;
    const current = (content) => {
      if (mine === turn.current) change(content);
      return mine === turn.current;
    };
    answer(model, about, { ...state, text, terms }, current).catch((error) =>
      current({ error: error.message, ready: true }),
    );
  }, [run, text, terms, state.off, state.forced]);

  const act = {
    change,
    choose: (chosen) => change({ chosen }),
    force: (forced, forcedWord = null) => change({ forced, forcedWord }),
    toggle: (kind, layer, head) => change({ off: toggled(state.off, kind, layer, head) }),
    allOn: () => change({ off: null }),
    write: (text, view = state.view) => change({ text, view, sentence: 0, ...UNTOUCHED }),
  };
  const views = VIEWS.filter(([, , , exists]) => exists(about, models));
  const [view, , View] = views.find(([name]) => name === state.view) ?? views[0];
  const shared = { state: { ...state, text }, act, model, about, models, abouts };
  return html`
    <header>
      <div>
        <h1>${
          models.length > 1
            ? html`<select aria-label="Run" value=${run}
          onChange=${(e) => change({ run: +e.target.value, off: null, forced: null, chosen: 0 })}>
          ${abouts.map(({ name }, i) => html`<option key=${i} value=${i}>${name}</option>`)}</select>`
            : about.name
        }</h1>
        <div class="about number">${facts(about)}</div>
      </div>
      <nav>
        <div role="tablist" aria-label="Views">${views.map(
          ([name, label]) => html`<button key=${name} role="tab" id=${`tab-${name}`}
          aria-selected=${String(view === name)} aria-controls="view" onClick=${() => change({ view: name })}>${label}</button>`,
        )}</div>
        <${Theme} theme=${state.theme} change=${change} />
      </nav>
    </header>
    <section class="card" aria-label=${SIDES[about.task].field}>
      <div class="ask"><textarea rows="1" aria-label=${SIDES[about.task].field} value=${state.text} spellcheck="false"
        placeholder=${SIDES[about.task].prompt}
        onInput=${(e) => act.write(about.task === "translate" ? e.target.value : e.target.value.replace(/\n/g, " "))} /></div>
      <div class="examples">${about.examples.map((text) => html`<button key=${text} onClick=${() => act.write(text)}>${text}</button>`)}</div>
      ${about.alignment && html`<${Terms} terms=${state.terms} shown=${about.glossary.length > 0} change=${change} />`}
      ${
        sentences.length > 1 &&
        html`<${Sentences} ...${{ model, about, terms, sentences, chosen: sentence, choose: (i) => change({ sentence: i, ...UNTOUCHED }) }} />`
      }
      ${state.source.cut > 0 && html`<p class="note">The text is longer than the model reads: ${state.source.cut} tokens are left out.</p>`}
      ${state.termed && html`<p class="note" role="status" aria-label="With your terms">With your terms: <q>${state.termed}</q></p>`}
      ${state.error && html`<p class="note" role="alert">${state.error}</p>`}
    </section>
    <div id="view" role="tabpanel" aria-labelledby=${`tab-${view}`} data-ready=${String(!!state.ready)} tabindex="-1">
      <${View} key=${run} ...${shared} />
      ${view === "why" && about.nearest && text && html`<${Nearest} ...${{ model, text }} />`}
    </div>
    <footer>${about.computed}${timing(state)}</footer>`;
}

/** Computes everything about the text of a state, and passes it to `current` part by part until that returns false. */
async function answer(model, about, { text, terms, off, forced }, current) {
  const began = performance.now();
  const source = await model.split({ text: readAs(about, text, terms) });
  if (!source.ids.length && !about.starts) {
    current({ source, target: null, now: null, effects: null, termed: null, error: null, ready: true });
    return;
  }
  const own = await written(model, source.ids);
  const target = forced ? await completed(model, about, source.ids, forced) : own;
  const pair = { source: source.ids, target: target.ids };
  const before = await model.look(pair);
  const now = off ? await model.look({ ...pair, off }) : before;
  const termed = await withTerms(model, about, { text, source, target, terms });
  const shownState = {
    source,
    own,
    target,
    termed,
    before,
    now,
    seenOff: off,
    effects: null,
    without: null,
    error: null,
  };
  if (!current({ ...shownState, ready: false, took: performance.now() - began })) return;
  if (off) current({ without: await written(model, source.ids, { off }) });
  const removed = await removalEffects(model, about, source, target, off);
  if (!current({ effects: { ...removed, heads: {} }, ready: true })) return;
  const heads = await headEffects(model, about, source, target, off);
  current({ effects: { ...removed, heads }, all: performance.now() - began });
}

/** The target that begins with forced tokens: written on, or as it is where the model does not write. */
async function completed(model, about, source, forced) {
  return about.writes ? written(model, source, { prefix: forced }) : model.show({ ids: forced });
}

/** A field for terms that the translation should have. */
function Terms({ terms, shown, change }) {
  return html`<details class="terms" open=${shown}><summary>Terms</summary>
    <textarea rows=${Math.min(8, terms.split("\n").length + 1)} aria-label="Terms" value=${terms} spellcheck="false"
      placeholder="term = its translation, one on each line" onInput=${(e) => change({ terms: e.target.value })} /></details>`;
}

function Theme({ theme, change }) {
  const toggle = () => {
    const now = theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    change({ theme: document.documentElement.dataset.theme });
  };
  return html`<button class="theme" onClick=${toggle} aria-label="Dark or light" title="Dark or light">◐</button>`;
}

function facts({ parameters, kinds, layers, heads, type, difference }) {
  const sides = kinds
    .filter((kind) => kind !== "cross")
    .map((kind) => layers[kind])
    .join(" + ");
  const exact =
    type === "float32" ? "" : ` · weights in ${type}, which changes probabilities by ${small(difference)} at most`;
  return `${(parameters / 1e6).toFixed(2)} M parameters · ${sides} layers · ${heads} heads${exact}`;
}

const small = (share) => `${Number((100 * share).toPrecision(1))} %`;

function timing({ took, all }) {
  return took ? ` Result and maps ${took.toFixed(0)} ms${all ? `, effects ${(all - took).toFixed(0)} ms` : ""}.` : "";
}
