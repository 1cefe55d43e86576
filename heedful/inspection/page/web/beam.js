// @ts-check
// The tree of a beam search: what was kept at each step, what ended, what was pruned.
import { useState } from "preact/hooks";
import { html, nats, percent, readFont, shown, textWidth, useAnswer } from "./parts.js";

const FONT = 15;
const LINE = 27;
const GAP = 14; // pixels

export function Beam({ state, act, model, about }) {
  const [pruned, setPruned] = useState(false);
  const { source, off, width } = state;
  const key = JSON.stringify([source.ids, off, width]);
  const answer = useAnswer(
    async (current) => {
      let last;
      if (source.ids.length || about.starts) {
        for await (last of model.write({ source: source.ids, off, width })) if (!current(null)) return;
      }
      current({ key, tree: last ?? { nodes: [], done: [] } });
    },
    [model, key],
  );
  if (answer?.error) return html`<p class="note" role="alert">${answer.error}</p>`;
  const tree = answer?.key === key ? answer.tree : null;
  if (!tree) return html`<p class="hint" role="status">Searching …</p>`;
  if (!tree.nodes.length) return html`<p class="hint" role="status">The model writes nothing here.</p>`;
  return html`<section class="card" aria-label="Beam search">
      <div class="bar-top"><h2>Beam search</h2>
        <label>Width <input type="range" min="2" max="8" value=${width} aria-label="Width of the beam" aria-valuetext=${`${width} hypotheses`}
          onInput=${(e) => act.change({ width: +e.target.value })} /> <b class="number">${width}</b></label>
        <label><input type="checkbox" checked=${pruned} onChange=${(e) => setPruned(e.target.checked)} /> show pruned candidates</label></div>
      <p class="hint">One token a step, from left to right. The orange path is the result; a path that stops was overtaken by better ones; a dot marks an end. Thicker lines are more likely.</p>
      <div class="tree" tabindex="0" role="group" aria-label="Tree of hypotheses"><${Tree} ...${{ tree, pruned }} /></div>
    </section>
    <section class="card" aria-label="Results"><h2>Results</h2>
      <p class="hint">Scores are log-probabilities in nats, divided by a power of the length as the run's settings say.</p>
      <dl class="results">${tree.done.map(({ text, score }, i) => html`<div key=${i}><dt class="number">${score.toFixed(3)}</dt><dd>${text}</dd></div>`)}</dl></section>`;
}

function Tree({ tree, pruned }) {
  const { nodes, done } = tree;
  const { won, children, y, lines } = layout(nodes, done, pruned);
  const font = readFont();
  const widthOf = (i) =>
    nodes[i].state === "ended"
      ? 14
      : 10 + textWidth(shown(nodes[i].piece), `${won.has(i) ? "bold " : ""}${FONT}px ${font}`);
  const widest = [];
  nodes.forEach((node, i) => {
    if (y[i] !== undefined && node.step >= 0) widest[node.step] = Math.max(widest[node.step] ?? 0, widthOf(i));
  });
  const begin = 24 + textWidth("start", `bold ${FONT}px ${font}`);
  const left = [begin + GAP];
  for (let step = 0; step < widest.length; step++) left[step + 1] = left[step] + GAP + (widest[step] ?? 0);
  const top = (i) => 22 + LINE * y[i];
  const drawn = nodes.map((_, i) => i).filter((i) => y[i] !== undefined);
  return html`<svg width=${left.at(-1) + 4} height=${lines * LINE + 16} role="img" aria-label=${`${drawn.length} nodes`}>
    ${drawn.map((i) => {
      const { parent, piece, logp, score, state, step } = nodes[i];
      const x = i ? left[step] : 8;
      const from = parent > 0 ? left[nodes[parent].step] + widthOf(parent) : begin;
      const strong = won.has(i) || state === "ended" || children[i].length > 0;
      return html`<g key=${i} class=${won.has(i) ? "won" : strong ? "" : "faint"}>
        ${
          i > 0 &&
          html`<path d=${`M${from},${top(parent)} C${(from + x) / 2},${top(parent)} ${(from + x) / 2},${top(i)} ${x},${top(i)}`}
          stroke-width=${0.8 + 3.2 * Math.exp(logp)} />`
        }
        <text x=${x + 4} y=${top(i) + 5}>${!i ? "start" : state === "ended" ? "" : shown(piece)}<title>${percent(Math.exp(logp))}, ${nats(score)} nats in all${state === "pruned" ? ", pruned" : ""}</title></text>
        ${state === "ended" && html`<circle class="mark" cx=${x + 7} cy=${top(i)} r="5"><title>end, ${percent(Math.exp(logp))}, ${nats(score)} nats in all</title></circle>`}
      </g>`;
    })}
  </svg>`;
}

/** The line of each node: the path to the result first, then the longest branches. */
function layout(nodes, done, pruned) {
  const children = nodes.map(() => /** @type {number[]} */ ([]));
  const won = new Set();
  const y = [];
  nodes.forEach((node, i) => {
    if (node.parent >= 0 && (pruned || node.state !== "pruned")) children[node.parent].push(i);
  });
  for (let i = done[0]?.node ?? 0; i >= 0; i = nodes[i].parent) won.add(i);
  const depth = (i) => 1 + Math.max(0, ...children[i].map(depth));
  let lines = 0;
  const place = (i) => {
    const below = children[i].sort(
      (a, b) => +won.has(b) - +won.has(a) || depth(b) - depth(a) || nodes[b].score - nodes[a].score,
    );
    if (!below.length) {
      y[i] = lines++;
      return;
    }
    below.forEach(place);
    y[i] = y[below[0]];
  };
  place(0);
  return { won, children, y, lines };
}
