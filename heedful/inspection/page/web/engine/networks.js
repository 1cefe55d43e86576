// @ts-check
// The models of heedful.models. Each answers the same questions, so that search and views need not know which it is.
import { ACTIVATIONS, Input, Stack, Weights, depth, normalise } from "./layers.js";

export const PAD = 0;
export const UNKNOWN = 1;
export const START = 2;
export const END = 3;

/** @typedef {{ encoder?: any[], decoder?: any[], cross?: any[] }} Traces */
/**
 * What a model says about a text: logits (rows, V); row t belongs to target t. `map` is the kind of attention that
 * shows what the model reads, `readers` the rows of that map for each target, `column` the one of the first source token.
 * @typedef {{ logits: Float32Array, map: string, readers: number[][], column: number }} Reading
 */

class Network {
  /** @type {string[]} */
  kinds = [];

  constructor(options, tensors, simd) {
    this.options = options;
    this.weights = new Weights(options, tensors, simd);
    this.arena = this.weights.arena;
  }

  get kernel() {
    return this.arena.kernel ? "WASM SIMD" : "JavaScript";
  }

  /** Runs `compute` and frees what it used; its result must be copied out. */
  scratch(compute) {
    const mark = this.arena.mark();
    try {
      return compute();
    } finally {
      this.arena.release(mark);
    }
  }

  traces() {
    const layers = (kind) => Array.from({ length: depth(this.options, kind) }, () => ({}));
    return Object.fromEntries(this.kinds.map((kind) => [kind, layers(kind)]));
  }

  /** The logits (rows, V) of features (rows, D), copied out. */
  project(x, rows, table) {
    return this.arena.linear(x, rows, table).slice(0, rows * table.units);
  }
}

/** The encoder-decoder: writes a target for a source. */
export class EncoderDecoder extends Network {
  kinds = ["encoder", "decoder", "cross"];
  ends = true; // a target has an end token

  constructor(run, tensors, simd) {
    super(run.model, tensors, simd);
    const { weights } = this;
    const target = weights.table("target_embedding");
    const source = weights.has("source_embedding/embeddings") ? weights.table("source_embedding") : target;
    this.output = weights.has("output_projection/embeddings") ? weights.table("output_projection") : target;
    this.sourceInput = new Input(weights, "source_input", source);
    this.targetInput = new Input(weights, "target_input", target);
    this.encoder = new Stack(weights, "encoder");
    this.decoder = new Stack(weights, "decoder", true);
    this.vocabulary = this.output.units;
  }

  /** Encodes a source; returns what every decoder layer reads of it. */
  remember(source, off, trace) {
    return this.scratch(() => {
      const ids = [...source, END];
      const S = ids.length;
      const memory = this.encoder.call(this.sourceInput.call(ids), S, {
        past: this.encoder.emptyCache(S),
        causal: false,
        off,
        trace,
      });
      return { length: S, layers: this.decoder.blocks.map((block) => block.crossAttention.remember(memory, S)) };
    });
  }

  /** Reads ids after a past, which grows; returns logits (T, V), or of the last position only. */
  step(ids, memory, past, { off = null, trace = null, lastOnly = false, causal = true } = {}) {
    return this.scratch(() => {
      const T = ids.length;
      const x = this.targetInput.call(ids, past.length);
      const features = this.decoder.call(x, T, { past, causal, memory, off, trace });
      return lastOnly
        ? this.project(features.subarray((T - 1) * this.options.d_model), 1, this.output)
        : this.project(features, T, this.output);
    });
  }

  /** What a search starts from. */
  begin(source, prefix, off, limit) {
    const memory = this.remember(source, off);
    const past = this.decoder.emptyCache(limit + 1);
    return { memory, past, logits: this.step([START, ...prefix], memory, past, { off, lastOnly: true }) };
  }

  limit(source, decode) {
    const maxLength = Math.min(
      Math.floor(source.length * decode.max_ratio + decode.max_extra),
      this.options.max_length - 1, // the views read what was written after the start token
    );
    return decode.max_length ? Math.min(maxLength, decode.max_length) : maxLength;
  }

