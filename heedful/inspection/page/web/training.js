// @ts-check
// How the model was trained: curves, and the same text at each kept checkpoint.
import { useEffect, useState } from "preact/hooks";
import { Pixels, html, range, useAnswer } from "./parts.js";
import { written } from "./questions.js";

/** Curves: key, label, and which log it comes from. */
const CURVES = [
  ["loss", "training loss, nats", "progress"],
  ["valid_loss", "validation loss, nats", "log"],
  ["valid_bleu", "BLEU", "log"],
  ["valid_accuracy", "accuracy", "log"],
  ["learning_rate", "learning rate", "progress"],
  ["gradient_norm", "gradient norm", "progress"],
  ["tokens_per_second", "tokens per second", "log"],
];

export function Training({ state, model, about }) {
  const { source, theme } = state;
  const updates = about.checkpoints;
  const several = updates.length > 1 && source.ids.length > 0;
  const [at, setAt] = useState(updates.length - 1);
  const texts = useAnswer(
    (current) => several && developed(model, about, source.ids, current),
    [model, source.ids.join()],
  );
  const film = Array.isArray(texts) ? texts : [];
  const live = useEvents(about);
  const curves = CURVES.map(([key, label, log]) => ({
    key,
    label,
    points: live[log].filter((entry) => key in entry).map((entry) => [entry.update, entry[key]]),
  }));
  return html`
    <section class="card" aria-label="Curves"><h2>Curves</h2>
      <p class="hint">${live.log.length} validations${several ? ". The line marks the checkpoint that is chosen below." : "."}</p>
      <div class="curves">${curves.filter(({ points }) => points.length > 1).map((curve) => html`<${Curve} key=${curve.key} ...${{ ...curve, mark: several ? updates[at] : null }} />`)}</div>
      ${about.scores.length > 0 && html`<${Scores} scores=${about.scores} />`}
    </section>
    ${
      several &&
      html`<section class="card" aria-label="The text through the training"><h2>The text through the training</h2>
      <p class="hint">Each kept checkpoint reads your text${about.type === "int8" || about.api ? "" : "; earlier ones are kept in 8 bits"}. The maps are the last layer's, as a mean of its heads.</p>
      <label class="bar-top">Update <input type="range" class="wide" min="0" max=${updates.length - 1} value=${at}
        onInput=${(e) => setAt(+e.target.value)} aria-label="Checkpoint" aria-valuetext=${`update ${updates[at]}`} /> <b class="number">${updates[at].toLocaleString("en")}</b></label>
      ${texts?.error && html`<p class="note" role="alert">${texts.error}</p>`}
      <div class="film" tabindex="0" role="group" aria-label="Checkpoints">${film.map(
        ({ target, map }, i) => html`<button key=${i} aria-pressed=${String(i === at)} onClick=${() => setAt(i)}>
        <${Pixels} ...${{ ...map, theme, label: `attention at update ${updates[i]}` }} /><b class="number">${updates[i].toLocaleString("en")}</b>
        <span class="quoted">${/^[\ufffd\s]*$/.test(target.text) ? html`<span class="hint">nothing that can be read</span>` : target.text}</span></button>`,
      )}</div></section>`
    }`;
}

/** The logs of a run; a served page receives what is added to them while the run is trained. */
function useEvents(about) {
  const [logs, setLogs] = useState({ log: about.log, progress: about.progress });
  useEffect(() => {
    if (!about.events) return undefined;
    const events = new EventSource(about.events);
    events.onmessage = ({ data }) => {
      const { log, entry } = JSON.parse(data);
      setLogs((now) => {
        const last = now[log].at(-1)?.update ?? 0;
        return entry.update > last ? { ...now, [log]: [...now[log], entry] } : now;
      });
    };
    return () => events.close();
  }, [about.events]);
  return logs;
}

