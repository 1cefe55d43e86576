// @ts-check
// The layers of heedful.layers, for one text at a time.
// Axes as in Python: T length, S keys, D d_model, N query heads, K key heads, H head size.
import { Arena } from "./arena.js";

/** @typedef {import("./arena.js").Dense} Dense */
/** @typedef {{ shape: number[], data: Float32Array }} Tensor */
/** @typedef {{ gain: Float32Array | null, bias: Float32Array | null, rms: boolean }} NormWeights */
/** @typedef {{ [head: number]: boolean }} HeadsOff */
/** @typedef {{ weights?: Float32Array, mixed?: Float32Array, values?: Float32Array, rows?: number, columns?: number }} Trace */
/** @typedef {{ keys: Float32Array, values: Float32Array }} KeysValues */

const LONGEST = 1024; // tokens that the memory of a page is laid out for at most

/** The number of blocks that have a kind of attention: `encoder`, `decoder` or `cross`. */
export function depth(options, kind) {
  return options[kind === "encoder" ? "encoder_layers" : "decoder_layers"] ?? options.num_layers;
}

/** The weights of a model, laid out in an arena, and what all of its layers share. */
export class Weights {
  /**
   * @param {any} options the section [model] of a config
   * @param {{ [name: string]: Tensor }} tensors by the names in model.safetensors
   * @param {boolean} simd
   */
  constructor(options, tensors, simd) {
    let total = 0;
    let widest = 0;
    for (const { data, shape } of Object.values(tensors)) {
      total += 4 * (data.length + 4 * shape[0]) + 64;
      widest = Math.max(widest, ...shape);
    }
    const { d_model: width, d_ff: inner, num_heads: heads, head_dim: size } = options;
    const layers = Math.max(depth(options, "encoder"), depth(options, "decoder"));
    const each = (6 * layers + 12) * width + 12 * heads * (size || width / heads) + 3 * inner + 2 * widest; // floats a token
    this.options = options;
    this.tensors = tensors;
    this.width = width;
    this.arena = new Arena(total + (1 << 20) + 4 * each * Math.min(options.max_length + 1, LONGEST), simd);
  }

  /** @param {string} name */
  has(name) {
    return name in this.tensors;
  }

  /** @param {string} name @param {number[]} [shape] @returns {Tensor} */
  tensor(name, shape) {
    const tensor = this.tensors[name];
    if (!tensor) throw new Error(`The model has no weight ${name}.`);
    if (shape && shape.join() !== tensor.shape.join()) {
      throw new Error(`The weight ${name} has the shape (${tensor.shape}); the model needs (${shape}).`);
    }
    return tensor;
  }

  /** @param {string} name @param {number[]} shape */
  array(name, shape) {
    const { data } = this.tensor(name, shape);
    const kept = this.arena.floats(data.length);
    kept.set(data);
    return kept;
  }

  /** @param {string} name @returns {NormWeights} */
  norm(name) {
    const part = (end) => (this.has(`${name}/${end}`) ? this.array(`${name}/${end}`, [this.width]) : null);
    return { gain: part("gamma") ?? part("scale"), bias: part("beta"), rms: this.options.norm === "rms" };
  }

  /** The norm of the queries or keys of each head, of the size H. @returns {NormWeights} */
  normOfHeads(name, size) {
    return { gain: this.array(`${name}/scale`, [size]), bias: null, rms: true };
  }

