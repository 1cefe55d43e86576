// @ts-check
// Opens the runs in this page, and starts it.
import { startEngine, WorkerModel } from "./model.js";
import { start } from "./app.js";

async function open() {
  const runs = JSON.parse(/** @type {any} */ (document.getElementById("runs")).textContent);
  const engine = startEngine(/** @type {any} */ (document.getElementById("engine")).textContent);
  const blocks = /** @type {HTMLElement[]} */ ([...document.getElementsByClassName("weights")]);
  const models = [];
  for (const [number, run] of runs.entries()) {
    const weights = blocks.filter((block) => block.dataset.run === String(number)).map((block) => block.textContent);
    const model = new WorkerModel(engine, number);
    if (run.api) run.api = new URL(run.api, location.href).href; // a worker has no address of its own
    await model.open(run, weights, { simd: !location.hash.includes("nosimd") });
    models.push(model);
  }
  return models;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
try {
  const models = await open();
  Object.assign(window, { heedful: { models, model: models[0] } }); // for a console, and for tests
  await start(root, models);
} catch (error) {
  root.textContent = `This page cannot be shown: ${error.message}`;
  root.setAttribute("role", "alert");
  console.error(error);
}
