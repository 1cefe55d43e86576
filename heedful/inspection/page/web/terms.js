// @ts-check
// Terms that a translation should have, as in heedful/data/glossary.py, data/markup/placing.py and inference/aligner.py.

/** @typedef {[string, string]} Term a term and its translation */
/** @typedef {{ start: number, end: number, result: string }} Place a term in a source, and its translation */
/** @typedef {{ start: number, end: number }} Span characters of a text */
/** @typedef {{ text: string, gap: string, row: number[], place?: Place, isTerm?: boolean }} Written a word of the result */

const UNSPACED = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u9fff\\uf900-\\ufaff";
const LETTER = `(?:(?![${UNSPACED}])[\\p{L}\\p{N}_])`;
const IN_WORD = `(?:(?![${UNSPACED}])[\\p{L}\\p{N}_\\p{Mn}\\p{Mc}])`;
const BEGINS = `(?:(?=[${UNSPACED}])|(?<!${IN_WORD}))`;
const ENDS = `(?:(?<=[${UNSPACED}])|(?!${IN_WORD}))`;
const WORD = new RegExp(`[${UNSPACED}]|${LETTER}+(?:['\u2019-]${LETTER}+)*|[^\\p{L}\\p{N}_\\s]`, "gu");
const WORD_CHARACTER = new RegExp(IN_WORD, "u");
const ALPHANUMERIC = /[\p{L}\p{N}]/u;
const SOFT_TERM = "\u27e6+\u27e7"; // the token before each term that follows a source
const HALF = 0.5; // share of a word's attention above which it belongs to a term
const [STEM, SHORTEST_STEM] = [2 / 3, 4]; // share of a word, and letters, with which all its forms are expected to begin
const LONGEST_ENDING = 3; // letters that a form may have after a whole word

const composed = (text) => text.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const capitalised = (text) => text.replace(/^./u, (letter) => letter.toUpperCase());

/**
 * The terms in lines, each a term, a tab or an equals sign, and its translation.
 * @param {string} text @returns {Term[]}
 */
export function readTerms(text) {
  const lines = text.split("\n").map((line) => line.split(line.includes("\t") ? "\t" : "=").map(composed));
  return /** @type {Term[]} */ (lines.filter((columns) => columns.length === 2 && columns.every(Boolean)));
}

/** The lines of terms, see `readTerms`. @param {Term[]} terms */
export const linesOf = (terms) => terms.map((term) => term.join("\t")).join("\n");

/**
 * Where terms stand in a composed text: as whole words, the longest first, as written or with a capital first letter.
 * @param {string} text @param {Term[]} terms @param {string[]} patterns of what is protected, where no term counts
 * @returns {Place[]}
 */
export function placesOf(text, terms, patterns = []) {
  if (!terms.length) return [];
  const results = new Map(terms);
  const lowerCase = new Map(terms.map(([term]) => [term.toLowerCase(), term]));
  const longestFirst = [...results.keys()].sort((a, b) => b.length - a.length);
  const forms = longestFirst.map((term) => escaped(term).replaceAll(" ", "\\s+")).join("|");
  const places = [];
  for (const match of text.matchAll(new RegExp(`${BEGINS}(?:${forms})${ENDS}`, "giu"))) {
    const written = composed(match[0]);
    const term = results.has(written) ? written : lowerCase.get(written.toLowerCase());
    // Another case is another word ("Polish", "polish"), but at the beginning of a sentence.
    if (term && [term, capitalised(term)].includes(written)) {
      places.push({ start: match.index, end: match.index + match[0].length, result: results.get(term) ?? "" });
    }
  }
  const kept = patterns
    .flatMap((pattern) => [...text.matchAll(new RegExp(pattern, "g"))])
    .map((match) => ({ start: match.index, end: match.index + match[0].length }));
  return places.filter(({ start, end }) => kept.every((span) => end <= span.start || start >= span.end));
}

/** A source followed by the terms of its translation, for a model that was trained so. @param {Place[]} places */
export const withSoftTerms = (source, places) =>
  source + places.map(({ result }) => ` ${SOFT_TERM} ${result}`).join("");

/**
 * The words of a text; each of some spans, which are in order, is one word.
 * @param {string} text @param {Span[]} spans @returns {Span[]}
 */
export function wordsOf(text, spans = []) {
  const words = [];
  let end = 0;
  for (const span of [...spans, { start: text.length, end: text.length }]) {
    for (const { index, 0: word } of text.slice(end, span.start).matchAll(WORD)) {
      words.push({ start: end + index, end: end + index + word.length });
    }
    if (span.end > span.start) words.push(span);
    end = span.end;
  }
  return words;
}

/**
 * Which terms a translation has, and which it lacks.
 * @param {string} source @param {Place[]} places @param {string} translation
 * @param {boolean} readTerms whether the model reads the terms, and so may inflect them
 * @returns {{ matched: (Span & { place: Place })[], missing: Place[], forms: Span[] }} `forms`: other forms of terms
 */
