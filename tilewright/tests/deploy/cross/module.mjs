// Runs a model in a WebAssembly module on one input of float32: node module.mjs MODEL.wasm SHAPE INPUT OUTPUT
// Prints the shape of the output, or the message, and needs no system interface but a clock.
import { readFileSync, writeFileSync } from 'node:fs';

const [file, shape, input, output] = process.argv.slice(2);
const clock = { clock_time_get: () => 0 };
const { instance } = await WebAssembly.instantiate(readFileSync(file), { wasi_snapshot_preview1: clock });
const tw = instance.exports;
tw._initialize();
const view = () => new DataView(tw.memory.buffer);
const text = (at) => {
  const bytes = new Uint8Array(tw.memory.buffer, at);
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
};
const require = (status) => {
  if (status === 0) return;
  console.error(text(tw.tw_error()));
  process.exit(10 + status);
};

const place = tw.malloc(8);
require(tw.tw_model_load(0, place));
const model = view().getUint32(place, true);
require(tw.tw_session_create(model, 0, place));
const session = view().getUint32(place, true);

// a tw_tensor: data 0, device 4, ndim 12, dtype 16, shape 20, strides 24, byte_offset 32; 40 bytes
const sizes = shape.split('x').map(BigInt);
const data = readFileSync(input);
const tensors = tw.malloc(80);
const dims = tw.malloc(8 * sizes.length);
const values = tw.malloc(data.length + 1);
new Uint8Array(tw.memory.buffer, tensors, 80).fill(0);
new Uint8Array(tw.memory.buffer, values, data.length).set(data);
sizes.forEach((n, i) => view().setBigInt64(dims + 8 * i, n, true));
view().setUint32(tensors, values, true);
view().setInt32(tensors + 4, 1, true);
view().setInt32(tensors + 12, sizes.length, true);
view().setUint32(tensors + 16, 2 | 32 << 8 | 1 << 16, true);
view().setUint32(tensors + 20, dims, true);
require(tw.tw_session_run(session, tensors, 1, tensors + 40, 1));

const rank = view().getInt32(tensors + 52, true);
const at = view().getUint32(tensors + 60, true);
const got = Array.from({ length: rank }, (_, i) => Number(view().getBigInt64(at + 8 * i, true)));
const bytes = 4 * got.reduce((a, b) => a * b, 1);
writeFileSync(output, new Uint8Array(tw.memory.buffer, view().getUint32(tensors + 40, true), bytes));
console.log(got.join('x'));
tw.tw_session_free(session);
tw.tw_model_free(model);
