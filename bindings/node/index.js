// Models that tilewright exported: shared libraries, opened by path. For WebAssembly modules see wasm.js.
//
//   import { load } from "tilewright";
//   const model = load("model.so");
//   const session = model.session();
//   const { y } = await session.run({ x: { data: new Float32Array(4 * 32), shape: [4, 32] } });
//
// Runs do not block: they are computed on other threads.
import { createRequire } from "node:module";
import { Model, Session } from "./model.js";

const addon = createRequire(import.meta.url)("./build/tilewright.node");

// Opens a library. An artifact is machine code, which this runs: open only what you trust. `loader`: the path of a
// libtilewright, which opens packages too, and looks at digests before it runs anything.
export function load(path, { loader } = {}) {
  return new Model(addon, addon.open(path, loader));
}

export { Model, Session };
