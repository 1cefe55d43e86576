/**
 * Translates the lines of standard input with the translator of Firefox, in WebAssembly.
 *
 *     npm install @browsermt/bergamot-translator@0.4.9
 *     node bergamot.mjs FOLDER < text
 *
 * FOLDER is an export of `heedful export RUN --to bergamot`. The package is looked up in the working directory. The
 * seconds of the translation are written to standard error.
 */
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const settings = fs.readFileSync(path.join(folder, "config.yml"), "utf8");
const precision = JSON.parse(settings.match(/^gemm-precision: (.*)$/m)[1]);
const home = path.resolve("node_modules/@browsermt/bergamot-translator");
// Its worker is CommonJS inside a package of modules, which Node refuses without this.
fs.writeFileSync(path.join(home, "worker", "package.json"), '{"type": "commonjs"}');
const { TranslatorBacking } = await import(pathToFileURL(path.join(home, "translator.js")));

class Local extends TranslatorBacking {
  async loadModelRegistery() {
    return [];
  }
}

function buffer(name) {
  const bytes = fs.readFileSync(path.join(folder, name));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
}

const { exports: engine, worker } = await new Local({}).loadWorker();
const languages = { from: "source", to: "target" };
const joint = fs.existsSync(path.join(folder, "vocab.spm"));
await engine.loadTranslationModel(languages, {
  model: buffer("model.bin"),
  shortlist: new ArrayBuffer(0),
  vocabs: joint ? [buffer("vocab.spm")] : [buffer("source.spm"), buffer("target.spm")],
  config: { "gemm-precision": precision, "beam-size": "1" },
});
const lines = fs.readFileSync(0, "utf8").split("\n").slice(0, -1);
const began = performance.now();
const texts = lines.map((text) => ({ text, html: false, qualityScores: false }));
const results = await engine.translate({ models: [languages], texts });
console.error(`${((performance.now() - began) / 1000).toFixed(2)} s`);
for (const result of results) process.stdout.write(`${result.target.text}\n`);
worker.terminate();
