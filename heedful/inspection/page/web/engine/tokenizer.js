// @ts-check
// What a tokenizer.json of the library `tokenizers` says, for the kinds that heedful trains or imports.
import { charsmap } from "./charsmap.js";

// Unicode's White_Space: JavaScript's \s has U+FEFF and lacks U+0085.
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const GPT2 = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
const WORDS = new RegExp(`[${WORD}]+|[^${WORD}${SPACE}]+`, "gu");
const BETWEEN = new RegExp(`[${SPACE}]+`, "u");
const ONE_SPACE = new RegExp(`[${SPACE}]`, "gu");
const TRIMMED = { strip_left: new RegExp(`^[${SPACE}]+`, "u"), strip_right: new RegExp(`[${SPACE}]+$`, "u") };
const CHINESE = new RegExp(
  "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b73f}\\u{2b740}-\\u{2b81f}" +
    "\\u{2b820}-\\u{2ceaf}\\uf900-\\ufaff\\u{2f800}-\\u{2fa1f}]",
  "gu",
);
const PUNCTUATION = /[!-/:-@[-`{-~]|\p{P}/gu;
const INVISIBLE = /[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Cn}\p{Co}]/gu;
const GPT2_SPACE = "\u0120";
const SENTENCE_PIECE_SPACE = "\u2581";
const MASK_TEXT = "[MASK]";
const encodeBytes = new TextEncoder();
const decodeBytes = new TextDecoder("utf-8", { ignoreBOM: true });

/** GPT-2's letters: each byte as a character that can be seen. */
const BYTE_LETTERS = (() => {
  const plain = [];
  const letters = new Array(256);
  for (const [a, b] of [
    [33, 126],
    [161, 172],
    [174, 255],
  ])
    for (let c = a; c <= b; c++) plain.push(c);
  let next = 256;
  for (let byte = 0; byte < 256; byte++) letters[byte] = String.fromCharCode(plain.includes(byte) ? byte : next++);
  return letters;
})();
const LETTER_BYTES = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));

export class Tokenizer {
  /** @param {any} data the content of a tokenizer.json */
  constructor(data) {
    const { model, added_tokens: added } = data;
    const entries = Array.isArray(model.vocab)
      ? model.vocab.map(([token], id) => [token, id])
      : Object.entries(model.vocab);
    this.ids = new Map(entries);
    this.tokens = [];
    for (const [token, id] of [...entries, ...added.map(({ content, id }) => [content, id])]) {
      this.tokens[id] = token;
      this.ids.set(token, id);
    }
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.kept = added.filter((token) => !token.special).map((token) => token.content); // never cut
    this.kind = model.type;
    const algorithm = ALGORITHMS[model.type];
    if (!algorithm) throw new Error(`The page cannot read a tokenizer of the model ${model.type}.`);
    this.pieceIds = algorithm(model, this.ids, this.special);
    this.normalise = normaliser(data.normalizer);
    this.cut = cutter(data.pre_tokenizer);
    this.decoders = !data.decoder ? [] : data.decoder.type === "Sequence" ? data.decoder.decoders : [data.decoder];
    this.prefixSpace = this.normalise("a").startsWith(" ");
    this.carriesSpaces = this.tokens.some(
      (token) => token.length > 1 && (token[0] === GPT2_SPACE || token[0] === SENTENCE_PIECE_SPACE),
    );
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    return this.#pieces(text).flatMap(({ ids }) => ids);
  }

  /** The pieces of a text, and the ids of each. @returns {{ piece: string, ids: number[] }[]} */
  #pieces(text) {
    if (!text) return [];
    const ordinary = (part) =>
      part ? this.cut(this.normalise(part)).map((piece) => ({ piece, ids: this.pieceIds(piece) })) : [];
    if (!this.kept.length) return ordinary(text);
    const escaped = this.kept.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    return text
      .split(new RegExp(`(${escaped.join("|")})`))
      .flatMap((part, i) => (i % 2 ? [{ piece: part, ids: [this.ids.get(part)] }] : ordinary(part)));
  }

  /** Encodes a text with [MASK] in it; a space before a mask belongs to the token that replaces it. */
  encodeMasked(text, mask) {
    const parts = text.split(MASK_TEXT);
    return parts.flatMap((part, i) => {
      const last = i === parts.length - 1;
      const ids = this.encode(!last && this.carriesSpaces && part.endsWith(" ") ? part.slice(0, -1) : part);
      return last ? ids : [...ids, mask];
    });
  }

  /** @param {number[]} ids */
  decode(ids) {
    let pieces = ids.filter((id) => !this.special.has(id)).map((id) => this.tokens[id]);
    if (!this.decoders.length) return pieces.join(" ");
    for (const step of this.decoders) pieces = DECODERS[step.type](pieces, step);
    return pieces.join("");
  }

  /** Each token as people read it. @param {number[]} ids */
  pieces(ids) {
    return ids.map((id) => {
      const token = this.tokens[id] ?? "";
      const spaced = this.prefixSpace && token.startsWith(GPT2_SPACE) ? " " : "";
      return this.special.has(id) ? token : spaced + this.decode([id]) || token;
    });
  }

  beginsWord(id) {
    const token = this.tokens[id] ?? "";
    if (this.special.has(id) || this.kind === "WordLevel") return true;
    if (this.kind === "WordPiece") return !token.startsWith("##");
    return `${GPT2_SPACE}${SENTENCE_PIECE_SPACE}\u010a\u0109`.includes(token[0]) || /^[!-/:-@[-`{-~]/.test(token);
  }

  /**
   * The characters of a composed text, from start to end, that each of its tokens stands for; none for a space.
   * @param {string} text @param {number[]} ids @returns {[number, number][]}
   */
  spans(text, ids) {
    const bytes = this.decoders.some((step) => step.type === "ByteLevel");
    const space = bytes ? GPT2_SPACE : SENTENCE_PIECE_SPACE;
    const visible = (letters) => letters.replace(ONE_SPACE, "").replaceAll(space, "");
    const owners = []; // for each byte or character of the normalised text, without spaces: where its letter stands
    let position = 0;
    for (const letter of text) {
      const written = visible(this.normalise(letter));
      const units = bytes ? encodeBytes.encode(written).length : written.length;
      for (let i = 0; i < units; i++) owners.push([position, position + letter.length]);
      position += letter.length;
    }
    const pieces = this.#pieces(text);
    const same = pieces.reduce((sum, piece) => sum + piece.ids.length, 0) === ids.length;
    let unit = 0;
    return (same ? pieces : [{ piece: null, ids }]).flatMap((one) => {
      const isKept = one.piece !== null && this.kept.includes(one.piece);
      const letters = bytes && isKept ? asLetters(one.piece) : one.piece;
      const total = letters === null ? owners.length - unit : visible(letters).length;
      const sizes = isKept ? [total] : this.#sizes(one.ids, total, visible);
      let next = unit;
      unit += total;
      return sizes.map((size) => {
        const [first, last] = [owners[next], owners[next + size - 1]];
        next += size;
        return /** @type {[number, number]} */ (size && first && last ? [first[0], last[1]] : [0, 0]);
      });
    });
  }

  /** How many letters of a piece each of its tokens stands for; an unknown token stands for what is left. */
  #sizes(ids, total, visible) {
    const sizes = ids.map((id) =>
      this.special.has(id) ? 0 : visible(this.tokens[id] ?? "").replace(/^##(?=.)/, "").length,
    );
    const unknown = ids.filter((id) => this.special.has(id)).length;
    let left = Math.max(0, total - sizes.reduce((sum, size) => sum + size, 0));
    return sizes.map((size, i) => {
      if (!this.special.has(ids[i])) return size;
      const share = Math.ceil(left / unknown);
      left -= Math.min(left, share);
      return share;
    });
  }

  /** Places of tokens, grouped into words: [[0, 1], [2], ...]. @param {number[]} ids */
  words(ids) {
    const groups = [];
    ids.forEach((id, i) => (i && !this.beginsWord(id) ? groups.at(-1).push(i) : groups.push([i])));
    return groups;
  }
}