export function matchTerms(source, places, translation, readTerms = false) {
  /** @type {(Span & { place: Place })[]} */
  const matched = [];
  /** @type {Span[]} */
  const forms = [];
  const missing = [];
  for (const place of places) {
    const size = place.result.length;
    const earlier = occurrences(source, place, source).filter((start) => start < place.start).length;
    const free = occurrences(translation, place, source)
      .map((start, index) => ({ start, distance: Math.abs(index - earlier) }))
      .filter(({ start }) => isFree({ start, end: start + size }, matched))
      .sort((a, b) => a.distance - b.distance || a.start - b.start);
    if (free.length) matched.push({ start: free[0].start, end: free[0].start + size, place });
    else missing.push(place);
  }
  for (const place of readTerms ? [...missing] : []) {
    const form = inflected(translation, place.result, [...matched, ...forms]);
    if (!form) continue;
    missing.splice(missing.indexOf(place), 1);
    forms.push(form);
  }
  return { matched: matched.sort((a, b) => a.start - b.start), missing, forms };
}

/** Where a text has the translation of a term: in any case, with an ending, not within a word. */
function occurrences(text, place, source) {
  const folds = text.toLowerCase().length === text.length;
  const [searched, wanted] = folds ? [text.toLowerCase(), place.result.toLowerCase()] : [text, place.result];
  const glued = inWord(source[place.start - 1]);
  const starts = [];
  for (let start = searched.indexOf(wanted); start >= 0; start = searched.indexOf(wanted, start + 1)) {
    if (glued || !inWord(place.result[0]) || !inWord(text[start - 1])) starts.push(start);
  }
  return starts;
}

/** @param {Span} span @param {Span[]} taken */
const isFree = (span, taken) => taken.every((one) => span.end <= one.start || span.start >= one.end);

/**
 * Where a text has another form of a term outside of some spans: words that begin as those of the term do.
 * @param {string} text @param {string} term @param {Span[]} taken @returns {Span | undefined}
 */
function inflected(text, term, taken) {
  const words = wordsOf(text);
  const parts = wordsOf(term).map(({ start, end }) => term.slice(start, end));
  const forms = words
    .slice(parts.length - 1)
    .map((last, first) => ({ start: words[first].start, end: last.end, first }));
  return forms.find(
    (form) =>
      isFree(form, taken) &&
      parts.every((part, index) => {
        const { start, end } = words[form.first + index];
        const word = text.slice(start, end);
        // A sentence begins with a capital letter.
        const begins = form.first + index === 0 && isLower(part[0]);
        return isForm(begins ? word[0].toLowerCase() + word.slice(1) : word, part);
      }),
  );
}

const isLower = (letter) => letter.toLowerCase() === letter && letter.toUpperCase() !== letter;
const isUpper = (letter) => letter.toUpperCase() === letter && letter.toLowerCase() !== letter;

/** Whether a word may be a form of another one: it has an ending more, or begins like it. Nouns have capital letters. */
function isForm(written, word) {
  if (isUpper(written[0]) !== isUpper(word[0])) return false;
  const [one, other] = [folded(written), folded(word)];
  const size = Math.max(SHORTEST_STEM, Math.ceil(STEM * Math.max(one.length, other.length)));
  const longer = one.startsWith(other) && one.length - other.length <= LONGEST_ENDING;
  return longer || (Math.min(one.length, other.length) >= size && one.slice(0, size) === other.slice(0, size));
}

/** A word without regard to case and accents, which may change with its form. @param {string} word */
const folded = (word) => word.toLowerCase().replaceAll("\u00df", "ss").normalize("NFD").replace(/\p{M}/gu, "");

const inWord = (character) => WORD_CHARACTER.test(character ?? "");

/**
 * A translation with its terms: those that it lacks replace the words that the model wrote for them.
 * @param {string} source @param {Place[]} places @param {string} translation
 * @param {{ matched: (Span & { place: Place })[], missing: Place[], forms: Span[] }} terms see `matchTerms`
 * @param {number[][] | null} alignment of the words of the translation, see `alignedWords`; null: no term is missing
 */
export function placeTerms(source, places, translation, { matched, missing, forms }, alignment) {
  const sourceWords = wordsOf(source, places);
  const indexOf = (place) => sourceWords.findIndex((word) => word.start === place.start);
  const oneHot = (place) => sourceWords.map((_, index) => Number(index === indexOf(place)));
  let end = 0;
  /** @type {Written[]} */
  const written = wordsOf(translation, matched).map((word, index) => {
    const gap = translation.slice(end, word.start);
    const text = translation.slice(word.start, word.end);
    end = word.end;
    const place = matched.find((one) => one.start === word.start)?.place;
    const row = alignment?.[index] ?? sourceWords.map(() => 0);
    if (!place) return { text, gap, row, isTerm: !isFree(word, forms) };
    const isCapital = text[0] !== text[0].toLowerCase();
    return { text: isCapital ? capitalised(place.result) : place.result, gap, row: oneHot(place), place };
  });
  for (const place of missing) insert(written, place, indexOf(place), oneHot(place), source);
  separate(written, source);
  if (written.length) written[0].gap = "";
  return written.map(({ gap, text }) => gap + text).join("");
}