  /** A projection; its kernel (inputs, units) is turned, so that every sum runs along memory. @returns {Dense} */
  dense(name, inputs, units) {
    const { data } = this.tensor(`${name}/kernel`, [inputs, units]);
    const weight = this.arena.floats(inputs * (units + 3));
    for (let i = 0; i < inputs; i++) for (let n = 0; n < units; n++) weight[n * inputs + i] = data[i * units + n];
    return { weight, bias: this.#bias(name, units), inputs, units };
  }

  /** An embedding table (vocabulary, D), which is a projection too. @returns {Dense} */
  table(name) {
    const { data, shape } = this.tensor(`${name}/embeddings`);
    const [units, inputs] = shape;
    if (inputs !== this.width) throw new Error(`The table ${name} has the width ${inputs}, the model ${this.width}.`);
    const weight = this.arena.floats(inputs * (units + 3));
    weight.set(data);
    return { weight, bias: this.#bias(name, units), inputs, units };
  }

  #bias(name, units) {
    const bias = this.arena.floats(units + 3);
    if (this.has(`${name}/bias`)) bias.set(this.tensor(`${name}/bias`, [units]).data);
    return bias;
  }
}

/** Embeds ids, adds positions, and normalises if the model does. */
export class Input {
  /** @param {Weights} weights @param {string} name such as text_input @param {Dense} table */
  constructor(weights, name, table) {
    const { options, width } = weights;
    this.weights = weights;
    this.table = table;
    this.width = width;
    this.learned =
      options.positions === "learned"
        ? weights.array(`${name}/positions/embeddings`, [options.max_length, width])
        : null;
    this.norm = options.embedding_norm ? weights.norm(`${name}/norm`) : null;
    this.scale = options.embedding_scale ? Math.sqrt(width) : 1;
  }

  /** Returns (T, D). @param {number[]} ids @param {number} from position of the first */
  call(ids, from = 0) {
    const {
      weights: { options, arena },
      table,
      width,
      learned,
    } = this;
    if (learned && from + ids.length > options.max_length) throw new Error("The text is longer than the model reads.");
    const x = arena.floats(ids.length * width);
    ids.forEach((id, t) => {
      if (!(id >= 0 && id < table.units)) throw new Error(`There is no token ${id}.`);
      for (let i = 0; i < width; i++) x[t * width + i] = table.weight[id * width + i] * this.scale;
      if (learned) for (let i = 0; i < width; i++) x[t * width + i] += learned[(from + t) * width + i];
      else if (options.positions.startsWith("sinusoidal")) {
        addSinusoid(x.subarray(t * width, (t + 1) * width), from + t, options.positions);
      }
    });
    return this.norm ? normalise(this.norm, x, ids.length, options.norm_epsilon, x) : x;
  }
}

/** Attention with its projections, self or cross, as `MultiHeadAttention`. */
export class Attention {
  /** @param {Weights} weights @param {string} name @param {boolean} cross */
  constructor(weights, name, cross) {
    const { options, width } = weights;
    this.weights = weights;
    this.heads = options.num_heads;
    this.keyHeads = options.num_kv_heads || options.num_heads;
    this.size = options.head_dim || width / options.num_heads;
    this.queryWidth = this.heads * this.size;
    this.keyWidth = this.keyHeads * this.size;
    const input = ["all", "input"].includes(options.attention_projections);
    const dense = (part, units, inputs = width) => weights.dense(`${name}/${part}`, inputs, units);
    this.joint = input && !cross ? dense("query_key_value", this.queryWidth + 2 * this.keyWidth) : null;
    this.query = input && cross ? dense("query", this.queryWidth) : null;
    this.pair = input && cross ? dense("key_value", 2 * this.keyWidth) : null;
    this.output = ["all", "output"].includes(options.attention_projections)
      ? dense("output", width, this.queryWidth)
      : null;
    const norm = (part) => (options.qk_norm ? weights.normOfHeads(`${name}/${part}_norm`, this.size) : null);
    this.queryNorm = norm("query");
    this.keyNorm = norm("key");
    this.rotaryBase = !cross && options.positions === "rotary" ? (options.rotary_base ?? 10000) : 0; // 0: not rotary
  }

  /** An empty key/value cache for `places` tokens. @returns {KeysValues} */
  emptyCache(places) {
    return { keys: new Float32Array(places * this.keyWidth), values: new Float32Array(places * this.keyWidth) };
  }

