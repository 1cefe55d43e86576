// @ts-check
// The training pairs that are nearest to the text.
import { html, percent, useAnswer } from "./parts.js";

export function Nearest({ model, text }) {
  const answer = useAnswer(async (current) => current(await model.nearest({ text })), [model, text]);
  return html`<section class="card" aria-label="Nearest training pairs">
    <h2>Nearest training pairs</h2>
    <p class="hint">${answer?.total ? `Of ${answer.total.toLocaleString("en")} pairs the ones that share most rare tokens with the text; 100 % has the same tokens.` : "Searching the training text."}</p>
    ${answer?.error && html`<p class="note" role="alert">${answer.error}</p>`}
    ${answer?.pairs?.length === 0 && html`<p>No pair shares a token with it.</p>`}
    ${
      answer?.pairs?.length > 0 &&
      html`<table class="errors"><caption class="hidden-text">Training pairs</caption>
      <thead><tr><th scope="col">share</th><th scope="col">source</th><th scope="col">target</th></tr></thead>
      <tbody>${answer.pairs.map(
        ({ source, target, similarity }, i) => html`<tr key=${i}>
        <td class="number">${percent(similarity)}</td><td class="text">${source}</td><td class="text">${target}</td></tr>`,
      )}</tbody></table>`
    }
  </section>`;
}
