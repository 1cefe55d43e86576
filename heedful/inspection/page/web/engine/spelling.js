// @ts-check
// What a model of the page knows without its weights: its tokenizers, and its sizes.
import { depth } from "./layers.js";
import { Tokenizer } from "./tokenizer.js";

export class Spelling {
  /** @param {any} run the page's description of a run, see heedful/inspection/page/contents.py */
  constructor(run) {
    this.run = run;
    const source = new Tokenizer(run.tokenizers.source);
    this.tokenizers = { source, target: run.tokenizers.target ? new Tokenizer(run.tokenizers.target) : source };
  }

  described() {
    const { tokenizers, tensors, ...described } = this.run;
    const { model, task } = this.run;
    return {
      ...described,
      layers: { encoder: depth(model, "encoder"), decoder: depth(model, "decoder"), cross: depth(model, "decoder") },
      heads: model.num_heads,
      writes: ["translate", "generate"].includes(task),
      maxLength: model.max_length,
    };
  }

  /** The ids of a text, its pieces as people read them, its words as groups of places, and its tokens' characters. */
  split({ text }) {
    const { source } = this.tokenizers;
    const { mask, task, model, starts } = this.run;
    const all = task === "fill" ? source.encodeMasked(text, mask) : source.encode(text);
    const maxTokens = model.max_length - { translate: 1, generate: starts ? 2 : 0, fill: 2, classify: 2 }[task];
    const ids = task === "generate" ? all.slice(-maxTokens) : all.slice(0, maxTokens);
    const spans = source.spans(text, all).slice(0, ids.length);
    return { ids, pieces: source.pieces(ids), words: source.words(ids), spans, cut: all.length - ids.length };
  }

  /** A target as people read it. */
  show({ ids }) {
    if (this.run.task === "classify") {
      const pieces = ids.map((id) => this.run.labels[id]);
      return { ids, text: pieces.join(" "), pieces, words: ids.map((_, i) => [i]) };
    }
    const { target } = this.tokenizers;
    const single = this.run.task === "fill";
    const words = single ? ids.map((_, i) => [i]) : target.words(ids);
    const text = target.decode(ids);
    return { ids, text, pieces: target.pieces(ids), words, spans: target.spans(text, ids) };
  }

  /** How people read tokens of a target. @param {number[]} ids */
  piecesOf(ids) {
    return this.run.task === "classify" ? ids.map((id) => this.run.labels[id]) : this.tokenizers.target.pieces(ids);
  }
}