  /** @returns {Reading} */
  read(source, target, off, trace, memory = this.remember(source, off, trace)) {
    const past = this.decoder.emptyCache(target.length + 1);
    const causal = this.options.causal_mask !== false;
    const logits = this.step([START, ...target], memory, past, { off, trace, causal });
    return { logits, map: "cross", readers: Array.from({ length: target.length + 1 }, (_, t) => [t]), column: 0 };
  }
}

/** The language model: continues a source, its prompt. */
export class LanguageModel extends Network {
  kinds = ["decoder"];

  constructor(run, tensors, simd) {
    super(run.model, tensors, simd);
    const { weights } = this;
    const table = weights.table("embedding");
    this.output = weights.has("output_projection/embeddings") ? weights.table("output_projection") : table;
    this.input = new Input(weights, "text_input", table);
    this.decoder = new Stack(weights, "decoder");
    this.vocabulary = this.output.units;
    this.first = run.starts ? [START] : []; // trained on documents that begin with the start token
    this.ends = run.starts;
  }

  step(ids, memory, past, { off = null, trace = null, lastOnly = false, causal = true } = {}) {
    return this.scratch(() => {
      const T = ids.length;
      const x = this.input.call(ids, past.length);
      const features = this.decoder.call(x, T, { past, causal, off, trace });
      return lastOnly
        ? this.project(features.subarray((T - 1) * this.options.d_model), 1, this.output)
        : this.project(features, T, this.output);
    });
  }

  begin(source, prefix, off, limit) {
    const ids = [...this.first, ...source, ...prefix];
    if (!ids.length) throw new Error("This model continues text: give it some.");
    const past = this.decoder.emptyCache(ids.length + limit + 1);
    return { memory: null, past, logits: this.step(ids, null, past, { off, lastOnly: true }) };
  }

  limit(source, decode) {
    const maxLength = this.options.max_length - this.first.length - source.length + (this.ends ? 0 : 1);
    return Math.max(0, Math.min(decode.max_length || DEFAULT_TOKENS, maxLength));
  }

  /** @returns {Reading} */
  read(source, target, off, trace) {
    const before = this.first.length + source.length;
    const V = this.vocabulary;
    const ids = [...this.first, ...source, ...target];
    const rows = target.length + (this.ends ? 1 : 0);
    if (!before) throw new Error("This model continues text: give it some.");
    const read = this.ends ? ids : ids.slice(0, -1);
    const causal = this.options.causal_mask !== false;
    const all = this.step(read, null, this.decoder.emptyCache(read.length), { off, trace, causal });
    const readers = Array.from({ length: rows }, (_, t) => [before - 1 + t]);
    return {
      logits: all.slice((before - 1) * V, (before - 1 + rows) * V),
      map: "decoder",
      readers,
      column: this.first.length,
    };
  }
}

const DEFAULT_TOKENS = 40; // that a page writes after a prompt

class EncoderOnly extends Network {
  kinds = ["encoder"];
  ends = false;

  constructor(run, tensors, simd) {
    super(run.model, tensors, simd);
    this.table = this.weights.table("embedding");
    this.input = new Input(this.weights, "text_input", this.table);
    this.encoder = new Stack(this.weights, "encoder");
    const D = this.weights.width;
    this.convolutions = (run.model.convolutions ?? []).map((reads) => ({
      reads,
      kernel: this.weights.dense(`convolutions/width_${reads}`, reads * D, D),
    }));
  }

  /** Adds to x (T, D) what convolutions of several widths read in it. */
  convolve(x, T) {
    const D = this.weights.width;
    const total = this.arena.floats(T * D);
    total.set(x.subarray(0, T * D));
    for (const { reads, kernel } of this.convolutions) {
      const windows = this.arena.floats(T * reads * D).fill(0);
      const reach = (reads - 1) / 2;
      for (let t = 0; t < T; t++) {
        for (let i = 0; i < reads; i++) {
          const from = t + i - reach;
          if (from >= 0 && from < T) windows.set(x.subarray(from * D, (from + 1) * D), (t * reads + i) * D);
        }
      }
      const convolved = this.arena.linear(windows, T, kernel);
      for (let i = 0; i < T * D; i++) total[i] += ACTIVATIONS.gelu(convolved[i]);
    }
    return total;
  }

