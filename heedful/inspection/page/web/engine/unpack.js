// @ts-check
// The weights of the page: base64 of one block of bytes; a table says which tensor lies where, in which type.

/** @typedef {{ name: string, shape: number[], type: string, at: number, axis?: number, scales?: number }} Entry */

/** @param {string} text */
export function fromBase64(text) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** All 65,536 half-precision numbers: a table is faster than arithmetic, and needs nothing new of a browser. */
function halves() {
  const table = new Float32Array(65536);
  for (let i = 0; i < 65536; i++) {
    const exponent = (i >> 10) & 31;
    const fraction = i & 1023;
    const sign = i >> 15 ? -1 : 1;
    const normal = (1 + fraction / 1024) * 2 ** (exponent - 15);
    const special = fraction ? NaN : Infinity;
    table[i] = sign * (exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? special : normal);
  }
  return table;
}

/** @param {Uint8Array} bytes @param {Entry[]} entries */
export function unpack(bytes, entries) {
  const { buffer, byteOffset } = bytes;
  const part = (at, count) => buffer.slice(byteOffset + at, byteOffset + at + count);
  /** @type {{ [name: string]: { shape: number[], data: Float32Array } }} */
  const tensors = {};
  let table = null;
  for (const { name, shape, type, at, axis = 0, scales = 0 } of entries) {
    const count = shape.reduce((a, b) => a * b, 1);
    let data;
    if (type === "float32") data = new Float32Array(part(at, 4 * count));
    else if (type === "float16") {
      table ??= halves();
      data = Float32Array.from(new Uint16Array(part(at, 2 * count)), (half) => table[half]);
    } else if (type === "int8") {
      const values = new Int8Array(part(at, count));
      const scale = new Float32Array(part(scales, 4 * shape[axis]));
      data = new Float32Array(count);
      const [rows, columns] = shape;
      for (let r = 0, i = 0; r < rows; r++)
        for (let c = 0; c < columns; c++, i++) data[i] = values[i] * scale[axis ? c : r];
    } else throw new Error(`Unknown type ${type} of the weight ${name}.`);
    tensors[name] = { shape, data };
  }
  return tensors;
}
