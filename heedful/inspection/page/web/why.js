// @ts-check
// Why this word? The texts, what each word depends on, and its alternatives.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Choice, KIND_NAMES, SIDES, html, nats, percent, range, shown, useWidth, wordText } from "./parts.js";
import { attended, headsOff, isUnsupported, sourceShare } from "./questions.js";

const WEAK = 0.05; // nats below which an effect gets no full shade
const UNCERTAIN = 5; // tokens of equal probability from which on a word is marked

export function Why({ state, act, about }) {
  const { source, target, now } = state;
  const [hover, setHover] = useState(/** @type {number | null} */ (null));
  const [measure, setMeasure] = useState("removal");
  const [place, setPlace] = useState({ layer: about.layers[about.kinds.at(-1)] - 1, head: -1 });
  if (!now || !target) return html`<p class="hint">Write something above.</p>`;
  const groups = about.ends ? [...target.words, [target.ids.length]] : target.words;
  if (!groups.length)
    return html`<p class="hint">${about.task === "fill" ? "Write [MASK] where a token is missing." : "The model writes nothing here."}</p>`;
  const chosen = Math.min(hover ?? state.chosen, groups.length - 1);
  const tokens = groups[chosen];
  const text = tokens[0] === target.ids.length ? "the end" : wordText(target.pieces, tokens);
  const view = { state, act, about, groups, tokens, chosen, text, measure, setMeasure, place, setPlace, setHover };
  const attention = attentionOf(view);
  const removal = removalOf(view);
  return html`<div class=${`why by-${measure}`}>
    <section class="card" aria-label="Texts">
      <${Texts} ...${{ ...view, shares: measure === "removal" ? removal.shares : attention }} />
      <${Notes} ...${view} />
    </section>
    <div class="columns">
      <${Word} ...${view} />
      <${Causes} ...${{ ...view, attention, removal }} />
      <${HeadGrids} ...${view} />
    </div>
  </div>`;
}

/** Attention from the chosen word: { source, prefix }, a share for each word; the source's end comes last if there is one. */
function attentionOf({ state, about, tokens, place }) {
  const { now, source, target } = state;
  const { map, readers, column } = now.reading;
  const heads = place.head < 0 ? range(about.heads) : [place.head];
  const rows = tokens.flatMap((t) => readers[t]);
  const columns = (groups, first) => groups.map((group) => group.map((i) => first + i));
  const read = (kind, groups, from = rows) => attended(now.maps[kind][place.layer], heads, from, groups);
  const ofSource = read(map, columns([...source.words, ...endOf(about, source)], column));
  if (!about.writes) return { source: ofSource, prefix: [] };
  const ownRows = map === "cross" ? tokens : rows;
  const first = map === "cross" ? 1 : column + source.ids.length;
  const before = target.words.filter((group) => group[0] < tokens[0]);
  return { source: ofSource, prefix: read("decoder", columns(before, first), ownRows) };
}

/** The effect of removing each word: nats for source and prefix, and their shares as shades. */
function removalOf({ state, about, tokens }) {
  const { effects, source } = state;
  const sum = (row) => tokens.reduce((total, t) => total + row[t], 0);
  if (!effects) return { source: null, prefix: [], shares: { source: [], prefix: [] } };
  const ofSource = effects.source.map(sum);
  const ofPrefix = effects.prefix.map(sum);
  const total = Math.max(
    WEAK,
    [...ofSource, ...ofPrefix].reduce((all, x) => all + Math.max(0, x), 0),
  );
  const shares = (drops) => drops.map((x) => Math.max(0, x) / total);
  const ends = endOf(about, source).map(() => 0);
  return {
    source: ofSource,
    prefix: ofPrefix,
    shares: { source: [...shares(ofSource), ...ends], prefix: shares(ofPrefix) },
  };
}

const endOf = (about, source) => (about.task === "generate" ? [] : [[source.ids.length]]);
const logpOf = (steps, tokens) => tokens.reduce((sum, t) => sum + (steps[t]?.logp ?? 0), 0);

