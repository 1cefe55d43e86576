// @ts-check
// A model on the server that sent this page: it computes in ids, see heedful/inspection/page/model.py. `model.js` has the interface.
import { END } from "./networks.js";
import { Spelling } from "./spelling.js";
import { fromBase64 } from "./unpack.js";

export class RemoteModel extends Spelling {
  /** @param {any} run as for `LocalModel`; `run.api` is the address of the run on the server */
  constructor(run) {
    super(run);
    this.api = run.api;
  }

  about() {
    return { ...this.described(), computed: "Computed by the server that sent this page." };
  }

  async look(argument) {
    const { steps, maps, reading } = await this.#ask("look", argument);
    for (const step of steps) {
      const pieces = this.piecesOf(step.top.map(({ id }) => id));
      step.top.forEach((rival, i) => {
        rival.piece = pieces[i];
      });
    }
    for (const layers of Object.values(maps)) {
      for (const layer of layers) layer.weights = new Float32Array(fromBase64(layer.weights).buffer);
    }
    return { steps, maps, reading };
  }

  async score(argument) {
    return (await this.#ask("score", argument)).scores;
  }

  /** The training pairs that are nearest to a text: { pairs: [{ source, target, similarity }], total }. */
  nearest(argument) {
    return this.#ask("nearest", argument);
  }

  async *write({ prefix = [], ...argument }) {
    const ids = [...prefix];
    for await (const event of lines(await this.#post("write", { prefix, ...argument }))) {
      if (event.error) throw new Error(event.error);
      if (event.nodes) {
        yield this.#tree(event);
        return;
      }
      if (event.ids) {
        yield { done: this.show({ ids: event.ids }) };
        return;
      }
      if (event.end) break;
      if (event.id !== END) ids.push(event.id);
      yield event;
    }
    yield { done: this.show({ ids }) };
  }

  #tree({ nodes, done }) {
    const pieces = this.piecesOf(nodes.map((node) => Math.max(node.id, 0)));
    return {
      nodes: nodes.map((node, i) => ({ ...node, piece: pieces[i] })),
      done: done.map((result) => ({ ...result, text: this.tokenizers.target.decode(result.ids) })),
    };
  }

  async #ask(question, argument) {
    return (await this.#post(question, argument)).json();
  }

  async #post(question, argument) {
    const { checkpoint } = argument;
    const update = checkpoint === undefined ? undefined : this.run.checkpoints[checkpoint];
    const given = Object.fromEntries(
      Object.entries({ ...argument, checkpoint: update }).filter(([, value]) => value !== undefined && value !== null),
    );
    const response = await fetch(`${this.api}/${question}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(given),
    });
    if (!response.ok) {
      const { error } = await response.json().catch(() => ({}));
      throw new Error(error ?? `The server answered ${response.status}.`);
    }
    return response;
  }
}

/** Yields each line of an answer, which is JSON. @param {Response} response */
async function* lines(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let waiting = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (waiting + decoder.decode(value, { stream: true })).split("\n");
      waiting = /** @type {string} */ (parts.pop());
      for (const part of parts) yield JSON.parse(part);
    }
  } finally {
    await reader.cancel();
  }
}
