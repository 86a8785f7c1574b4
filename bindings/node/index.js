// Models that tilewright exported: shared libraries, opened by path.
//
//   const { load } = require("tilewright");
//   const model = load("model.so");
//   const session = model.session();
//   const { y } = await session.run({ x: { data: new Float32Array(4 * 32), shape: [4, 32] } });
//
// Runs do not block: they are computed on other threads. Those of one session take turns. Errors have a `status`, that of
// tilewright.h. Models and sessions are freed by `close`, else when they are collected.
"use strict";
const addon = require("./build/tilewright.node");

const INVALID_ARGUMENT = 1;
const INVALID_INPUT = 2;

// Element types: DLPack's code and bits, and the array of their bytes.
const TYPES = {
  float32: [2, 32, Float32Array],
  float64: [2, 64, Float64Array],
  int8: [0, 8, Int8Array],
  int16: [0, 16, Int16Array],
  int32: [0, 32, Int32Array],
  int64: [0, 64, BigInt64Array],
  uint8: [1, 8, Uint8Array],
  uint16: [1, 16, Uint16Array],
  uint32: [1, 32, Uint32Array],
  uint64: [1, 64, BigUint64Array],
  bool: [6, 8, Uint8Array],
  float16: [2, 16, Uint16Array],
  bfloat16: [4, 16, Uint16Array],
};

function failure(status, message) {
  return Object.assign(new Error(message), { status });
}

function typeName(code, bits) {
  return Object.keys(TYPES).find((name) => TYPES[name][0] === code && TYPES[name][1] === bits) ?? `code${code}_${bits}`;
}

function described([name, code, bits, shape]) {
  return Object.freeze({ name, type: typeName(code, bits), shape });
}

// A tensor as the addon takes it. Its type is `type`, else that of the model if that has such arrays, else its array's.
function lowered(spec, { data, shape, type }) {
  const own = Object.keys(TYPES).find((name) => data instanceof TYPES[name][2]);
  const name = type ?? (data instanceof (TYPES[spec.type]?.[2] ?? Array) ? spec.type : own);
  if (!(name in TYPES) || !(data instanceof TYPES[name][2]))
    throw failure(INVALID_INPUT, `'${spec.name}': expected data in a typed array for ${name ?? spec.type}`);
  const [code, bits] = TYPES[name];
  const sizes = BigInt64Array.from(shape, BigInt);
  const size = shape.reduce((all, n) => all * n, 1);
  if (data.length !== size)
    throw failure(INVALID_ARGUMENT, `'${spec.name}': expected ${size} elements for shape [${shape.join(", ")}], got ${data.length}`);
  return [code, bits, sizes, data];
}

function ordered(specs, given, what) {
  const unknown = Object.keys(given).filter((name) => !specs.some((s) => s.name === name));
  const missing = specs.filter((s) => !(s.name in given)).map((s) => s.name);
  if (unknown.length || missing.length)
    throw failure(INVALID_INPUT, `${what}: missing [${missing.join(", ")}], unknown [${unknown.join(", ")}]`);
  return specs.map((s) => lowered(s, given[s.name]));
}

// What one run needs: intermediate values and threads.
class Session {
  #handle;
  #model;
  #last = Promise.resolve();

  constructor(model, handle) {
    this.#model = model;
    this.#handle = handle;
  }

  // A promise of all outputs, by name: { data, shape, type }. `out`: tensors of the caller's for all outputs, into which
  // results are written. Tensors must stay as they are until the promise is settled.
  run(inputs, out) {
    const start = () => {
      const given = ordered(this.#model.inputs, inputs, "inputs");
      const places = out ? ordered(this.#model.outputs, out, "outputs") : this.#nothing();
      return addon.run(this.#handle, given, places);
    };
    const done = this.#last.then(start);
    this.#last = done.catch(() => {});
    if (out) return done.then(() => out);
    return done.then((results) =>
      Object.fromEntries(
        results.map(([code, bits, shape, bytes], i) => {
          const { name, type } = this.#model.outputs[i];
          return [name, { data: new (TYPES[type]?.[2] ?? Uint8Array)(bytes), shape, type }];
        }),
      ),
    );
  }

  // A promise of the shapes of the outputs for inputs of these shapes, without a run; null for one that depends on what
  // inputs hold. `inputs`: name to shape.
  shapes(inputs) {
    const start = () => {
      const lower = ({ name, type }) => [...(TYPES[type] ?? []).slice(0, 2), BigInt64Array.from(inputs[name], BigInt), null];
      const results = addon.shapes(this.#handle, this.#model.inputs.map(lower), this.#nothing());
      return Object.fromEntries(results.map(([, , shape], i) => [this.#model.outputs[i].name, shape]));
    };
    const done = this.#last.then(start);
    this.#last = done.catch(() => {});
    return done;
  }

  #nothing() {
    return this.#model.outputs.map(() => [0, 0, new BigInt64Array(0), null]);
  }

  // A promise: the session is freed behind its last run.
  close() {
    this.#last = this.#last.then(() => addon.closeSession(this.#handle));
    return this.#last;
  }
}

// Code and weights. `inputs` and `outputs`: { name, type, shape }; a size that is not fixed is its name or formula, shape
// is null where even the rank is known only after a run.
class Model {
  #handle;

  constructor(path, loader) {
    this.#handle = addon.open(path, loader);
    const [inputs, outputs, manifest] = addon.describe(this.#handle);
    this.inputs = Object.freeze(inputs.map(described));
    this.outputs = Object.freeze(outputs.map(described));
    this.manifest = JSON.parse(manifest);
  }

  // threads: 0 for as many as the model was built for.
  session({ threads = 0 } = {}) {
    return new Session(this, addon.create(this.#handle, threads));
  }

  // Its sessions still run: the library is closed behind the last of them.
  close() {
    addon.closeModel(this.#handle);
  }
}

// Opens a library. An artifact is machine code, which this runs: open only what you trust. `loader`: the path of a
// libtilewright, which opens packages too.
function load(path, { loader } = {}) {
  return new Model(path, loader);
}

module.exports = { load, Model, Session };
