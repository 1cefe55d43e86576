// @ts-check
// What each head is worth over a whole text: the change of the loss with it off, computed by `heedful inspect --heads`.
import { KIND_NAMES, html, range } from "./parts.js";

export function Heads({ act, state, about }) {
  const { loss, heads, text, tokens } = about.importance;
  const largest = Math.max(...Object.values(heads).flat(2).map(Math.abs), 1e-9);
  const ranked = Object.entries(heads)
    .flatMap(([kind, layers]) =>
      layers.flatMap((row, layer) => row.map((change, head) => ({ kind, layer, head, change }))),
    )
    .sort((a, b) => b.change - a.change);
  return html`<section class="card" aria-label="Heads that matter">
    <h2>Heads that matter</h2>
    <p class="hint">The change of the loss with one head off, over ${tokens.toLocaleString("en")} tokens of ${text}. With all heads on the loss is ${loss.toFixed(4)} nats per token. Press a head to switch it off in this page.</p>
    <div class="two">
      <div>${Object.entries(heads)
        .reverse()
        .map(
          ([kind, layers]) => html`<h3>${KIND_NAMES[kind]}</h3>
        <div class="heads" style=${{ "--heads": about.heads }} role="group" aria-label=${KIND_NAMES[kind]}>
          ${range(layers.length).map(
            (layer) =>
              html`<span class="label">${layer + 1}</span>${layers[layer].map((change, head) => {
                const isOff = !!state.off?.[kind]?.[layer]?.[head];
                const said = `${change >= 0 ? "+" : "\u2212"}${Math.abs(change).toFixed(4)} nats without it`;
                return html`<button aria-pressed=${String(isOff)} title=${said} aria-label=${`${KIND_NAMES[kind]}, layer ${layer + 1}, head ${head + 1}: ${said}`}
              style=${{ "--much": Math.min(1, Math.abs(change) / largest).toFixed(3), "--hue": change >= 0 ? "var(--removal)" : "var(--attention)" }}
              onClick=${() => act.toggle(kind, layer, head)} />`;
              })}`,
          )}</div>`,
        )}
        <div class="scale number"><i class="needed" /> worse without (up to ${largest.toFixed(3)} nats) <i class="harmful" /> better without</div></div>
      <div><h3>The most important</h3><ol class="ranking number">${ranked.slice(0, 8).map(({ kind, layer, head, change }) => html`<li>${KIND_NAMES[kind]}, layer ${layer + 1}, head ${head + 1}: +${change.toFixed(4)}</li>`)}</ol>
        <h3>The least important</h3><ol class="ranking number">${ranked
          .slice(-4)
          .reverse()
          .map(
            ({ kind, layer, head, change }) =>
              html`<li>${KIND_NAMES[kind]}, layer ${layer + 1}, head ${head + 1}: ${change >= 0 ? "+" : "\u2212"}${Math.abs(change).toFixed(4)}</li>`,
          )}</ol></div>
    </div>
  </section>`;
}
