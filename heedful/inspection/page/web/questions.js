// @ts-check
// What the views ask a model, in terms of its methods.
import { alignedWords, placesOf, placeTerms, matchTerms, withSoftTerms, wordsOf } from "./terms.js";

/** @typedef {{ [kind: string]: { [layer: number]: { [head: number]: boolean } } } | null} Off */

/** What the model writes for a source. @returns {Promise<any>} */
export async function written(model, source, options = {}) {
  let last;
  for await (const event of model.write({ source, ...options })) last = event;
  return last?.done;
}

/** What the model reads for a text: with its terms, if the model was trained to use them. @param {any[]} terms */
export const readAs = (about, text, terms) =>
  about.soft_terms ? withSoftTerms(text, placesOf(text, terms, about.protected)) : text;

/**
 * The translation of a text with the terms that stand in it; null if that is what the model wrote.
 * @param {{ text: string, source: any, target: any, terms: any[] }} translated
 * @returns {Promise<string | null>}
 */
export async function withTerms(model, about, { text, source, target, terms }) {
  const places = placesOf(text, terms, about.protected);
  if (!places.length) return null;
  const matches = matchTerms(text, places, target.text, about.soft_terms);
  let alignment = null;
  if (matches.missing.length) {
    const plain = about.soft_terms ? await model.split({ text }) : source;
    const { maps } = await model.look({ source: plain.ids, target: target.ids });
    const sides = [
      { words: wordsOf(text, places), spans: plain.spans },
      { words: wordsOf(target.text, matches.matched), spans: target.spans },
    ];
    alignment = alignedWords(maps.cross, about.alignment, sides[0], sides[1]);
  }
  const result = placeTerms(text, places, target.text, matches, alignment);
  return result === target.text ? null : result;
}

const without = (ids, group) => ids.filter((_, i) => !group.includes(i));

/**
 * How much less likely, in nats, each token of a target becomes without one word: `source` and `prefix` have a row for
 * each word of the source and of the target. A word of the target affects only the tokens after it.
 * `support` is what the whole source adds to each token; null unless the model translates.
 */
export async function removalEffects(model, about, source, target, off) {
  const variants = [{ source: source.ids, target: target.ids, off }];
  const removable = source.words.map(
    (group) => !group.some((i) => source.ids[i] === about.mask && about.task === "fill"),
  );
  source.words.forEach((group, g) => {
    if (removable[g]) variants.push({ source: without(source.ids, group), target: target.ids, off });
  });
  const prefixed = about.writes ? target.words : [];
  for (const group of prefixed) variants.push({ source: source.ids, target: without(target.ids, group), off });
  if (about.task === "translate") variants.push({ source: [], target: target.ids, off });
  const [base, ...rows] = await model.score({ variants: usable(variants, about) });
  const difference = (row, removed = []) =>
    base.map((logp, t) => {
      const before = removed.filter((i) => i < t).length;
      return removed.includes(t) || (removed.length && t < removed[0]) || !row ? 0 : logp - row[t - before];
    });
  let next = 0;
  const ofSource = removable.map((possible) => (possible ? difference(rows[next++]) : base.map(() => 0)));
  const ofPrefix = prefixed.map((group) => difference(rows[next++], group));
  return { source: ofSource, prefix: ofPrefix, support: about.task === "translate" ? difference(rows[next]) : null };
}

/** A language model needs some text: a variant that would have none keeps all of it. */
function usable(variants, about) {
  return variants.map((variant) =>
    about.task === "generate" && !about.starts && !variant.source.length ? variants[0] : variant,
  );
}

/** How much less likely each token becomes with one more head off: "kind/layer/head" -> a number for each token. */
export async function headEffects(model, about, source, target, off) {
  const heads = [];
  for (const kind of [...about.kinds].reverse()) {
    // the encoder's last: each needs the source to be read again
    for (let layer = 0; layer < about.layers[kind]; layer++) {
      for (let head = 0; head < about.heads; head++) if (!off?.[kind]?.[layer]?.[head]) heads.push([kind, layer, head]);
    }
  }
  const pair = { source: source.ids, target: target.ids };
  const variants = [
    { ...pair, off },
    ...heads.map(([kind, layer, head]) => ({ ...pair, off: toggled(off, kind, layer, head) })),
  ];
  const [base, ...rows] = await model.score({ variants });
  return Object.fromEntries(heads.map((key, i) => [key.join("/"), rows[i].map((logp, t) => base[t] - logp)]));
}

/** @param {Off} off @returns {Off} */
export function toggled(off, kind, layer, head) {
  const copy = structuredClone(off ?? {});
  const heads = ((copy[kind] ??= {})[layer] ??= {});
  if (heads[head]) delete heads[head];
  else heads[head] = true;
  return headsOff(copy).length ? copy : null;
}

/** The heads that are off: [[kind, layer, head], ...]. @param {Off} off */
export function headsOff(off) {
  return Object.entries(off ?? {}).flatMap(([kind, layers]) =>
    Object.entries(layers).flatMap(([layer, heads]) => Object.keys(heads).map((head) => [kind, +layer, +head])),
  );
}

/** The mean weight, over some heads and rows of a map, of each group of columns. */
export function attended(map, heads, rows, groups) {
  const sums = groups.map(() => 0);
  for (const n of heads)
    for (const t of rows)
      groups.forEach((group, g) => {
        for (const s of group) sums[g] += map.weights[(n * map.rows + t) * map.columns + s];
      });
  return sums.map((sum) => sum / (heads.length * rows.length));
}

/** The share of the source in an explanation: positive effects of its words beside those of the prefix. */
export function sourceShare(effects, tokens) {
  const total = (rows) =>
    rows.reduce(
      (sum, row) =>
        sum +
        Math.max(
          0,
          tokens.reduce((s, t) => s + row[t], 0),
        ),
      0,
    );
  const ofSource = total(effects.source);
  const all = ofSource + total(effects.prefix);
  return all > 0.05 ? ofSource / all : null;
}

const UNSUPPORTED = 0.1; // nats that the whole source adds at least to a word that it supports

/** Whether the source adds nothing to a word: the model would write it after these words without any source. */
export function isUnsupported(effects, tokens) {
  return !!effects?.support && tokens.reduce((sum, t) => sum + effects.support[t], 0) < UNSUPPORTED;
}
