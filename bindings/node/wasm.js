// Models that tilewright exported as WebAssembly modules, for browsers and Node: nothing is installed or compiled.
//
//   import { load } from "./wasm.js";
//   const model = await load(fetch("model.wasm"));
//   const session = model.session();
//   const { y } = await session.run({ x: { data: new Float32Array(4 * 32), shape: [4, 32] } });
//
// A run blocks the thread that it is called on: a page that must stay awake has this in a Worker. Every `load` makes a module
// with memory of its own, which goes when the model and its sessions are collected; `close` frees them before.
import { Model, Session, failure } from "./model.js";

const INVALID_ARGUMENT = 1;
const INVALID_ARTIFACT = 3;
const OUT_OF_MEMORY = 5;
const SYSTEM = 7;

// Structures of tilewright.h where pointers have 32 bits: their sizes, and where their parts are.
const TENSOR = { size: 40, data: 0, device: 4, ndim: 12, dtype: 16, shape: 20 };
const SPEC = { size: 20, name: 0, dtype: 4, ndim: 8, shape: 12, dims: 16 };
const OPTIONS = { size: 16, threads: 0 };

// A module, in which there is one model. Its users: the model's object, and its sessions'.
class Module {
  #functions;
  #model;
  #users = 1;

  constructor(functions) {
    this.#functions = functions;
    functions._initialize();
    this.#model = this.#made((place) => functions.tw_model_load(0, place));
  }

  describe() {
    const tw = this.#functions;
    return [
      this.#specs(tw.tw_model_input_count(this.#model), tw.tw_model_input),
      this.#specs(tw.tw_model_output_count(this.#model), tw.tw_model_output),
      this.#text(tw.tw_model_manifest(this.#model)),
    ];
  }

  create(threads) {
    const session = this.#scratch((take) => {
      const options = take(OPTIONS.size);
      this.#view().setInt32(options + OPTIONS.threads, threads, true);
      return this.#made((place) => this.#functions.tw_session_create(this.#model, options, place));
    });
    this.#users++;
    return session;
  }

  // `call`: tw_session_run, or tw_session_shapes, which gives no data. Results are copied, to the arrays of outputs too.
  run(call, session, inputs, outputs) {
    const withData = call === "tw_session_run";
    return this.#scratch((take) => {
      const [given, results] = [this.#tensors(take, inputs), this.#tensors(take, outputs)];
      this.#require(this.#functions[call](session, given, inputs.length, results, outputs.length));
      return outputs.map(([, , , data], i) => this.#result(results + TENSOR.size * i, data, withData));
    });
  }

  closeSession(session) {
    this.#functions.tw_session_free(session);
    this.release();
  }

  release() {
    if (--this.#users === 0) this.#functions.tw_model_free(this.#model);
  }

  #view() {
    return new DataView(this.#functions.memory.buffer);
  }

  #bytes(at, size) {
    return new Uint8Array(this.#functions.memory.buffer, at, size);
  }

  #text(at) {
    if (at === 0) return null;
    const rest = this.#bytes(at >>> 0);
    return new TextDecoder().decode(rest.slice(0, rest.indexOf(0)));
  }

  #require(status) {
    if (status !== 0) throw failure(status, this.#text(this.#functions.tw_error()));
  }

  // What `work` gives. It is given a function for memory, of zeros, which is freed behind it.
  #scratch(work) {
    const taken = [];
    const take = (size) => {
      const at = this.#functions.malloc(size || 1) >>> 0;
      if (at === 0) throw failure(OUT_OF_MEMORY, `no ${size} bytes are left in the module's memory`);
      taken.push(at);
      this.#bytes(at, size).fill(0);
      return at;
    };
    try {
      return work(take);
    } finally {
      taken.forEach((at) => this.#functions.free(at));
    }
  }

  // The pointer that a function writes where it is told to.
  #made(make) {
    return this.#scratch((take) => {
      const place = take(4);
      this.#require(make(place));
      return this.#view().getUint32(place, true);
    });
  }

  #specs(count, describe) {
    return this.#scratch((take) => {
      const spec = take(SPEC.size);
      return Array.from({ length: count }, (_, index) => {
        this.#require(describe(this.#model, index, spec));
        const view = this.#view();
        const [name, sizes, dims] = [SPEC.name, SPEC.shape, SPEC.dims].map((part) => view.getUint32(spec + part, true));
        const size = (k) => this.#text(view.getUint32(dims + 4 * k, true)) ?? Number(view.getBigInt64(sizes + 8 * k, true));
        const rank = view.getInt32(spec + SPEC.ndim, true);
        const shape = rank < 0 ? null : Array.from({ length: rank }, (_, k) => size(k));
        return [this.#text(name), view.getUint8(spec + SPEC.dtype), view.getUint8(spec + SPEC.dtype + 1), shape];
      });
    });
  }

  #tensors(take, list) {
    const first = take(TENSOR.size * list.length);
    list.forEach(([code, bits, shape, data], i) => {
      const [at, sizes, place] = [first + TENSOR.size * i, take(8 * shape.length), data ? take(data.byteLength) : 0];
      if (data) this.#bytes(place, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      const view = this.#view();
      shape.forEach((size, k) => view.setBigInt64(sizes + 8 * k, size, true));
      view.setUint32(at + TENSOR.data, place, true);
      view.setInt32(at + TENSOR.device, 1, true);
      view.setInt32(at + TENSOR.ndim, shape.length, true);
      view.setUint32(at + TENSOR.dtype, code | (bits << 8) | (1 << 16), true);
      view.setUint32(at + TENSOR.shape, sizes, true);
    });
    return first;
  }

  #result(at, into, withData) {
    const view = this.#view();
    const [code, bits] = [view.getUint8(at + TENSOR.dtype), view.getUint8(at + TENSOR.dtype + 1)];
    const [rank, sizes] = [view.getInt32(at + TENSOR.ndim, true), view.getUint32(at + TENSOR.shape, true)];
    const shape = rank < 0 ? null : Array.from({ length: rank }, (_, k) => Number(view.getBigInt64(sizes + 8 * k, true)));
    if (!withData) return [code, bits, shape, null];
    const size = shape.reduce((all, n) => all * n, Math.ceil(bits / 8));
    const bytes = this.#bytes(size ? view.getUint32(at + TENSOR.data, true) : 0, size);
    if (into) new Uint8Array(into.buffer, into.byteOffset, into.byteLength).set(bytes);
    return [code, bits, shape, into ? into.buffer : bytes.slice().buffer];
  }
}

