// What bindings/node/wasm.js is tried with, in Node and in browsers; see test_wasm.py. `read(name)`: a promise of the bytes of
// a file, or of a response; `write(name, data)`: a promise.
import { load } from './wasm.js';

async function refused(promise) {
  return promise.then(
    () => 'expected an error',
    (error) => `error ${error.status} ${error.message}`,
  );
}

export async function check(read, write) {
  const model = await load(read('model.wasm'));
  const said = [
    ...model.inputs.map((s) => `input ${s.name} ${s.type} [${s.shape.join(', ')}]`),
    ...model.outputs.map((s) => `output ${s.name} ${s.type} [${s.shape.join(', ')}]`),
    `target ${model.manifest.target.triple}`,
  ];
  const bytes = await read('x.bin');
  const data = new Float32Array(bytes instanceof Response ? await bytes.arrayBuffer() : bytes.buffer.slice(bytes.byteOffset));
  const session = model.session();
  const other = model.session({ threads: 1 });
  model.close(); // its sessions keep what they need
  const inputs = (rows) => ({ x: { data: data.subarray(0, 32 * rows), shape: [rows, 32] } });
  said.push(`shapes [${(await session.shapes({ x: [7, 32] })).y.join(', ')}]`);

  const results = await Promise.all([1, 9, 0].map((rows) => session.run(inputs(rows))));
  said.push(...results.map(({ y }) => `y ${y.type} [${y.shape.join(', ')}]`));
  await write('one.bin', results[0].y.data);
  await write('nine.bin', results[1].y.data);
  const y = { data: new Float32Array(90), shape: [9, 10] };
  if ((await other.run(inputs(9), { y })).y !== y) said.push('expected the tensor that was given');
  await write('given.bin', y.data);

  said.push(await refused(session.run({ x: { data: data.subarray(0, 62), shape: [2, 31] } })));
  said.push(await refused(session.run(inputs(9), { y: { data: new Float32Array(81), shape: [9, 9] } })));
  said.push(await refused(session.run({ z: inputs(1).x })));
  said.push((await refused(load(new Uint8Array([1, 2, 3])))).slice(0, 7));
  said.push(await refused(load(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0])))); // an empty module
  await session.close();
  said.push(await refused(session.run(inputs(1))));
  try {
    model.session();
  } catch (error) {
    said.push(`error ${error.status} ${error.message}`);
  }
  await other.close();
  await write('said.txt', said.join('\n'));
}
