// Classifies an image with an exported network of ImageNet's kind (resnet50 and others).
//
//   node classify.js model.so picture.ppm
//
// A picture is P6, of any size; other files are float32 values of the network's input, already normalized.
import fs from "node:fs";
import { load } from "tilewright";

const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];

// The nearest pixels of a picture, as planes of normalized red, green and blue.
function readPicture(file, height, width) {
  const head = file.toString("latin1", 0, 100).match(/^P6\s+(\d+)\s+(\d+)\s+255\s/);
  if (!head) throw new Error("expected a PPM of 8 bits");
  const [w, h] = [Number(head[1]), Number(head[2])];
  const pixels = file.subarray(head[0].length);
  if (pixels.length < w * h * 3) throw new Error("the picture is cut off");
  const x = new Float32Array(3 * height * width);
  let at = 0;
  for (let c = 0; c < 3; c++)
    for (let i = 0; i < height; i++)
      for (let j = 0; j < width; j++) {
        const near = Math.floor((i * h) / height) * w + Math.floor((j * w) / width);
        x[at++] = (pixels[near * 3 + c] / 255 - MEAN[c]) / DEVIATION[c];
      }
  return x;
}

function readValues(file) {
  return new Float32Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
}

async function classify(path, image) {
  const model = load(path);
  const [input] = model.inputs;
  const [output] = model.outputs;
  const [, , height, width] = input.shape;
  if (input.shape.length !== 4 || !(height > 0) || !(width > 0)) throw new Error("expected a network for images");
  const file = fs.readFileSync(image);
  const isPicture = file.toString("latin1", 0, 2) === "P6";
  const data = isPicture ? readPicture(file, height, width) : readValues(file);

  const session = model.session();
  const results = await session.run({ [input.name]: { data, shape: [1, 3, height, width] } });
  const scores = results[output.name].data;
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a]);
  for (const i of order.slice(0, 5)) console.log(`${String(i).padStart(4)} ${scores[i].toFixed(4).padStart(9)}`);
  await session.close();
  model.close();
}

const words = process.argv.slice(2);
const done = words.length === 2 ? classify(...words) : Promise.reject(new Error("usage: classify MODEL IMAGE"));
done.catch((error) => {
  console.error(`classify: ${error.message}`);
  process.exitCode = 1;
});