/** Puts a term in the place of the words that the model wrote for it, or beside the translation of its neighbour. */
function insert(written, place, index, row, source) {
  const scores = written.map((one) =>
    one.place || one.isTerm || !ALPHANUMERIC.test(one.text) ? -1 : one.row[index] - HALF,
  );
  const [start, stop] = bestRange(scores);
  if (stop > start && scores.slice(start, stop).reduce((sum, score) => sum + score, 0) > 0) {
    written.splice(start, stop - start, { text: place.result, gap: written[start].gap, row, place });
    return;
  }
  const rows = written.map((one) => one.row);
  const position = beside(rows, index);
  const gap = position && /\s/.test(source[place.start - 1] ?? "") ? " " : "";
  written.splice(position, 0, { text: place.result, gap, row, place });
}

/** Puts a space between a term and a letter before it, unless the source has a letter there too. */
function separate(written, source) {
  written.forEach((one, index) => {
    const before = written[index - 1];
    if (!before || one.gap || !one.place || ALPHANUMERIC.test(source[one.place.start - 1] ?? "")) return;
    if (ALPHANUMERIC.test(before.text.at(-1) ?? "")) one.gap = " ";
  });
}

/** The range [start, stop] with the largest sum; the best single word if all are negative. @param {number[]} scores */
function bestRange(scores) {
  let best = -Infinity;
  let range = [0, 0];
  let total = 0;
  let start = 0;
  scores.forEach((score, index) => {
    if (total <= 0) {
      total = 0;
      start = index;
    }
    total += score;
    if (total > best) {
      best = total;
      range = [start, index + 1];
    }
  });
  return range;
}

/** Before which word a term belongs, by the source's word before it, or the one after it. @param {number[][]} rows */
function beside(rows, index) {
  if (!rows.length || !index) return 0;
  const strongest = (column) => {
    const weights = rows.map((row) => row[column] ?? 0);
    const largest = Math.max(...weights);
    return largest > 0 ? weights.indexOf(largest) : -1;
  };
  const before = strongest(index - 1);
  if (before >= 0) return before + 1;
  const after = strongest(index + 1);
  return after >= 0 ? after : rows.length;
}

/**
 * How each word of a translation belongs to each word of its source, by the heads that align best.
 * @param {any[]} layers the maps of cross-attention
 * @param {{ heads: [number, number][], read_as: string }} heads each as [layer, head], from 0
 * @param {{ words: Span[], spans: [number, number][] }} source its words, and the characters of its tokens
 * @param {{ words: Span[], spans: [number, number][] }} target
 * @returns {number[][]} for each word of the target a row, whose sum is 1
 */
export function alignedWords(layers, { heads, read_as }, source, target) {
  const shift = read_as === "input" ? 1 : 0;
  const ofSource = shares(source);
  const ofTarget = shares(target).map((row) => {
    const sum = row.reduce((total, share) => total + share, 0);
    return row.map((share) => share / Math.max(sum, 1e-9));
  });
  const tokens = source.spans.map((_, s) =>
    target.spans.map((_, t) => {
      let weight = 0;
      for (const [layer, head] of heads) {
        const { weights, rows, columns } = layers[layer];
        if (t + shift < rows && s < columns) weight += weights[(head * rows + t + shift) * columns + s];
      }
      return weight / heads.length;
    }),
  );
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const words = ofTarget.map((row) =>
    ofSource.map((column) =>
      dot(
        column,
        tokens.map((weights) => dot(row, weights)),
      ),
    ),
  );
  const totals = source.words.map((_, s) =>
    Math.max(
      1e-9,
      words.reduce((sum, row) => sum + row[s], 0),
    ),
  );
  return words.map((row) => {
    const balanced = row.map((weight, s) => weight / totals[s]);
    const sum = Math.max(
      1e-9,
      balanced.reduce((total, weight) => total + weight, 0),
    );
    return balanced.map((weight) => weight / sum);
  });
}

/** Which share of each token belongs to each word: a row for each word. */
function shares({ words, spans }) {
  const overlaps = words.map((word) =>
    spans.map(([start, end]) => Math.max(0, Math.min(word.end, end) - Math.max(word.start, start))),
  );
  const totals = spans.map((_, token) =>
    Math.max(
      1,
      overlaps.reduce((sum, row) => sum + row[token], 0),
    ),
  );
  return overlaps.map((row) => row.map((overlap, token) => overlap / totals[token]));
}
