// Questions that the file was asked when it was made, and whether it answers them here as it did there.

import { modelInput } from "./transform.js";

const whole = Math.trunc;

// Bands and gradients by a formula of whole numbers: the same everywhere.
function question(n, [height, width]) {
  const rgb = new Uint8Array(height * width * 3);
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const slope = 255 * (whole((x * (n + 1)) / width) + whole((y * (3 - (n % 3))) / height));
      const bands = (whole(x / 8) + whole(y / 8) * (n + 1)) * 23;
      for (let c = 0; c < 3; c++, to++) rgb[to] = (slope + 61 * c + 97 * n + bands) % 256;
    }
  }
  return rgb;
}

export async function agreesWithGolden(run, settings) {
  const { golden, preprocessing, input } = settings;
  if (golden === null) return true;
  for (const [n, classes] of golden.classes.entries()) {
    const { probabilities } = await run(modelInput(question(n, preprocessing.size), input, preprocessing));
    const far = (k, i) => !(Math.abs(probabilities[k] - golden.probabilities[n][i]) <= golden.tolerance);
    if (classes.some(far)) return false;
  }
  return true;
}