  encode(ids, off, trace) {
    const T = ids.length;
    const input = this.input.call(ids);
    const x = this.convolutions.length ? this.convolve(input, T) : input;
    return this.encoder.call(x, T, { past: this.encoder.emptyCache(T), causal: false, off, trace });
  }
}

/** The masked language model: a source has masks, and a target a token for each of them. */
export class MaskedModel extends EncoderOnly {
  constructor(run, tensors, simd) {
    super(run, tensors, simd);
    const { weights } = this;
    this.output = weights.has("output_projection/embeddings") ? weights.table("output_projection") : this.table;
    this.transform = weights.dense("transform", weights.width, weights.width);
    this.transformNorm = weights.norm("transform_norm");
    this.mask = run.mask;
    this.vocabulary = this.output.units;
    this.forbidden = [PAD, UNKNOWN, START, END, run.mask]; // special tokens fill no gap
  }

  /** @returns {Reading} */
  read(source, target, off, trace) {
    const ids = [START, ...source, END];
    const places = ids.flatMap((id, i) => (id === this.mask ? [i] : []));
    const logits = this.scratch(() => {
      const { width } = this.weights;
      const vectors = this.encode(ids, off, trace);
      const masked = this.arena.floats(places.length * width);
      places.forEach((place, row) => masked.set(vectors.subarray(place * width, (place + 1) * width), row * width));
      const hidden = this.arena.linear(masked, places.length, this.transform);
      const count = places.length * width;
      const activation =
        ACTIVATIONS[{ geglu: "gelu", swiglu: "silu" }[this.options.activation] ?? this.options.activation];
      for (let i = 0; i < count; i++) hidden[i] = activation(hidden[i]);
      const features = hidden.subarray(0, count);
      normalise(this.transformNorm, features, places.length, this.options.norm_epsilon, features);
      return this.project(features, places.length, this.output);
    });
    return { logits, map: "encoder", readers: places.map((place) => [place]), column: 1 };
  }
}

/** The classifier: a target is one class. */
export class ClassModel extends EncoderOnly {
  constructor(run, tensors, simd) {
    super(run, tensors, simd);
    const { weights } = this;
    this.output = weights.table("output_projection");
    this.pooler = run.model.pooling === "first" ? weights.dense("pooler", weights.width, weights.width) : null;
    this.vocabulary = this.output.units;
  }

  /** @returns {Reading} */
  read(source, target, off, trace) {
    const ids = [START, ...source, END];
    const T = ids.length;
    const D = this.weights.width;
    const logits = this.scratch(() => {
      const vectors = this.encode(ids, off, trace);
      let pooled = this.arena.floats(D).fill(0);
      if (this.options.pooling === "mean") {
        for (let t = 0; t < T; t++) for (let i = 0; i < D; i++) pooled[i] += vectors[t * D + i] / T;
      } else pooled.set(vectors.subarray(0, D));
      if (this.options.pooling === "max") {
        for (let t = 1; t < T; t++) for (let i = 0; i < D; i++) pooled[i] = Math.max(pooled[i], vectors[t * D + i]);
      }
      if (this.pooler) {
        pooled = this.arena.linear(pooled, 1, this.pooler);
        const activation = this.options.pooler_activation === "relu" ? (x) => Math.max(0, x) : Math.tanh;
        for (let i = 0; i < D; i++) pooled[i] = activation(pooled[i]);
      }
      return this.project(pooled, 1, this.output);
    });
    return { logits, map: "encoder", readers: [this.pooler ? [0] : ids.map((_, t) => t)], column: 1 };
  }
}

export const NETWORKS = { translate: EncoderDecoder, generate: LanguageModel, fill: MaskedModel, classify: ClassModel };
