// What every binding is tried with; see test_bindings.py.
import assert from "node:assert";
import fs from "node:fs";
import { load } from "tilewright";

function show(model) {
  for (const s of model.inputs) console.log(`input ${s.name} ${s.type} [${s.shape.join(", ")}]`);
  for (const s of model.outputs) console.log(`output ${s.name} ${s.type} [${s.shape.join(", ")}]`);
}

function values(path) {
  const file = fs.readFileSync(path);
  return new Float32Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
}

async function refused(promise) {
  return promise.then(
    () => assert.fail("expected an error"),
    (error) => error,
  );
}

async function main([first, second, xs, pictures, loader, packed]) {
  const models = [load(first), load(second)];
  models.forEach(show);
  const [a, b] = models.map((model, i) => model.session({ threads: 2 - i }));
  models[0].close(); // its session keeps what it needs
  const x = { data: values(xs), shape: [5, 32] };
  const picture = { data: values(pictures), shape: [1, 3, 32, 32] };
  const { y: shape } = await a.shapes({ x: [7, 32] });
  console.log(`shapes [${shape.join(", ")}]`);
  const many = Array.from({ length: 10 }, (_, i) => (i % 2 ? b.run({ x: picture }) : a.run({ x })));
  const results = await Promise.all(many);
  fs.writeFileSync("y.bin", results[8].y.data);
  fs.writeFileSync("scores.bin", results[9].y.data);
  const y = { data: new Float32Array(50), shape: [5, 10] };
  assert.strictEqual((await a.run({ x }, { y })).y, y);
  fs.writeFileSync("given.bin", y.data);
  const third = load(packed, { loader }).session({ threads: 1 });
  fs.writeFileSync("packed.bin", (await third.run({ x })).y.data);
  let error = await refused(a.run({ x: { data: x.data.subarray(0, 155), shape: [5, 31] } }));
  console.log(`error ${error.status} ${error.message}`);
  error = await refused(a.run({ x }, { y: { data: new Float32Array(45), shape: [5, 9] } }));
  console.log(`error ${error.status} ${error.message}`);
  assert.throws(
    () => load("lost.so"),
    (lost) => {
      console.log(`error ${lost.status}`);
      return true;
    },
  );
  assert.throws(
    () => load("damaged.so", { loader }),
    (damaged) => {
      console.log(`error ${damaged.status} ${damaged.message}`);
      return true;
    },
  );
  assert.match((await refused(a.run({ z: x }))).message, /missing \[x\], unknown \[z\]/);
  assert.match((await refused(a.run({ x: { data: x.data, shape: [5, 33] } }))).message, /expected 165 elements/);
  assert.match((await refused(a.run({ x: { data: new Float64Array(160), shape: [5, 32] } }))).message, /float32, got float64/);
  const last = a.run({ x });
  await a.close();
  assert.strictEqual((await last).y.shape[0], 5);
  assert.match((await refused(a.run({ x }))).message, /closed/);
  await b.close();
  models[1].close();
  assert.throws(() => models[1].session(), /closed/);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
