// @ts-check
// The normalisation rules of a SentencePiece model: a trie of byte sequences (a double array, as of darts-clone) and the
// texts that replace them.

const graphemes = (text) =>
  Array.from(new Intl.Segmenter("en", { granularity: "grapheme" }).segment(text), (s) => s.segment);

/** Returns the function that applies the rules. @param {string} base64 */
export function charsmap(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const size = view.getUint32(0, true);
  const units = new Uint32Array(size / 4);
  for (let i = 0; i < units.length; i++) units[i] = view.getUint32(4 + 4 * i, true);
  const replacements = bytes.subarray(4 + size);
  const encode = new TextEncoder();
  const decode = new TextDecoder();
  const replacement = (text) => {
    const at = firstMatch(units, encode.encode(text));
    return at === null ? null : decode.decode(replacements.subarray(at, replacements.indexOf(0, at)));
  };
  return (text) =>
    graphemes(text)
      .map((grapheme) => {
        const replaced = encode.encode(grapheme).length < 6 ? replacement(grapheme) : null;
        return replaced ?? [...grapheme].map((character) => replacement(character) ?? character).join("");
      })
      .join("");
}

/** The value of the shortest key of the trie that the bytes begin with, or null. */
function firstMatch(units, bytes) {
  const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
  let node = offset(units[0]);
  for (const byte of bytes) {
    if (byte === 0) return null;
    node ^= byte;
    const unit = units[node];
    if ((unit & 0x800000ff) >>> 0 !== byte) return null;
    node ^= offset(unit);
    if ((unit >>> 8) & 1) return units[node] & 0x7fffffff;
  }
  return null;
}