/** By the type of a tokenizer's model: a function from a piece of text to its ids. */
const ALGORITHMS = {
  BPE(model, ids) {
    const ranks = new Map(
      model.merges.map((pair, rank) => [Array.isArray(pair) ? pair.join("\n") : pair.replace(" ", "\n"), rank]),
    );
    return (piece) =>
      merged([...piece], ranks)
        .map((token) => ids.get(token))
        .filter((id) => id !== undefined);
  },
  Unigram(model, ids, special) {
    const scores = model.vocab.map(([, score]) => score);
    const lowest = scores.reduce((least, score) => (score > -1e8 && score < least ? score : least), Infinity);
    const longest = model.vocab.reduce((length, [token]) => Math.max(length, token.length), 0);
    return (piece) =>
      mostLikely([...piece], { ids, special, scores, longest, unknown: model.unk_id, lowest: lowest - 10 });
  },
  WordPiece(model, ids) {
    return (piece) => longestFirst([...piece], model, ids);
  },
  WordLevel(model, ids) {
    return (piece) => [ids.get(piece) ?? ids.get(model.unk_token)];
  },
};

/** Byte-pair encoding: merges the pair of the lowest rank until none is left. */
function merged(parts, ranks) {
  for (;;) {
    let lowest = Infinity;
    let at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(`${parts[i]}\n${parts[i + 1]}`);
      if (rank < lowest) {
        lowest = rank;
        at = i;
      }
    }
    if (at < 0) return parts;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
}

