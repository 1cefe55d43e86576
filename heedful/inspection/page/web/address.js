// @ts-check
// A view as the fragment of the page's address, so that it can be reloaded and shared.
import { KIND_NAMES } from "./parts.js";
import { headsOff, toggled } from "./questions.js";

/** The fields of the state that the address holds, with their defaults. */
const DEFAULTS = {
  view: "why",
  run: 0,
  text: "",
  sentence: 0,
  chosen: 0,
  off: null,
  forced: null,
  forcedWord: null,
  width: 4,
};

const isCount = (number) => Number.isInteger(number) && number >= 0;
const numbers = (text) => text.split(".").map(Number);
const READERS = {
  view: String,
  text: String,
  run: Number,
  sentence: Number,
  chosen: Number,
  forcedWord: Number,
  width: Number,
  forced: numbers,
  off: (text) =>
    text.split(",").reduce((off, head) => {
      const [kind, layer, number] = head.split(".");
      return Object.hasOwn(KIND_NAMES, kind) && isCount(+layer) && isCount(+number)
        ? toggled(off, kind, +layer, +number)
        : off;
    }, null),
};
const WRITERS = {
  forced: (ids) => ids.join("."),
  off: (off) =>
    headsOff(off)
      .map((key) => key.join("."))
      .join(","),
};

/** The state in an address; what is missing or cannot be read has its default. @param {string} fragment */
export function readAddress(fragment, defaults = {}) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...DEFAULTS, ...defaults };
  for (const [name, read] of Object.entries(READERS)) {
    const text = given.get(name);
    if (text === null) continue;
    const value = read(text);
    const list = Array.isArray(value) ? value : [value];
    if (!list.some((item) => typeof item === "number" && !isCount(item))) state[name] = value;
  }
  return state;
}

/** The address of a state; defaults are left out. */
export function writeAddress(state) {
  const given = new URLSearchParams();
  for (const name of Object.keys(READERS)) {
    const value = state[name];
    if (value !== null && value !== undefined && value !== DEFAULTS[name])
      given.set(name, WRITERS[name]?.(value) ?? value);
  }
  return `#${given}`;
}