function Texts(view) {
  const { state, act, about, groups, chosen, shares, setHover } = view;
  const { source, target, now, effects } = state;
  const [box, width] = useWidth();
  const row = useRef(/** @type {any} */ (null));
  const [paths, setPaths] = useState([]);
  const sourceGroups = [...source.words, ...endOf(about, source)];
  useLayoutEffect(() => {
    setPaths(arcs(box.current, shares.source));
  }, [width, chosen, shares.source.map((x) => x.toFixed(2)).join(), target.text, source.ids.join()]);
  const move = (event) => {
    const from = Math.min(state.chosen, groups.length - 1);
    const next = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: groups.length - 1 }[event.key];
    if (next === undefined || next < 0 || next >= groups.length) return;
    event.preventDefault();
    setHover(null);
    act.choose(next);
    requestAnimationFrame(() => row.current.querySelector('[aria-selected="true"]').focus());
  };
  const isEnd = (group) => group[0] === target.ids.length;
  const selected = Math.min(state.chosen, groups.length - 1);
  return html`<div class="sentences" ref=${box}>
    <svg class="arcs" aria-hidden="true">${paths.map(
      ({ share, line }) => html`<path d=${line}
      stroke-width=${1 + 9 * share} stroke-opacity=${0.25 + 0.6 * share} />`,
    )}</svg>
    <div class="side"><span>${SIDES[about.task].source}</span></div>
    <div class="words source">${sourceGroups.map((group, g) => {
      const end = g >= source.words.length;
      return html`<span key=${g} class=${end ? "word end" : "word"} style=${{ "--much": (shares.source[g] ?? 0).toFixed(3) }}>
        ${end ? "end" : wordText(source.pieces, group)}</span>`;
    })}</div>
    <div class="words target" ref=${row} role="listbox" aria-label=${`${SIDES[about.task].target}; arrow keys choose a word`}
      aria-orientation="horizontal" onKeyDown=${move} onMouseLeave=${() => setHover(null)}>
      ${groups.map((group, g) => {
        const p = Math.exp(logpOf(now.steps, group));
        const among = Math.exp(now.steps[group[0]].entropy);
        const classes = [
          "word",
          isEnd(group) && "end",
          p < 0.5 && "unsure",
          state.forced && g === state.forcedWord && "given",
          isUnsupported(effects, group) && "unsupported",
        ];
        const name = isEnd(group) ? "end" : wordText(target.pieces, group);
        return html`<button key=${g} role="option" aria-selected=${String(g === chosen)} tabindex=${g === selected ? 0 : -1}
          style=${{ "--p": p.toFixed(3), "--much": (shares.prefix[g] ?? 0).toFixed(3) }} class=${classes.filter(Boolean).join(" ")}
          title=${`${percent(p)}; as uncertain as among ${among.toFixed(1)} equally likely tokens`}
          onClick=${() => act.choose(g)} onMouseEnter=${() => setHover(g)}>${name}${among >= UNCERTAIN && html`<small>${Math.round(among)}</small>`}</button>`;
      })}
    </div>
    <div class="side legend">
      <span>${SIDES[about.task].target} · line: its probability · number: perplexity, from ${UNCERTAIN} on${effects?.support ? " · dotted: the source adds nothing" : ""}</span>
      <span>← → choose a word</span></div>
  </div>`;
}

/** Curves from the words of the source to the chosen word. */
function arcs(box, shares) {
  const target = box?.querySelector('.target [aria-selected="true"]')?.getBoundingClientRect();
  if (!target) return [];
  const frame = box.getBoundingClientRect();
  const x = target.left + target.width / 2 - frame.left;
  const y = target.top - frame.top;
  return [...box.querySelectorAll(".source .word")]
    .map((word, g) => {
      const from = word.getBoundingClientRect();
      const a = from.left + from.width / 2 - frame.left;
      const b = from.bottom - frame.top + 2;
      return {
        share: shares[g] ?? 0,
        line: `M${a},${b} C${a},${b + (y - b) * 0.55} ${x},${b + (y - b) * 0.45} ${x},${y - 3}`,
      };
    })
    .filter(({ share }) => share > 0.03);
}

/** What the reader has changed, and what follows from it. */
function Notes({ state, act, about }) {
  const { forced, forcedWord, target, own, seenOff, without } = state;
  const off = headsOff(seenOff);
  return html`
    ${
      forced &&
      html`<p class="note">You chose <b>${wordText(target.pieces, target.words[forcedWord] ?? [0])}</b>${about.writes ? "; the model continues from there" : ""}.
      Without your choice: <q>${own.text}</q> <button class="link" onClick=${() => act.force(null)}>Undo</button></p>`
    }
    ${
      off.length > 0 &&
      html`<p class="note">${off.length === 1 ? "1 head is" : `${off.length} heads are`} off.
      ${without && (without.text === target.text ? "The model would still write the same." : html`The model would now write <q>${without.text}</q>`)}
      <button class="link" onClick=${act.allOn}>Switch all on</button></p>`
    }`;
}

