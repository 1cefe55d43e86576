// @ts-check
// Every attention map; one of them large, with its tokens.
import { useState } from "preact/hooks";
import { Choice, KIND_NAMES, Pixels, html, range, shown } from "./parts.js";

/** The tokens of the rows and columns of each kind of map. */
function axesOf(about, source, target) {
  const { task } = about;
  const written = [...target.pieces, ...(about.ends ? ["[END]"] : [])];
  if (task === "translate") {
    const sources = [...source.pieces, "[END]"];
    return {
      encoder: [sources, sources],
      decoder: [written, ["[START]", ...target.pieces]],
      cross: [written, sources],
    };
  }
  if (task === "generate") {
    const read = [...(about.starts ? ["[START]"] : []), ...source.pieces, ...target.pieces];
    const kept = about.ends ? read : read.slice(0, -1);
    return { decoder: [kept, kept] };
  }
  const read = ["[START]", ...source.pieces, "[END]"];
  return { encoder: [read, read] };
}

export function Maps({ state, act, about }) {
  const { now, source, target, theme, off, chosen } = state;
  const kinds = [...about.kinds].reverse();
  const [kind, setKind] = useState(kinds[0]);
  const [layer, setLayer] = useState(about.layers[kinds[0]] - 1);
  const [head, setHead] = useState(0);
  const choose = (name) => {
    setKind(name);
    setLayer(Math.min(layer, about.layers[name] - 1));
  };
  if (!now || !target) return html`<p class="hint">Write something above.</p>`;
  const { rows, columns, weights } = now.maps[kind][layer];
  const [rowNames, columnNames] = axesOf(about, source, target)[kind];
  const tokens = target.words[chosen] ?? [target.ids.length];
  const chosenRows =
    kind === now.reading.map ? tokens.flatMap((t) => now.reading.readers[t] ?? []) : kind === "decoder" ? tokens : [];
  const isOff = (n) => !!off?.[kind]?.[layer]?.[n];
  return html`<section class="card" aria-label="Attention maps">
    <h2>Attention maps</h2>
    <p class="hint">A row shows what a token looks at; stronger colour is more, and each row adds up to 1.${kind === "decoder" ? " A row is named by the token that is written there, a column by the token that is read." : ""}</p>
    <div class="bar-top">
      ${kinds.length > 1 && html`<${Choice} label="Kind" value=${kind} options=${kinds.map((name) => [name, KIND_NAMES[name]])} onChange=${choose} />`}
      <${Choice} label="Layer" value=${layer} options=${range(about.layers[kind]).map((i) => [i, `Layer ${i + 1}`])} onChange=${setLayer} />
    </div>
    <div class="maps">${range(about.heads).map(
      (n) => html`<button key=${n} aria-pressed=${String(n === head)} onClick=${() => setHead(n)}>
      <${Pixels} ...${{ weights, rows, columns, at: n * rows * columns, theme, label: `head ${n + 1}` }} />head ${n + 1}${isOff(n) ? ", off" : ""}</button>`,
    )}</div>
    <div class="bar-top"><h2>Layer ${layer + 1}, head ${head + 1}</h2>
      <button class="link" onClick=${() => act.toggle(kind, layer, head)}>${isOff(head) ? "Switch it on" : "Switch it off"}</button></div>
    <div class="large" style=${{ "--columns": columns }} tabindex="0" role="img" aria-label="The chosen map with its tokens">
      <span />${columnNames.map((name) => html`<span class="top">${shown(name)}</span>`)}
      ${range(rows).map(
        (t) => html`<span class=${`row ${chosenRows.includes(t) ? "chosen" : ""}`}>${shown(rowNames[t] ?? "")}</span>
        ${range(columns).map((s) => {
          const much = weights[(head * rows + t) * columns + s];
          const hidden = kind === "decoder" && s > t;
          return html`<span class=${`cell number ${hidden ? "hidden" : ""}`} style=${{ "--much": much.toFixed(3) }}>${much >= 0.1 ? Math.round(100 * much) : ""}</span>`;
        })}`,
      )}
    </div>
  </section>`;
}
