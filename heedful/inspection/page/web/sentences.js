// @ts-check
// The sentences of a text, which a translator reads one at a time.
import { html, useAnswer } from "./parts.js";
import { readAs, withTerms, written } from "./questions.js";

// What a full stop belongs to rather than to a sentence: "Dr.", "Mrs.", "J."
const ABBREVIATION = /(^|[\s("'])\p{Lu}[b-df-hj-np-tv-xz]{0,2}\.\s*$/u;
// Scripts without spaces between sentences; the same as in heedful/data/sentences.py.
const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff60]$/;

/**
 * The sentences of a text, each with the white space after it. If the model does not read sentence by sentence, each
 * line counts as one; for other tasks than translation, the whole text does.
 * @param {string} text @param {any} about @returns {{ text: string, gap: string }[]}
 */
export function sentencesOf(text, about) {
  if (about.task !== "translate") return [{ text, gap: "" }];
  const sentences = [];
  for (const line of text.trim().split(/(?<=\n)/)) {
    for (const part of about.splits ? segments(line, about.language) : [line]) {
      const last = sentences.at(-1);
      if (part.trim()) sentences.push({ text: part.trim(), gap: part.slice(part.trimEnd().length) });
      else if (last) last.gap += part;
    }
  }
  return sentences.length > 1 ? sentences : [{ text: text.replace(/\n/g, " "), gap: "" }];
}

/** The sentences of a line as the browser finds them, but that none ends after an abbreviation. */
function segments(line, language) {
  const parts = [];
  for (const { segment } of segmenter(language).segment(line)) {
    if (parts.length && ABBREVIATION.test(parts[parts.length - 1])) parts[parts.length - 1] += segment;
    else parts.push(segment);
  }
  return parts;
}

/** The browser's segmenter for a language; for one whose code it does not accept, that for English. */
function segmenter(language) {
  try {
    return new Intl.Segmenter(language || "en", { granularity: "sentence" });
  } catch {
    return new Intl.Segmenter("en", { granularity: "sentence" });
  }
}

/** The translation of a text with several sentences; the views are about the chosen one. */
export function Sentences({ model, about, terms, sentences, chosen, choose }) {
  const texts = useAnswer(
    async (current) => {
      const translations = [];
      for (const { text } of sentences) {
        const source = await model.split({ text: readAs(about, text, terms) });
        const target = source.ids.length ? await written(model, source.ids) : { text: "" };
        translations.push((await withTerms(model, about, { text, source, target, terms })) ?? target.text);
        if (!current([...translations])) return;
      }
    },
    [model, JSON.stringify([sentences, terms])],
  );
  if (texts?.error) return html`<p class="note" role="alert">${texts.error}</p>`;
  return html`<p class="sentence-list" role="group" aria-label="Translation of the whole text">${sentences.map(
    ({ text, gap }, i) => html`<button key=${i} title=${text} aria-pressed=${String(i === chosen)}
      onClick=${() => choose(i)}>${texts?.[i] ?? "…"}</button>${gap || (UNSPACED.test(texts?.[i] ?? "") ? "" : " ")}`,
  )}</p>`;
}