// The module of a handle; the module is null once the handle is closed.
function held(handle, what) {
  if (handle.module === null) throw failure(INVALID_ARGUMENT, `the ${what} is closed`);
  return handle.module;
}

function close(handle, release) {
  const { module } = handle;
  handle.module = null;
  if (module !== null) release(module);
}

const engine = {
  describe: (model) => held(model, "model").describe(),
  create(model, threads) {
    const module = held(model, "model");
    return { module, session: module.create(threads) };
  },
  async run(handle, inputs, outputs) {
    return held(handle, "session").run("tw_session_run", handle.session, inputs, outputs);
  },
  shapes: (handle, inputs, outputs) => held(handle, "session").run("tw_session_shapes", handle.session, inputs, outputs),
  closeSession: (handle) => close(handle, (module) => module.closeSession(handle.session)),
  closeModel: (model) => close(model, (module) => module.release()),
};

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  const isResponse = typeof Response !== "undefined" && source instanceof Response;
  if (isResponse && !source.ok) throw failure(SYSTEM, `${source.url}: ${source.status} ${source.statusText}`);
  try {
    return await WebAssembly.compile(isResponse ? await source.arrayBuffer() : source);
  } catch (error) {
    throw failure(INVALID_ARTIFACT, error.message);
  }
}

// A promise of a model. `source`: the bytes of a module, what `fetch` gives, or a WebAssembly.Module, which Workers can share.
export async function load(source) {
  const module = await compiled(await source);
  if (!WebAssembly.Module.exports(module).some(({ name }) => name === "tw_model_load"))
    throw failure(INVALID_ARTIFACT, "expected a WebAssembly module that tilewright exported");
  let memory = null;
  const clock_time_get = (clock, precision, place) => {
    new DataView(memory.buffer).setBigUint64(place >>> 0, BigInt(Math.round(performance.now() * 1e6)), true);
    return 0;
  };
  const { exports } = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: { clock_time_get } });
  memory = exports.memory;
  return new Model(engine, { module: new Module(exports) });
}

export { Model, Session };
