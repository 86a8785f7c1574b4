// Models and sessions over an engine, which is what opens files and runs: index.js has that of libraries, wasm.js that of
// WebAssembly modules.
//
// Runs of one session take turns. Errors have a `status`, that of tilewright.h. Models and sessions are freed by `close`,
// else when they are collected.
//
// An engine: describe(model): [inputs, outputs, manifest], both as [name, code, bits, shape]; create(model, threads): a
// session; run(session, inputs, outputs): a promise of the outputs; shapes(session, inputs, outputs): the outputs without
// data; closeSession(session); closeModel(model), which is freed behind its last session. A tensor is [code, bits, shape,
// data]: shape a BigInt64Array and data a typed array or null; of an output, an array of numbers and an ArrayBuffer.

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

export function failure(status, message) {
  return Object.assign(new Error(message), { status });
}

function typeName(code, bits) {
  return Object.keys(TYPES).find((name) => TYPES[name][0] === code && TYPES[name][1] === bits) ?? `code${code}_${bits}`;
}

function described([name, code, bits, shape]) {
  return Object.freeze({ name, type: typeName(code, bits), shape });
}

// A tensor as engines take it. Its type is `type`, else that of the model if that has such arrays, else its array's.
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
export class Session {
  #engine;
  #handle;
  #model;
  #last = Promise.resolve();

  constructor(engine, model, handle) {
    this.#engine = engine;
    this.#model = model;
    this.#handle = handle;
  }

  // A promise of all outputs, by name: { data, shape, type }. `out`: tensors of the caller's for all outputs, into which
  // results are written. Tensors must stay as they are until the promise is settled.
  run(inputs, out) {
    const start = () => {
      const given = ordered(this.#model.inputs, inputs, "inputs");
      const places = out ? ordered(this.#model.outputs, out, "outputs") : this.#nothing();
      return this.#engine.run(this.#handle, given, places);
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
      const results = this.#engine.shapes(this.#handle, this.#model.inputs.map(lower), this.#nothing());
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
    this.#last = this.#last.then(() => this.#engine.closeSession(this.#handle));
    return this.#last;
  }
}

// Code and weights. `inputs` and `outputs`: { name, type, shape }; a size that is not fixed is its name or formula, shape
// is null where even the rank is known only after a run.
export class Model {
  #engine;
  #handle;

  constructor(engine, handle) {
    this.#engine = engine;
    this.#handle = handle;
    const [inputs, outputs, manifest] = engine.describe(handle);
    this.inputs = Object.freeze(inputs.map(described));
    this.outputs = Object.freeze(outputs.map(described));
    this.manifest = JSON.parse(manifest);
  }

  // threads: 0 for as many as the model was built for.
  session({ threads = 0 } = {}) {
    return new Session(this.#engine, this, this.#engine.create(this.#handle, threads));
  }

  // Its sessions still run: it is freed behind the last of them.
  close() {
    this.#engine.closeModel(this.#handle);
  }
}
