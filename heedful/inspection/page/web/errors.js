// @ts-check
// A scored test text: the sentences with the lowest scores, by length, or with rare words; a click opens one.
import { useMemo, useState } from "preact/hooks";
import { Choice, html, useAnswer } from "./parts.js";

const PAGE = 25; // rows that are shown at a time
const ORDERS = [
  ["chrf", "Lowest score"],
  ["length", "Longest"],
  ["rare", "Rarest words"],
];

export function Errors({ act, about, model }) {
  const { rows, total, data } = about.sentences;
  const [order, setOrder] = useState("chrf");
  const [shownRows, setShown] = useState(PAGE);
  const rarity = useAnswer(async (current) => current(await rarities(model, rows)), [model]);
  const sorted = useMemo(() => {
    const keys = {
      chrf: (i) => rows[i].chrf,
      length: (i) => -rows[i].source.length,
      rare: (i) => -(rarity?.[i]?.pieces ?? 0),
    };
    return rows.map((_, i) => i).sort((a, b) => keys[order](a) - keys[order](b));
  }, [order, rarity]);
  const score = about.task === "classify" ? "right" : "chrF";
  return html`<section class="card" aria-label="Errors">
    <h2>Errors</h2>
    <p class="hint">${data}: ${total.toLocaleString("en")} sentences${rows.length < total ? `, of which the ${rows.length} with the lowest scores are here` : ""}. A rare word is one that needs many tokens. Choose a sentence to look into it.</p>
    <${Histogram} values=${rows.map((row) => row.chrf)} label=${score} />
    <div class="bar-top"><${Choice} label="Order" value=${order} options=${ORDERS} onChange=${setOrder} /></div>
    <table class="errors"><caption class="hidden-text">Sentences</caption>
      <thead><tr><th scope="col">${score}</th><th scope="col">source</th><th scope="col">written</th><th scope="col">reference</th></tr></thead>
      <tbody>${sorted.slice(0, shownRows).map((i) => {
        const { source, reference, written, chrf } = rows[i];
        const rare = rarity?.[i];
        return html`<tr key=${i}><td class="number">${chrf.toFixed(0)}</td>
          <td><button class="link text" onClick=${() => act.write(source, "why")}>${source}</button>${order === "rare" && rare?.pieces > 1 && html` <small>${rare.word}: ${rare.pieces} tokens</small>`}</td>
          <td class="text">${written}</td><td class="text">${reference}</td></tr>`;
      })}</tbody></table>
    ${shownRows < rows.length && html`<button class="link" onClick=${() => setShown(shownRows + PAGE)}>Show more</button>`}
  </section>`;
}

/** The word of each source that needs the most tokens. */
async function rarities(model, rows) {
  const rarest = [];
  for (const { source } of rows) {
    const { pieces, words } = await model.split({ text: source });
    const longest = words.reduce((longer, group) => (group.length > longer.length ? group : longer), []);
    rarest.push({
      pieces: longest.length,
      word: longest
        .map((i) => pieces[i])
        .join("")
        .trim(),
    });
  }
  return rarest;
}

function Histogram({ values, label }) {
  const bins = Array.from({ length: 20 }, (_, i) => values.filter((v) => Math.min(19, Math.floor(v / 5)) === i).length);
  const largest = Math.max(...bins);
  return html`<figure class="histogram"><svg viewBox="0 0 400 64" role="img" aria-label=${`Distribution of ${label}, from 0 to 100`}>
    ${bins.map((count, i) => html`<rect x=${i * 20 + 1} width="18" y=${50 - (46 * count) / largest} height=${(46 * count) / largest} fill="var(--attention)"><title>${count} from ${5 * i} to ${5 * i + 5}</title></rect>`)}
    <text x="0" y="62">0</text><text x="400" y="62" text-anchor="end">100</text></svg></figure>`;
}
