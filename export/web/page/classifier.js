// The worker that answers: pictures in, answers out, so that the page never stands still.

import { answer } from "./answer.js";
import { decode, Unreadable } from "./decode.js";
import { agreesWithGolden } from "./golden.js";
import * as ort from "./onnxruntime/ort.js";
import { modelInput, pixels } from "./transform.js";

const here = (name) => new URL(name, import.meta.url).href;

async function start() {
  const settings = await (await fetch(here("settings.json"))).json();
  ort.env.wasm.numThreads = 1; // more need headers that a plain host does not send
  ort.env.wasm.wasmPaths = { wasm: here("onnxruntime/ort.wasm") };
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(here("model.onnx"), {
    executionProviders: ["wasm"],
    logSeverityLevel: 3,
    externalData: settings.external.map((path) => ({ path, data: here(path) })),
  });
  const run = async (values) => {
    const { name, dtype, layout, rows } = settings.input;
    const [height, width] = settings.preprocessing.size;
    const shape = layout === "NHWC" ? [rows, height, width, 3] : [rows, 3, height, width];
    const batch = new values.constructor(values.length * rows);
    for (let row = 0; row < rows; row++) batch.set(values, row * values.length); // a file may take no fewer
    const found = await session.run({ [name]: new ort.Tensor(dtype, batch, shape) });
    const firstRow = ([key, { data }]) => [key, data.slice(0, data.length / rows)];
    return Object.fromEntries(Object.entries(found).map(firstRow));
  };
  if (!(await agreesWithGolden(run, settings))) {
    throw new Unreadable("This device computes other answers than the model gave where it was made, so it gives none.");
  }
  return { settings, run };
}

async function classify(blob, { settings, run }) {
  const { image, transparent } = await decode(blob, settings.max_pixels);
  const seen = pixels(image, settings.preprocessing, settings.ordered_passes);
  const outputs = await run(modelInput(seen.data, settings.input, settings.preprocessing));
  const { width, height } = image;
  return { ...answer(outputs, settings), seen, transparent, width, height };
}

const told = (error, otherwise) =>
  error instanceof Unreadable ? error.message : `${otherwise} (${error.message ?? error}).`;
const NOT_LOADED = "The model could not be loaded. Load the page again where there is a network: it goes on where it stopped";

const started = start();
started.then(
  ({ settings }) => postMessage({ settings }),
  (error) => postMessage({ failed: told(error, NOT_LOADED) }),
);

let turn = Promise.resolve(); // one picture after another
onmessage = ({ data: { id, blob } }) => {
  turn = turn.then(async () => {
    try {
      postMessage({ id, answer: await classify(blob, await started) });
    } catch (error) {
      postMessage({ id, error: told(error, "It did not work") });
    }
  });
};