function Word({ state, act, about, groups, tokens, chosen, text }) {
  const { target, now, before, seenOff, effects } = state;
  const step = now.steps[tokens[0]];
  const first = tokens[0];
  const share = effects && about.writes ? sourceShare(effects, tokens) : null;
  const force = (id) => {
    const ids = about.writes
      ? [...target.ids.slice(0, first), id]
      : target.ids.map((own, t) => (t === first ? id : own));
    act.force(ids, chosen);
  };
  return html`<section class="card" aria-live="polite" aria-label="The word">
    <h2>The word</h2>
    <p class="big">${text}</p>
    <div class="facts number">
      <span><b>${percent(Math.exp(logpOf(now.steps, tokens)))}</b>${seenOff ? `was ${percent(Math.exp(logpOf(before.steps, tokens)))}` : "probability"}</span>
      <span title="the exponential of the entropy"><b>${Math.exp(step.entropy).toFixed(1)}</b>perplexity${tokens.length > 1 ? " of its first piece" : ""}</span>
      ${share !== null && html`<span title="positive effects of the source's words, beside those of the words before"><b>${Math.round(100 * share)} %</b>due to the source</span>`}
      ${tokens.length > 1 && html`<span><b>${tokens.length}</b>pieces: ${tokens.map((t) => target.pieces[t].trim()).join(" · ")}</span>`}
    </div>
    ${isUnsupported(effects, tokens) && html`<p class="note">Without the source, the words before make this one as likely.</p>`}
    <h2>${tokens.length > 1 ? "Alternatives to its first piece" : "Alternatives"}</h2>
    <p class="hint">${about.writes ? "Choose one: the model continues from it." : "Choose one to see what it depends on."}</p>
    <ul class="rivals">${step.top.slice(0, 7).map(
      ({ id, piece, logp }) => html`<li key=${id}>
      <button aria-current=${step.id === id ? "true" : null} disabled=${piece === "[END]"} onClick=${() => force(id)}>
        <span class="piece">${shown(piece)}</span>
        <span class="track"><div class="bar" style=${{ width: `${100 * Math.exp(logp)}%` }} /></span>
        <span class="number right">${percent(Math.exp(logp))}</span>
      </button></li>`,
    )}</ul>
    ${
      groups.length > 1 &&
      html`<h2 class="later">Uncertainty</h2>
    <div class="wavers">${groups.map(
      (group, g) => html`<button key=${g} tabindex="-1" class=${g === chosen ? "chosen" : ""}
      aria-label=${`${group[0] === target.ids.length ? "end" : wordText(target.pieces, group)}: entropy ${nats(now.steps[group[0]].entropy)} nats`}
      onClick=${() => act.choose(g)}><i style=${{ height: `${100 * Math.min(1, now.steps[group[0]].entropy / 6)}%` }} /></button>`,
    )}</div>
    <p class="hint">Entropy at each word, up to 6 nats.</p>`
    }
  </section>`;
}

