// @ts-check
// Small parts that several views share.
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);
export const range = (n) => Array.from({ length: n }, (_, i) => i);
export const percent = (p) =>
  `${p >= 0.9995 ? "100" : p >= 0.1 ? (100 * p).toFixed(1) : p >= 0.001 ? (100 * p).toFixed(2) : "<0.1"} %`;
export const nats = (x) => (Math.abs(x) < 0.005 ? "0" : x.toFixed(2)).replace("-", "\u2212");
export const shown = (piece) => (piece === "[END]" ? "end" : piece === "[START]" ? "start" : piece.trim() || "␣");
export const wordText = (pieces, group) =>
  group
    .map((i) => pieces[i] ?? "")
    .join("")
    .trim() || "␣";
export const KIND_NAMES = {
  cross: "Cross-attention",
  decoder: "Decoder self-attention",
  encoder: "Encoder self-attention",
};
/** What the sides of a task are called. */
export const SIDES = {
  translate: {
    field: "Source text",
    prompt: "Type a text to translate",
    source: "Source",
    target: "Translation",
  },
  generate: { field: "Prompt", prompt: "Type the beginning of a text", source: "Prompt", target: "Continuation" },
  fill: {
    field: "Text with [MASK]",
    prompt: "Type a text, with [MASK] in place of a word",
    source: "Text",
    target: "Predicted tokens",
  },
  classify: { field: "Text", prompt: "Type a text to classify", source: "Text", target: "Class" },
};

export function Choice({ label, value, options, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(
      ([name, text]) => html`<button key=${name} aria-pressed=${String(name === value)}
      onClick=${() => onChange(name)}>${text}</button>`,
    )}
  </div>`;
}

/** A map (rows, columns) as one pixel a cell; the colour is read from the page, so dark mode and print are right. */
export function Pixels({ weights, rows, columns, at = 0, theme, label, tallest = 1.6 }) {
  const canvas = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    const context = canvas.current.getContext("2d");
    const style = getComputedStyle(canvas.current);
    Object.assign(canvas.current, { width: columns, height: rows });
    for (let t = 0; t < rows; t++)
      for (let s = 0; s < columns; s++) {
        context.globalAlpha = weights[at + t * columns + s];
        context.fillStyle = style.color;
        context.fillRect(s, t, 1, 1);
      }
  }, [weights, at, theme]);
  return html`<canvas ref=${canvas} role="img" aria-label=${label} class="pixels"
    style=${{ aspectRatio: `${columns} / ${Math.min(rows, tallest * columns)}` }} />`;
}

const pen = globalThis.document?.createElement("canvas").getContext("2d");
export function textWidth(text, font) {
  if (!pen) return 0;
  pen.font = font;
  return pen.measureText(text).width;
}

/** A reference for an element, and its current width. @returns {[any, number]} */
export function useWidth() {
  const ref = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/** The value of an asynchronous function, computed anew when one of `inputs` changes; null before that. */
export function useAnswer(compute, inputs) {
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let stale = false;
    const current = (value) => {
      if (!stale) setAnswer(value);
      return !stale;
    };
    Promise.resolve(compute(current)).catch((error) => current({ error: error.message }));
    return () => {
      stale = true;
    };
  }, inputs);
  return answer;
}

export const readFont = () => getComputedStyle(document.documentElement).getPropertyValue("--text");