  /**
   * Self-attention of x (T, D), whose keys and values are written to `past` at `from`.
   * @param {Float32Array} x @param {number} T @param {number} from @param {KeysValues} past @param {boolean} causal
   * @param {HeadsOff | undefined} off @param {Trace | undefined} trace
   */
  self(x, T, from, past, causal, off, trace) {
    const { arena, width } = this.weights;
    const { queryWidth, keyWidth, size } = this;
    const all = this.joint ? arena.linear(x, T, this.joint) : thrice(arena, x, T, width);
    const stride = queryWidth + 2 * keyWidth;
    for (let t = 0; t < T; t++) {
      const row = all.subarray(t * stride, (t + 1) * stride);
      this.#normaliseHeads(this.queryNorm, row.subarray(0, queryWidth));
      this.#normaliseHeads(this.keyNorm, row.subarray(queryWidth, queryWidth + keyWidth));
      for (let head = 0; this.rotaryBase && head < this.heads + this.keyHeads; head++) {
        rotate(row, head * size, size, from + t, this.rotaryBase);
      }
      past.keys.set(row.subarray(queryWidth, queryWidth + keyWidth), (from + t) * keyWidth);
      past.values.set(row.subarray(queryWidth + keyWidth), (from + t) * keyWidth);
    }
    const seen = (t) => (causal ? from + t + 1 : from + T);
    return this.#project(this.#mix(all, stride, T, past, from + T, seen, off, trace), T);
  }

  /** Keys and values of a memory (S, D), which every cross-attention reuses. @returns {KeysValues} */
  remember(memory, S) {
    const { arena } = this.weights;
    const { keyWidth } = this;
    const cache = this.emptyCache(S);
    const both = this.pair ? arena.linear(memory, S, this.pair) : null;
    for (let s = 0; s < S; s++) {
      const row = (both ?? memory).subarray(s * keyWidth * (both ? 2 : 1), (s + 1) * keyWidth * (both ? 2 : 1));
      cache.keys.set(row.subarray(0, keyWidth), s * keyWidth);
      cache.values.set(row.subarray(both ? keyWidth : 0), s * keyWidth);
    }
    this.#normaliseHeads(this.keyNorm, cache.keys);
    return cache;
  }

  /** Cross-attention of x (T, D) to a memory of S places. */
  cross(x, T, memory, S, off, trace) {
    const query = this.query ? this.weights.arena.linear(x, T, this.query) : this.queryNorm ? x.slice() : x;
    this.#normaliseHeads(this.queryNorm, query);
    return this.#project(
      this.#mix(query, this.queryWidth, T, memory, S, () => S, off, trace),
      T,
    );
  }

  /** Normalises heads that follow each other, in place, if there is a norm. @param {NormWeights | null} norm */
  #normaliseHeads(norm, heads) {
    if (norm) normalise(norm, heads, heads.length / this.size, this.weights.options.norm_epsilon, heads);
  }

  #project(mixed, T) {
    return this.output ? this.weights.arena.linear(mixed, T, this.output) : mixed;
  }

  /** Queries (T, stride) read keys and values; query t sees the first `seen(t)` of them. Returns (T, N H). */
  #mix(query, stride, T, { keys, values }, S, seen, off, trace) {
    const { heads, keyHeads, size, keyWidth, queryWidth } = this;
    const shared = heads / keyHeads;
    const mixed = this.weights.arena.floats(T * queryWidth);
    const weights = new Float32Array(S);
    if (trace) Object.assign(trace, { weights: new Float32Array(heads * T * S), rows: T, columns: S });
    for (let n = 0; n < heads; n++) {
      const head = Math.floor(n / shared) * size;
      for (let t = 0; t < T; t++) {
        const count = seen(t);
        const out = t * queryWidth + n * size;
        attend(query, t * stride + n * size, keys, head, size, keyWidth, count, weights);
        for (let i = 0; i < size; i++) mixed[out + i] = 0;
        for (let s = 0; s < count; s++) {
          const weight = weights[s];
          if (trace) trace.weights[(n * T + t) * S + s] = weight;
          if (off?.[n]) continue;
          for (let i = 0, v = s * keyWidth + head; i < size; i++, v++) mixed[out + i] += weight * values[v];
        }
      }
    }
    if (trace?.keep) Object.assign(trace, { mixed: mixed.slice(), values: values.slice(0, S * keyWidth) });
    return mixed;
  }
}

