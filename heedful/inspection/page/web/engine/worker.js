// @ts-check
// Models that answer messages: { call, run, method, argument } in, { call, value | error | end } out.
import { LocalModel } from "./local.js";
import { RemoteModel } from "./remote.js";

const models = [];
const cancelled = new Set();

self.onmessage = async ({ data: { call, run, method, argument } }) => {
  const answer = (content) => self.postMessage({ call, ...content });
  try {
    if (method === "cancel") {
      cancelled.add(argument);
      return;
    }
    if (method === "open") {
      const [description, weights, options] = argument;
      models[run] = description.api ? new RemoteModel(description) : new LocalModel(description, weights, options);
      answer({ value: models[run].about() });
      return;
    }
    const result = models[run][method](argument);
    if (!result?.[Symbol.asyncIterator]) {
      answer({ value: await result });
      return;
    }
    for await (const value of result) {
      if (cancelled.delete(call)) break;
      answer({ value });
    }
    answer({ end: true });
  } catch (error) {
    answer({ error: String(error?.message ?? error) });
  }
};
