// @ts-check
// The interface of a model, wherever it computes: in a worker of this page, or on the server that sent the page.
//
// about()                                     name, task, sizes, log, scores, examples, ...
// split({ text })                             ids, pieces, words (places of tokens, grouped), spans (characters), cut
// show({ ids })                               ids, text, pieces, words, spans of a target
// look({ source, target, off, checkpoint })   steps [{ id, logp, entropy, top }], maps, reading
// score({ variants, checkpoint })             for each variant { source, target, off } the log-probabilities of its target
// write({ source, prefix, off, width, ... })  a stream: { id, logp } ..., at last { done }; of a beam { nodes, done }
// nearest({ text })                           the training pairs nearest to a text; only of a server, see `about.nearest`
//
// `off` are the heads that are switched off: { kind: { layer: { head: true } } }.

/** Starts the engine, which computes in a worker, so that the page never stops. @param {string} text */
export function startEngine(text) {
  const worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  const calls = new Map();
  let last = 0;
  worker.onmessage = ({ data: { call, ...content } }) => calls.get(call)?.(content);
  worker.onerror = (event) => {
    for (const receive of calls.values()) receive({ error: event.message });
  };
  return {
    /** @returns {Promise<any>} */
    ask(run, method, argument = undefined) {
      const call = ++last;
      return new Promise((resolve, reject) => {
        calls.set(call, ({ value, error }) => {
          calls.delete(call);
          if (error) reject(new Error(error));
          else resolve(value);
        });
        worker.postMessage({ call, run, method, argument });
      });
    },
    async *stream(run, method, argument) {
      const call = ++last;
      const waiting = [];
      let wake = () => {};
      let ended = false;
      calls.set(call, (content) => {
        waiting.push(content);
        wake();
      });
      worker.postMessage({ call, run, method, argument });
      try {
        for (;;) {
          while (!waiting.length)
            await new Promise((resolve) => {
              wake = () => resolve(null);
            });
          const { value, error, end } = waiting.shift();
          if (error) throw new Error(error);
          if (end) {
            ended = true;
            return;
          }
          yield value;
        }
      } finally {
        calls.delete(call);
        if (!ended) worker.postMessage({ method: "cancel", argument: call });
      }
    },
  };
}

/** A model in the engine. */
export class WorkerModel {
  /** @param {ReturnType<typeof startEngine>} engine @param {number} run */
  constructor(engine, run) {
    this.engine = engine;
    this.run = run;
  }
  open(description, weights, options) {
    return this.engine.ask(this.run, "open", [description, weights, options]);
  }
  about() {
    return this.engine.ask(this.run, "about");
  }
  split(argument) {
    return this.engine.ask(this.run, "split", argument);
  }
  show(argument) {
    return this.engine.ask(this.run, "show", argument);
  }
  look(argument) {
    return this.engine.ask(this.run, "look", argument);
  }
  score(argument) {
    return this.engine.ask(this.run, "score", argument);
  }
  nearest(argument) {
    return this.engine.ask(this.run, "nearest", argument);
  }
  write(argument) {
    return this.engine.stream(this.run, "write", argument);
  }
}