/** What each checkpoint writes for a source, and its mean attention map. */
async function developed(model, about, source, current) {
  const film = [];
  for (const checkpoint of range(about.checkpoints.length)) {
    const target = await written(model, source, { checkpoint });
    const { maps, reading } = await model.look({ source, target: target.ids, checkpoint });
    film.push({ target, map: mean(maps[reading.map].at(-1), about.heads) });
    if (!current([...film])) return film;
  }
  return film;
}

function mean({ weights, rows, columns }, heads) {
  const sum = new Float32Array(rows * columns);
  for (let n = 0; n < heads; n++) for (let i = 0; i < sum.length; i++) sum[i] += weights[n * sum.length + i] / heads;
  return { weights: sum, rows, columns };
}

const short = (v) =>
  Math.abs(v) >= 1000
    ? `${(v / 1000).toFixed(1)}k`
    : v >= 10
      ? v.toFixed(1)
      : v >= 0.01 || v === 0
        ? v.toFixed(3)
        : v.toExponential(1);

// Two to four round values from `smallest` to `largest`, for the scale beside a curve.
function ticks(smallest, largest) {
  const range = largest - smallest || Math.abs(largest) || 1;
  const power = 10 ** Math.floor(Math.log10(range / 3));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= range / 3);
  const first = Math.ceil(smallest / step);
  return Array.from({ length: Math.floor(largest / step) - first + 1 }, (_, i) => (first + i) * step);
}

const tickLabel = (v) =>
  v !== 0 && Math.abs(v) < 0.01 ? v.toExponential(0) : Math.abs(v) >= 1000 ? `${v / 1000}k` : `${+v.toPrecision(3)}`;

function Curve({ label, points, mark }) {
  const values = points.map(([, value]) => value);
  const largest = Math.max(...values);
  const smallest = Math.min(0, ...values);
  const end = points.at(-1)[0];
  const X = (update) => 36 + (update / (end || 1)) * 190;
  const Y = (value) => 112 - ((value - smallest) / (largest - smallest || 1)) * 92;
  const [lastUpdate, last] = points.at(-1);
  return html`<figure><svg viewBox="0 0 234 130" role="img" aria-label=${`${label}: ${short(last)} at update ${lastUpdate}`}>
    <line x1="36" x2="226" y1="112" y2="112" stroke="var(--line)" />
    ${ticks(smallest, largest).map((v) => html`<g class="tick"><line x1="36" x2="226" y1=${Y(v)} y2=${Y(v)} stroke="var(--line)" /><text x="32" y=${Y(v) + 4} text-anchor="end">${tickLabel(v)}</text></g>`)}
    ${mark !== null && html`<line x1=${X(mark)} x2=${X(mark)} y1="14" y2="112" stroke="var(--ink)" stroke-dasharray="2 3" />`}
    <polyline points=${points.map(([u, v]) => `${X(u)},${Y(v)}`).join(" ")} fill="none" stroke="var(--attention)" stroke-width="2" />
    ${points.length < 40 && points.map(([u, v]) => html`<circle cx=${X(u)} cy=${Y(v)} r="3" fill="var(--attention)"><title>${short(v)} at update ${u}</title></circle>`)}
    <text class="value" x=${X(lastUpdate)} y=${Math.max(10, Y(last) - 8)} text-anchor="end">${short(last)}</text>
    <text x="36" y="126">0</text><text x="226" y="126" text-anchor="end">${end.toLocaleString("en")}</text>
  </svg><figcaption class="hint">${label}</figcaption></figure>`;
}

function Scores({ scores }) {
  const names = [...new Set(scores.flatMap((one) => Object.keys(one)))].filter((name) => name !== "data");
  const cell = (value) => (typeof value === "number" ? value.toFixed(value < 10 ? 3 : 2) : "–");
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Scores"><table class="scores"><caption>Scores</caption>
    <thead><tr><th scope="col">text</th>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${scores.map((one, i) => html`<tr key=${i}><th scope="row">${one.data}</th>${names.map((name) => html`<td class="number">${cell(one[name])}</td>`)}</tr>`)}</tbody></table></div>`;
}