/** Fills `weights` with the softmax of a query's products with `count` keys, scaled by 1 / sqrt(H). */
function attend(query, at, keys, head, size, keyWidth, count, weights) {
  const scale = 1 / Math.sqrt(size);
  let largest = -Infinity;
  let sum = 0;
  for (let s = 0; s < count; s++) {
    let score = 0;
    for (let i = 0, k = s * keyWidth + head; i < size; i++, k++) score += query[at + i] * keys[k];
    weights[s] = score * scale;
    if (weights[s] > largest) largest = weights[s];
  }
  for (let s = 0; s < count; s++) sum += weights[s] = Math.exp(weights[s] - largest);
  for (let s = 0; s < count; s++) weights[s] /= sum;
}

/** An encoder or decoder block. */
export class Block {
  /** @param {Weights} weights @param {string} name @param {boolean} cross */
  constructor(weights, name, cross) {
    const { options, width } = weights;
    this.weights = weights;
    this.attention = new Attention(weights, `${name}/self_attention`, false);
    this.attentionNorm = weights.norm(`${name}/self_attention_residual/norm`);
    this.crossAttention = cross ? new Attention(weights, `${name}/cross_attention`, true) : null;
    this.crossNorm = cross ? weights.norm(`${name}/cross_attention_residual/norm`) : null;
    this.inner = weights.dense(`${name}/feed_forward/inner`, width, options.d_ff);
    this.outer = weights.dense(`${name}/feed_forward/outer`, options.d_ff, width);
    const gated = ["geglu", "swiglu"].includes(options.activation);
    this.gate = gated ? weights.dense(`${name}/feed_forward/gate`, width, options.d_ff) : null;
    this.feedNorm = weights.norm(`${name}/feed_forward_residual/norm`);
  }

  /** Applies `sublayer` with its residual connection and norm. */
  residual(norm, x, rows, sublayer) {
    const { arena, options, width } = this.weights;
    const pre = options.norm_position === "pre";
    const y = arena.floats(rows * width);
    const mark = arena.mark();
    const read = pre ? normalise(norm, x, rows, options.norm_epsilon, arena.floats(rows * width)) : x;
    const change = sublayer(read);
    for (let i = 0; i < y.length; i++) y[i] = x[i] + change[i];
    arena.release(mark);
    return pre ? y : normalise(norm, y, rows, options.norm_epsilon, y);
  }

  /** @param {Float32Array} x (rows, D) */
  feed(x, rows) {
    const { arena, options } = this.weights;
    const activation = ACTIVATIONS[options.activation];
    return this.residual(this.feedNorm, x, rows, (read) => {
      const hidden = arena.linear(read, rows, this.inner);
      const count = rows * options.d_ff;
      for (let i = 0; i < count; i++) hidden[i] = activation(hidden[i]);
      if (this.gate) {
        const gate = arena.linear(read, rows, this.gate);
        for (let i = 0; i < count; i++) hidden[i] *= gate[i];
      }
      return arena.linear(hidden, rows, this.outer);
    });
  }
}

