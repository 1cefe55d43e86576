// @ts-check
// A model that computes here, in the page's worker. `model.js` has the interface.
import { END, NETWORKS } from "./networks.js";
import { beam, best, greedy, logNormaliser } from "./search.js";
import { Spelling } from "./spelling.js";
import { fromBase64, unpack } from "./unpack.js";

const pause = () => new Promise((resume) => setTimeout(resume));
const PATIENCE = 30; // milliseconds of work between two checks for messages

export class LocalModel extends Spelling {
  /**
   * @param {any} run the page's description of a run, see heedful/inspection/page/contents.py
   * @param {string[]} weights base64 of each checkpoint; the last one is the trained model
   * @param {{ simd?: boolean }} options
   */
  constructor(run, weights, { simd = true } = {}) {
    super(run);
    this.weights = weights;
    this.simd = simd;
    this.networks = new Map();
  }

  #network(checkpoint = this.weights.length - 1) {
    if (!this.networks.has(checkpoint)) {
      const tensors = unpack(fromBase64(this.weights[checkpoint]), this.run.tensors[checkpoint]);
      this.networks.set(checkpoint, new NETWORKS[this.run.task](this.run, tensors, this.simd));
    }
    return this.networks.get(checkpoint);
  }

  about() {
    const { kinds, ends, kernel } = this.#network();
    const computed = `Computed in this page (${kernel}); your text is not sent anywhere.`;
    return { ...this.described(), kinds, ends, kernel, computed };
  }

  /** The target with its end token, if the model writes one. */
  #withEnd(network, target) {
    return network.ends ? [...target, END] : target;
  }

  /** For each token of a target its probability, entropy and rivals; and every attention map. */
  look({ source, target, off = null, checkpoint, count = 8, keep = false }) {
    const network = this.#network(checkpoint);
    const V = network.vocabulary;
    const maps = network.traces();
    if (keep) for (const layers of Object.values(maps)) for (const layer of layers) layer.keep = true;
    const { logits, map, readers, column } = network.read(source, target, off, maps);
    const steps = this.#withEnd(network, target).map((id, t) => {
      const from = t * V;
      const normaliser = logNormaliser(logits, from, V);
      let entropy = 0;
      for (let i = from; i < from + V; i++) {
        const logp = logits[i] - normaliser;
        if (logp > -50) entropy -= Math.exp(logp) * logp;
      }
      const allowed = best(logits, count + 8, from, V)
        .filter((i) => !network.forbidden?.includes(i))
        .slice(0, count);
      const pieces = this.piecesOf(allowed);
      const logp = (i) => logits[from + i] - normaliser;
      return { id, logp: logp(id), entropy, top: allowed.map((i, n) => ({ id: i, logp: logp(i), piece: pieces[n] })) };
    });
    return { steps, maps, reading: { map, readers, column }, logits: keep ? logits : undefined };
  }

  /** The log-probabilities of each variant's target, its end last: variants [{ source, target, off }]. */
  async score({ variants, checkpoint }) {
    const network = this.#network(checkpoint);
    const V = network.vocabulary;
    const results = [];
    const memories = new Map();
    let since = performance.now();
    for (const { source, target, off = null } of variants) {
      let memory;
      if (network.remember) {
        // variants that differ in the decoder alone read the same memory
        const key = JSON.stringify([source, off?.encoder ?? 0]);
        if (!memories.has(key)) memories.set(key, network.remember(source, off));
        memory = memories.get(key);
      }
      const { logits } = network.read(source, target, off, null, memory);
      results.push(this.#withEnd(network, target).map((id, t) => logits[t * V + id] - logNormaliser(logits, t * V, V)));
      if (performance.now() - since > PATIENCE) {
        await pause();
        since = performance.now();
      }
    }
    return results;
  }

  /** Streams what the model writes: { id, logp } for each token, and at last { done }; for a beam { nodes, done }. */
  async *write({ source, prefix = [], off = null, width = 1, checkpoint, tokens = 0 }) {
    const network = this.#network(checkpoint);
    const { decode } = this.run;
    if (!network.begin) {
      yield { done: this.show({ ids: this.#mostLikely(network, source, off) }) };
      return;
    }
    const limit = Math.min(tokens || Infinity, network.limit(source, decode));
    const minLength = Math.max(decode.min_length, Math.ceil(decode.min_ratio * source.length));
    const options = { prefix, limit, off, forbidden: this.run.forbidden, minLength };
    if (width === 1) {
      const ids = [...prefix];
      let since = performance.now();
      for (const step of greedy(network, source, options)) {
        if (step.id !== END) ids.push(step.id);
        yield step;
        if (performance.now() - since > PATIENCE) {
          await pause();
          since = performance.now();
        }
      }
      yield { done: this.show({ ids }) };
      return;
    }
    const { length_penalty: lengthPenalty, length_norm: lengthNorm, stop } = decode;
    let tree;
    for (tree of beam(network, source, { ...options, width, lengthPenalty, lengthNorm, stop })) await pause();
    if (!tree) {
      yield { nodes: [], done: [] };
      return;
    }
    const pieces = this.piecesOf(tree.nodes.map((node) => Math.max(node.id, 0)));
    yield {
      nodes: tree.nodes.map((node, i) => ({ ...node, piece: pieces[i] })),
      done: tree.done.map((result) => ({ ...result, text: this.tokenizers.target.decode(result.ids) })),
    };
  }

  /** The most likely token for each mask, or the most likely class. */
  #mostLikely(network, source, off) {
    const { logits, readers } = network.read(source, [], off, null);
    const V = network.vocabulary;
    return readers.map((_, row) => best(logits, 8, row * V, V).find((id) => !network.forbidden?.includes(id)) ?? 0);
  }
}