/** Unigram: the segmentation of the highest score (Viterbi); neighbouring unknown characters become one token. */
function mostLikely(letters, { ids, special, scores, longest, unknown, lowest }) {
  const n = letters.length;
  const score = new Array(n + 1).fill(-Infinity);
  const from = [];
  const which = [];
  score[0] = 0;
  for (let start = 0; start < n; start++) {
    const offer = (end, value, id) => {
      if (value > score[end]) {
        score[end] = value;
        from[end] = start;
        which[end] = id;
      }
    };
    let single = false;
    let piece = "";
    for (let end = start + 1; end <= Math.min(n, start + longest); end++) {
      piece += letters[end - 1];
      const id = ids.get(piece);
      if (id === undefined || special.has(id)) continue;
      offer(end, score[start] + scores[id], id);
      single ||= end === start + 1;
    }
    if (!single && unknown !== null) offer(start + 1, score[start] + lowest, unknown);
  }
  const tokens = [];
  for (let end = n; end > 0; end = from[end]) {
    if (!(which[end] === unknown && tokens[0] === unknown)) tokens.unshift(which[end]);
  }
  return tokens;
}

/** WordPiece: the longest token that fits, again and again; a word that cannot be spelled is unknown. */
function longestFirst(
  letters,
  { unk_token: unknown, max_input_chars_per_word: maxLetters, continuing_subword_prefix: within },
  ids,
) {
  const tokens = [];
  if (letters.length > maxLetters) return [ids.get(unknown)];
  for (let start = 0; start < letters.length;) {
    let end = letters.length;
    let id;
    for (; end > start; end--) {
      id = ids.get((start ? within : "") + letters.slice(start, end).join(""));
      if (id !== undefined) break;
    }
    if (id === undefined) return [ids.get(unknown)];
    tokens.push(id);
    start = end;
  }
  return tokens;
}

const lower = (text) => Array.from(text, (c) => c.toLowerCase()).join(""); // letter by letter, as the library does
const inTurn = (functions) => (text) => functions.reduce((before, step) => step(before), text);

const NORMALISERS = {
  Sequence: ({ normalizers }) => inTurn(normalizers.map(normaliser)),
  Lowercase: () => lower,
  NFC: () => (text) => text.normalize("NFC"),
  NFD: () => (text) => text.normalize("NFD"),
  NFKC: () => (text) => text.normalize("NFKC"),
  NFKD: () => (text) => text.normalize("NFKD"),
  Prepend:
    ({ prepend }) =>
    (text) =>
      text ? prepend + text : text,
  Precompiled: ({ precompiled_charsmap: map }) => charsmap(map),
  Strip: (step) =>
    inTurn(
      ["strip_left", "strip_right"]
        .filter((side) => step[side])
        .map((side) => (text) => text.replace(TRIMMED[side], "")),
    ),
  Replace: ({ pattern, content }) => {
    const expression = pattern.Regex === undefined ? null : new RegExp(pattern.Regex, "gu");
    return (text) =>
      expression ? text.replace(expression, () => content) : text.replaceAll(pattern.String, () => content);
  },
  BertNormalizer: (step) => (text) => {
    if (step.clean_text) text = text.replace(INVISIBLE, "").replace(ONE_SPACE, " ");
    if (step.handle_chinese_chars) text = text.replace(CHINESE, " $& ");
    if (step.strip_accents ?? step.lowercase) text = text.normalize("NFD").replace(/\p{Mn}/gu, "");
    return step.lowercase ? lower(text) : text;
  },
};

