// @ts-check
// Greedy and beam search as in heedful/decoding, with the tree of all hypotheses.
import { END } from "./networks.js";

/** @typedef {{ id: number, parent: number, logp: number, score: number, step: number, state: string }} Node */
/**
 * @typedef {{ prefix?: number[], limit: number, off?: any, forbidden?: number[], minLength?: number }} Options
 * `minLength`: tokens before which no end token is written.
 */

/** The logarithm of the sum of exponentials. @param {Float32Array} logits */
export function logNormaliser(logits, from = 0, count = logits.length) {
  let largest = -Infinity;
  let sum = 0;
  for (let i = from; i < from + count; i++) if (logits[i] > largest) largest = logits[i];
  for (let i = from; i < from + count; i++) sum += Math.exp(logits[i] - largest);
  return largest + Math.log(sum);
}

/** The places of the largest values, largest first; of equal ones the first. @param {Float32Array} values */
export function best(values, count, from = 0, size = values.length) {
  const indices = [];
  for (let i = 0; i < size; i++) {
    const value = values[from + i];
    if (indices.length === count && value <= values[from + indices[count - 1]]) continue;
    let position = indices.length;
    while (position > 0 && values[from + indices[position - 1]] < value) position--;
    indices.splice(position, 0, i);
    if (indices.length > count) indices.pop();
  }
  return indices;
}

/** Makes tokens impossible that the settings forbid after `age` tokens. */
function constrain(logits, { forbidden = [], minLength = 0 }, age) {
  for (const id of forbidden) logits[id] = -1e9;
  if (age < minLength) logits[END] = -1e9;
  return logits;
}

/** Yields { id, logp } of each token, the end token last. @param {Options} options */
export function* greedy(network, source, options) {
  const { prefix = [], limit, off } = options;
  let { memory, past, logits } = network.begin(source, prefix, off, limit);
  for (let age = prefix.length; age < limit; age++) {
    constrain(logits, options, age);
    const [id] = best(logits, 1);
    yield { id, logp: logits[id] - logNormaliser(logits) };
    if (id === END) return;
    if (age + 1 < limit) logits = network.step([id], memory, past, { off, lastOnly: true });
  }
}

/**
 * Yields the tree after each step: { nodes, done }; `done` are the results so far, best first.
 * @param {Options & { width: number, lengthPenalty: number, lengthNorm: string, stop: string }} options
 */
export function* beam(network, source, options) {
  const { width, limit, off, prefix = [], lengthPenalty, lengthNorm, stop } = options;
  const divisor = (length) => (lengthNorm === "gnmt" ? (5 + length) / 6 : length) ** lengthPenalty;
  /** @type {Node[]} */
  const nodes = [{ id: -1, parent: -1, logp: 0, score: 0, step: -1, state: "kept" }];
  const done = [];
  const finish = (entry) => {
    done.push(entry);
    done.sort((a, b) => b.score - a.score);
    done.length = Math.min(done.length, width);
  };
  const { memory, past, logits } = network.begin(source, prefix, off, limit);
  let live = [{ ids: [...prefix], score: 0, past, logits, node: 0 }];
  let ended = 0;
  for (let age = prefix.length; age < limit && live.length; age++) {
    const last = age + 1 >= limit;
    const following = [];
    candidates(live, width, options, age).forEach(({ hypothesis, id, logp, score }, rank) => {
      const node = { id, parent: hypothesis.node, logp, score, step: age, state: "pruned" };
      nodes.push(node);
      if (id === END && rank < width) {
        node.state = "ended";
        ended++;
        finish({ ids: hypothesis.ids, score: score / divisor(age + 1), node: nodes.length - 1 });
      } else if (id !== END && following.length < width) {
        node.state = "kept";
        following.push({ ids: [...hypothesis.ids, id], score, from: hypothesis, node: nodes.length - 1 });
      }
    });
    if (last) for (const f of following) finish({ ids: f.ids, score: f.score / divisor(age + 1), node: f.node });
    const attained = () => done.length === width && done[width - 1].score >= following[0].score / divisor(limit);
    yield { nodes, done };
    if (last || (stop === "width" ? ended >= width : attained())) return;
    live = continued(following).map(({ ids, score, node, past }) => ({
      ids,
      score,
      node,
      past,
      logits: network.step([ids.at(-1)], memory, past, { off, lastOnly: true }),
    }));
  }
}

/** The 2 x width most likely continuations of all hypotheses. */
function candidates(live, width, options, age) {
  const all = live.flatMap((hypothesis) => {
    constrain(hypothesis.logits, options, age);
    const normaliser = logNormaliser(hypothesis.logits);
    return best(hypothesis.logits, 2 * width).map((id) => {
      const logp = hypothesis.logits[id] - normaliser;
      return { hypothesis, id, logp, score: hypothesis.score + logp };
    });
  });
  return all.sort((a, b) => b.score - a.score).slice(0, 2 * width);
}

/** Gives each hypothesis a cache of its own: the first one keeps that of its parent, the others copy it. */
function continued(following) {
  const taken = new Set();
  const heirs = following.map((f) => {
    const first = !taken.has(f.from);
    taken.add(f.from);
    return { ...f, first };
  });
  return heirs.map((f) => ({ ...f, past: f.first ? f.from.past : copied(f.from.past) }));
}

function copied({ length, layers }) {
  return { length, layers: layers.map(({ keys, values }) => ({ keys: keys.slice(), values: values.slice() })) };
}
