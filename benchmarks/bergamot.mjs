/**
 * Translates the lines of standard input with the translator of Firefox, in WebAssembly.
 *
 *     npm install @browsermt/bergamot-translator@0.4.9
 *     node bergamot.mjs FOLDER < text
 *
 * FOLDER is an export of `heedful export RUN --to bergamot`. The package is looked up in the working directory. The
 * seconds of the translation are written to standard error. A web page imports `translate`, and the package from
 * `translator.js`.
 */

/**
 * Translates lines greedily.
 *
 * @param {Function} TranslatorBacking - the class of the package that loads its engine
 * @param {function(string): Promise<ArrayBuffer | null>} read - returns a file of the export, or null if it has none
 * @param {string[]} lines - the texts
 * @returns {Promise<{texts: string[], seconds: number}>} the translations, and their time excluding loading
 */
export async function translate(TranslatorBacking, read, lines) {
  class Local extends TranslatorBacking {
    async loadModelRegistery() {
      return [];
    }
  }

  const settings = new TextDecoder().decode(await read("config.yml"));
  const { exports: engine, worker } = await new Local({}).loadWorker();
  const languages = { from: "source", to: "target" };
  const joint = await read("vocab.spm");
  await engine.loadTranslationModel(languages, {
    model: await read("model.bin"),
    shortlist: (await read("lex.bin")) ?? new ArrayBuffer(0),
    vocabs: joint ? [joint] : [await read("source.spm"), await read("target.spm")],
    config: { "gemm-precision": JSON.parse(settings.match(/^gemm-precision: (.*)$/m)[1]), "beam-size": "1" },
  });
  const began = performance.now();
  const texts = lines.map((text) => ({ text, html: false, qualityScores: false }));
  const results = await engine.translate({ models: [languages], texts });
  const seconds = (performance.now() - began) / 1000;
  worker.terminate();
  return { texts: results.map((result) => result.target.text), seconds };
}

async function main() {
  const fs = await import("node:fs");
  const path = await import("node:path");
  const { pathToFileURL } = await import("node:url");
  const home = path.resolve("node_modules/@browsermt/bergamot-translator");
  // Its worker is CommonJS inside a package of modules, which Node refuses without this.
  fs.writeFileSync(path.join(home, "worker", "package.json"), '{"type": "commonjs"}');
  const { TranslatorBacking } = await import(pathToFileURL(path.join(home, "translator.js")));

  async function read(name) {
    const file = path.join(process.argv[2], name);
    if (!fs.existsSync(file)) return null;
    const bytes = fs.readFileSync(file);
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  }

  const lines = fs.readFileSync(0, "utf8").split("\n");
  if (!lines.at(-1)) lines.pop();
  const { texts, seconds } = await translate(TranslatorBacking, read, lines);
  console.error(`${seconds.toFixed(2)} s`);
  for (const text of texts) process.stdout.write(`${text}\n`);
}

if (globalThis.process?.argv[1]?.endsWith("bergamot.mjs")) await main();
