// @ts-check
// Two runs, or two checkpoints of one run, on the same text.
import { useState } from "preact/hooks";
import { html, percent, range, useAnswer, wordText } from "./parts.js";
import { written } from "./questions.js";

export function Compare({ state, models, abouts }) {
  const choices = abouts.flatMap((about, run) =>
    range(about.checkpoints.length).map((checkpoint) => ({
      run,
      checkpoint,
      name: `${about.name}, update ${about.checkpoints[checkpoint].toLocaleString("en")}`,
    })),
  );
  const [sides, setSides] = useState([
    choices.length - 1,
    abouts.length > 1 ? abouts[0].checkpoints.length - 1 : Math.max(0, choices.length - 2),
  ]);
  const text = state.text;
  const answers = useAnswer(
    async (current) =>
      current(
        await compared(
          sides.map((i) => choices[i]),
          models,
          abouts,
          text,
        ),
      ),
    [sides.join(), text],
  );
  return html`<section class="card" aria-label="Compare">
    <h2>Compare</h2>
    <p class="hint">Each side writes for the same text, and rates what the other wrote. Words that only one of them has are marked.</p>
    ${answers?.error && html`<p class="note" role="alert">${answers.error}</p>`}
    <div class="two">${[0, 1].map(
      (side) => html`<div key=${side}>
      <select aria-label=${side ? "Right side" : "Left side"} value=${sides[side]}
        onChange=${(e) => setSides(sides.map((i, s) => (s === side ? +e.target.value : i)))}>
        ${choices.map(({ name }, i) => html`<option key=${i} value=${i}>${name}</option>`)}</select>
      ${Array.isArray(answers) && html`<${Side} ...${{ mine: answers[side], other: answers[1 - side] }} />`}
    </div>`,
    )}</div>
  </section>`;
}

/** What each side writes, with the probability of each word, and its probability of the other's words. */
async function compared(sides, models, abouts, text) {
  const answers = await Promise.all(
    sides.map(async ({ run, checkpoint }) => {
      const model = models[run];
      const source = await model.split({ text });
      const target = await written(model, source.ids, { checkpoint });
      const { steps } = await model.look({ source: source.ids, target: target.ids, checkpoint });
      return { model, source, target, steps, checkpoint, task: abouts[run].task };
    }),
  );
  for (const [side, mine] of answers.entries()) {
    const other = answers[1 - side];
    if (mine.task !== other.task) continue;
    const ids = await idsOf(mine.model, other);
    if (!ids) continue;
    const [scores] = await mine.model.score({
      variants: [{ source: mine.source.ids, target: ids }],
      checkpoint: mine.checkpoint,
    });
    mine.otherLogp = scores.reduce((sum, logp) => sum + logp, 0);
  }
  return answers;
}

/** The other side's target in this model's tokens, if they have the same vocabulary. */
async function idsOf(model, other) {
  const shown = await model.show({ ids: other.target.ids });
  return shown.text === other.target.text ? other.target.ids : null;
}

function Side({ mine, other }) {
  const { target, steps } = mine;
  const others = new Set(other.target.words.map((group) => wordText(other.target.pieces, group)));
  const logp = steps.reduce((sum, step) => sum + step.logp, 0);
  return html`<p class="words target compared">${target.words.map((group, g) => {
    const word = wordText(target.pieces, group);
    const p = Math.exp(group.reduce((sum, t) => sum + steps[t].logp, 0));
    return html`<span key=${g} class=${`word ${others.has(word) ? "" : "different"}`} style=${{ "--p": p.toFixed(3) }} title=${percent(p)}>${word}</span>`;
  })}</p>
    <dl class="results"><div><dt class="number">${logp.toFixed(2)}</dt><dd>nats for its own text</dd></div>
      ${mine.otherLogp !== undefined && html`<div><dt class="number">${mine.otherLogp.toFixed(2)}</dt><dd>nats for the other's text</dd></div>`}</dl>`;
}