/** The blocks of an encoder or decoder, and the norm after the last one if norms come first. */
export class Stack {
  /** @param {Weights} weights @param {string} name encoder or decoder @param {boolean} cross */
  constructor(weights, name, cross = false) {
    this.weights = weights;
    this.name = name;
    this.blocks = Array.from(
      { length: depth(weights.options, name) },
      (_, i) => new Block(weights, `${name}/block_${i}`, cross),
    );
    this.final = weights.options.norm_position === "pre" ? weights.norm(`${name}/final_norm`) : null;
  }

  emptyCache(places) {
    return { length: 0, layers: this.blocks.map((block) => block.attention.emptyCache(places)) };
  }

  /**
   * Maps x (T, D) to (T, D). `past` grows by T; `memory` has keys and values by layer, and a length.
   * @param {Float32Array} x @param {number} T
   * @param {{ past: any, causal: boolean, memory?: any, off?: any, trace?: any }} options
   */
  call(x, T, { past, causal, memory = null, off = null, trace = null }) {
    const { weights, name } = this;
    this.blocks.forEach((block, layer) => {
      /** @returns {[any, any]} */
      const heads = (kind) => [off?.[kind]?.[layer], trace?.[kind]?.[layer]];
      x = block.residual(block.attentionNorm, x, T, (read) =>
        block.attention.self(read, T, past.length, past.layers[layer], causal, ...heads(name)),
      );
      if (block.crossAttention) {
        x = block.residual(block.crossNorm, x, T, (read) =>
          block.crossAttention.cross(read, T, memory.layers[layer], memory.length, ...heads("cross")),
        );
      }
      x = block.feed(x, T);
    });
    past.length += T;
    return this.final ? normalise(this.final, x, T, weights.options.norm_epsilon, x) : x;
  }
}

/** Layer norm or RMS norm of each row of x, written to y. @param {NormWeights} norm */
export function normalise({ gain, bias, rms }, x, rows, epsilon, y) {
  const D = x.length / rows;
  for (let row = 0; row < rows; row++) {
    const at = row * D;
    let mean = 0;
    let squares = 0;
    if (!rms) {
      for (let i = 0; i < D; i++) mean += x[at + i];
      mean /= D;
    }
    for (let i = 0; i < D; i++) squares += (x[at + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / D + epsilon);
    for (let i = 0; i < D; i++) y[at + i] = (x[at + i] - mean) * scale * (gain ? gain[i] : 1) + (bias ? bias[i] : 0);
  }
  return y;
}

function thrice(arena, x, T, D) {
  const all = arena.floats(T * 3 * D);
  for (let t = 0; t < T; t++)
    for (let part = 0; part < 3; part++) {
      all.set(x.subarray(t * D, (t + 1) * D), (3 * t + part) * D);
    }
  return all;
}

function addSinusoid(row, position, kind) {
  const half = row.length / 2;
  const interleaved = kind === "sinusoidal";
  const last = kind === "sinusoidal_marian" ? Math.max(half - 1, 0.5) : half;
  for (let i = 0; i < half; i++) {
    const angle = position * 10000 ** (-i / last);
    row[interleaved ? 2 * i : i] += Math.sin(angle);
    row[interleaved ? 2 * i + 1 : half + i] += Math.cos(angle);
  }
}

function rotate(row, at, size, position, base) {
  const half = size / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * base ** (-i / half);
    const c = Math.cos(angle);
    const s = Math.sin(angle);
    const a = row[at + i];
    const b = row[at + half + i];
    row[at + i] = a * c - b * s;
    row[at + half + i] = b * c + a * s;
  }
}

/** The error function, within 1.2e-7 (Numerical Recipes, section 6.2). */
function erf(x) {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const terms = [
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
  ];
  const r = t * Math.exp(-x * x + terms.reduce((sum, term) => sum * t + term, 0));
  return x >= 0 ? 1 - r : r - 1;
}
const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const silu = (x) => x / (1 + Math.exp(-x));
/** Activations by the name of the setting; a gated form applies one to its ungated half. */
export const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu,
  silu,
  geglu: gelu,
  swiglu: silu,
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3))),
};