function normaliser(step) {
  if (!step) return (text) => text;
  if (!NORMALISERS[step.type]) throw new Error(`The page cannot read a tokenizer with the normalizer ${step.type}.`);
  return NORMALISERS[step.type](step);
}

const asLetters = (piece) => Array.from(encodeBytes.encode(piece), (byte) => BYTE_LETTERS[byte]).join("");

/** By type: functions from a text to its pieces. */
const CUTTERS = {
  ByteLevel:
    ({ use_regex: cuts = true }) =>
    (text) =>
      (cuts ? (text.match(GPT2) ?? []) : [text]).map(asLetters),
  Whitespace: () => (text) => text.match(WORDS) ?? [],
  BertPreTokenizer: () => (text) =>
    text
      .split(BETWEEN)
      .flatMap((word) => word.replace(PUNCTUATION, "\0$&\0").split("\0"))
      .filter(Boolean),
  Split: ({ pattern }) => {
    const isolated = new RegExp(`(?<isolated>${pattern.Regex})`, "gu");
    return (text) => {
      const pieces = [];
      let at = 0;
      for (const match of text.matchAll(isolated)) {
        pieces.push(text.slice(at, match.index), match[0]);
        at = match.index + match[0].length;
      }
      return [...pieces, text.slice(at)].filter(Boolean);
    };
  },
  Metaspace:
    ({ replacement, prepend_scheme: scheme, split }) =>
    (text) => {
      const marked = text.replaceAll(" ", replacement);
      const spaced = scheme !== "never" && !marked.startsWith(replacement) ? replacement + marked : marked;
      return split === false ? [spaced] : spaced.split(new RegExp(`(?=${replacement})`, "u")).filter(Boolean);
    },
  Sequence: ({ pretokenizers }) => {
    const steps = pretokenizers.map(cutter);
    return (text) => steps.reduce((pieces, step) => pieces.flatMap(step), [text]);
  },
};

function cutter(step) {
  if (!step) return (text) => [text];
  if (!CUTTERS[step.type]) throw new Error(`The page cannot read a tokenizer with the pre-tokenizer ${step.type}.`);
  return CUTTERS[step.type](step);
}

/** By type: functions from pieces to pieces. */
const DECODERS = {
  ByteLevel: (pieces) => {
    const bytes = [...pieces.join("")].flatMap((letter) => LETTER_BYTES.get(letter) ?? [...encodeBytes.encode(letter)]);
    return [decodeBytes.decode(Uint8Array.from(bytes))];
  },
  Fuse: (pieces) => [pieces.join("")],
  Strip: (pieces, { content, start }) =>
    pieces.map((piece) => {
      for (let i = 0; i < start && piece.startsWith(content); i++) piece = piece.slice(1);
      return piece;
    }),
  WordPiece: (pieces, { cleanup = true }) => [
    pieces
      .map((piece, i) => {
        const text = !i ? piece : piece.startsWith("##") ? piece.slice(2) : ` ${piece}`;
        return cleanup ? tidied(text) : text;
      })
      .join(""),
  ],
  Metaspace: (pieces, { replacement, prepend_scheme: scheme }) =>
    pieces.map((piece, i) => {
      const text = piece.replaceAll(replacement, " ");
      return i === 0 && scheme !== "never" && text.startsWith(" ") ? text.slice(1) : text;
    }),
};

const CONTRACTIONS = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];
const tidied = (text) => CONTRACTIONS.reduce((before, [from, to]) => before.replaceAll(from, to), text);