/** Removal and attention of each word, side by side. */
function Causes(view) {
  const { state, about, groups, tokens, text, measure, setMeasure, place, setPlace, attention, removal } = view;
  const { source, target, effects, now } = state;
  const words = [...source.words, ...endOf(about, source)];
  const before = about.writes ? target.words.filter((group) => group[0] < tokens[0]) : [];
  const largest = Math.max(0.5, ...(removal.source ?? []), ...removal.prefix);
  const line = (name, drop, weight, key) => html`
    <span class="piece" key=${key}>${name}</span>
    <span class="cell removal">${
      drop === undefined
        ? html`<span /><span class="number">–</span>`
        : html`<div class="bar" style=${{ width: `${(100 * Math.max(0, drop)) / largest}%` }} /><span class="number">${nats(drop)}</span>`
    }</span>
    <span class="cell attention"><div class="bar" style=${{ width: `${100 * weight}%` }} /><span class="number">${weight.toFixed(2)}</span></span>`;
  return html`<section class="card" aria-label="What it depends on">
    <h2>What it depends on</h2>
    <p class="hint">Removal takes a word out and measures how much less likely “${text}” becomes: an effect. Attention is where the model looks: a hint.</p>
    <div class="bar-top">
      <${Choice} label="Shade by" value=${measure} options=${[
        ["removal", "Removal"],
        ["attention", "Attention"],
      ]} onChange=${setMeasure} />
      <label>of <select aria-label="Layer and head" value=${`${place.layer}/${place.head}`} onChange=${(e) => {
        const [layer, head] = e.target.value.split("/").map(Number);
        setPlace({ layer, head });
        setMeasure("attention");
      }}>${range(about.layers[about.kinds.at(-1)]).map(
        (layer) => html`<optgroup label=${`layer ${layer + 1}`}>
        <option value=${`${layer}/-1`}>layer ${layer + 1}, mean</option>
        ${range(about.heads).map((head) => html`<option value=${`${layer}/${head}`}>layer ${layer + 1}, head ${head + 1}</option>`)}
      </optgroup>`,
      )}</select></label>
    </div>
    <div class="leans" role="group" aria-label="Removal and attention of each word">
      <span /><span class="removal">removal, nats</span><span class="attention">attention</span>
      ${words.map((group, g) =>
        line(
          g < source.words.length ? wordText(source.pieces, group) : html`<small>end</small>`,
          removal.source?.[g],
          attention.source[g],
          `s${g}`,
        ),
      )}
      ${before.length > 0 && html`<span class="divider">words before it</span>`}
      ${before.map((group, g) => line(wordText(target.pieces, group), effects ? removal.prefix[g] : undefined, attention.prefix[g], `p${g}`))}
    </div>
    ${effects && source.words.length > 1 && html`<p class="hint later">${agreement({ now, effects, source, groups, place, about })}</p>`}
  </section>`;
}

/** In how many words the most attended source word is the one whose removal costs most. */
function agreement({ now, effects, source, groups, place, about }) {
  const { map, readers, column } = now.reading;
  const heads = place.head < 0 ? range(about.heads) : [place.head];
  const columns = source.words.map((group) => group.map((i) => column + i));
  const largest = (values) => values.indexOf(Math.max(...values));
  const counted = about.ends ? groups.slice(0, -1) : groups;
  if (!counted.length) return "";
  const agreeing = counted.filter((group) => {
    const attention = attended(
      now.maps[map][place.layer],
      heads,
      group.flatMap((t) => readers[t]),
      columns,
    );
    return largest(attention) === largest(effects.source.map((row) => group.reduce((sum, t) => sum + row[t], 0)));
  }).length;
  return `For ${agreeing} of ${counted.length} ${counted.length === 1 ? "word" : "words"}, the most attended word of the source is the one whose removal costs most.`;
}

function HeadGrids({ state, act, about, tokens, text }) {
  const { effects, off } = state;
  const effect = (key) => effects?.heads[key] && tokens.reduce((sum, t) => sum + effects.heads[key][t], 0);
  const largest = Math.max(0.05, ...Object.keys(effects?.heads ?? {}).map((key) => Math.abs(effect(key))));
  return html`<section class="card" aria-label="Heads">
    <h2>Heads</h2>
    <p class="hint">Each square: what switching that head off does to “${text}”. Press one to switch it off.</p>
    ${[...about.kinds].reverse().map(
      (kind) => html`
      <h3>${KIND_NAMES[kind]}</h3>
      <div class="heads" style=${{ "--heads": about.heads }} role="group" aria-label=${KIND_NAMES[kind]}>
        ${range(about.layers[kind]).map(
          (layer) =>
            html`<span class="label">${layer + 1}</span>${range(about.heads).map((head) => {
              const value = effect(`${kind}/${layer}/${head}`);
              const isOff = !!off?.[kind]?.[layer]?.[head];
              const said = isOff
                ? "off"
                : value === undefined
                  ? "not computed yet"
                  : `${nats(Math.abs(value))} nats ${value >= 0 ? "less" : "more"} likely without it`;
              return html`<button aria-pressed=${String(isOff)} aria-label=${`${KIND_NAMES[kind]}, layer ${layer + 1}, head ${head + 1}: ${said}`}
            title=${`layer ${layer + 1}, head ${head + 1}: ${said}`} onClick=${() => act.toggle(kind, layer, head)}
            style=${{ "--much": Math.min(1, Math.abs(value ?? 0) / largest).toFixed(3), "--hue": (value ?? 0) >= 0 ? "var(--removal)" : "var(--attention)" }} />`;
            })}`,
        )}
      </div>`,
    )}
    <div class="scale number"><i class="needed" /> needed (up to ${nats(largest)} nats) <i class="harmful" /> harmful</div>
  </section>`;
}
