// @ts-check
// Memory for weights and activations, and the one product that takes most of the time: WASM SIMD, or plain JavaScript.
import { LINEAR_WASM } from "./linear.js";

const WASM_PAGE = 65536; // bytes

/** @typedef {{ weight: Float32Array, bias: Float32Array, inputs: number, units: number }} Dense */

export class Arena {
  /**
   * Floats are handed out from one memory, so that both kernels read the same arrays.
   * @param {number} bytes the most that is in use at a time
   * @param {boolean} simd false: plain JavaScript
   */
  constructor(bytes, simd = true) {
    const pages = Math.ceil(bytes / WASM_PAGE) + 1;
    /** @type {any} */
    this.kernel = null;
    let memory = null;
    if (simd) {
      try {
        memory = new WebAssembly.Memory({ initial: pages });
        const code = Uint8Array.from(atob(LINEAR_WASM), (c) => c.charCodeAt(0));
        const module = new WebAssembly.Module(code);
        this.kernel = new WebAssembly.Instance(module, { page: { memory } }).exports.linear;
      } catch (error) {
        console.info(`No WASM SIMD here (${error}); the page computes in JavaScript.`);
        memory = null;
      }
    }
    this.buffer = memory ? memory.buffer : new ArrayBuffer(pages * WASM_PAGE);
    this.used = 64;
  }

  /** @param {number} count */
  floats(count) {
    const at = this.used;
    this.used = at + Math.ceil((count + 3) / 4) * 16 + 16;
    if (this.used > this.buffer.byteLength) throw new Error("This text is too long for the page's memory.");
    return new Float32Array(this.buffer, at, count);
  }

  mark() {
    return this.used;
  }

  /** Frees all floats since `mark`. @param {number} mark */
  release(mark) {
    this.used = mark;
  }

  /**
   * Returns x (rows, inputs) times the transposed weight (units, inputs), plus the bias (units).
   * @param {Float32Array} x @param {number} rows @param {Dense} layer
   */
  linear(x, rows, { weight, bias, inputs, units }) {
    const y = this.floats(rows * units + 3);
    if (this.kernel && inputs % 4 === 0) {
      this.kernel(x.byteOffset, rows, inputs, weight.byteOffset, bias.byteOffset, units, y.byteOffset);
    } else multiply(x, rows, weight, bias, inputs, units, y);
    return y.subarray(0, rows * units); // the kernel writes up to three more
  }
}

/** The same in JavaScript, four units at a time. */
function multiply(x, rows, weight, bias, inputs, units, y) {
  for (let row = 0; row < rows; row++) {
    const from = row * inputs;
    const to = row * units;
    let n = 0;
    for (; n + 4 <= units; n += 4) {
      let s0 = bias[n];
      let s1 = bias[n + 1];
      let s2 = bias[n + 2];
      let s3 = bias[n + 3];
      const q0 = n * inputs;
      const q1 = q0 + inputs;
      const q2 = q1 + inputs;
      const q3 = q2 + inputs;
      for (let i = 0; i < inputs; i++) {
        const v = x[from + i];
        s0 += v * weight[q0 + i];
        s1 += v * weight[q1 + i];
        s2 += v * weight[q2 + i];
        s3 += v * weight[q3 + i];
      }
      y[to + n] = s0;
      y[to + n + 1] = s1;
      y[to + n + 2] = s2;
      y[to + n + 3] = s3;
    }
    for (; n < units; n++) {
      let sum = bias[n];
      for (let i = 0; i < inputs; i++) sum += x[from + i] * weight[n * inputs + i];
      y[to + n] = sum;
    }
  }
}
