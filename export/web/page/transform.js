// From a picture to what the network takes: Calibrant's evaluation transform, the same pixels as the server's.

import { crop, downFirst, resize } from "./resample.js";

const MAX_PIXELS = 100_000_000;
const REACH = 3; // of the widest filter, in pixels of the result where it is smaller

// As Python rounds: halves to the even number.
function rounded(value) {
  const below = Math.floor(value);
  const rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

const offset = (whole, part) => Math.max(0, rounded((whole - part) / 2));

function wholeSize({ width, height }, side) {
  if (width <= height) return { width: side, height: Math.trunc((side * height) / width) };
  return { width: Math.trunc((side * width) / height), height: side };
}

function centreBox(image, whole, size) {
  const left = offset(whole.width, size.width);
  const top = offset(whole.height, size.height);
  const sx = image.width / whole.width;
  const sy = image.height / whole.height;
  const right = Math.min((left + size.width) * sx, image.width);
  const bottom = Math.min((top + size.height) * sy, image.height);
  return [left * sx, top * sy, right, bottom];
}

function coverBox(image, size, side) {
  const share = Math.min(1, Math.min(size.width, size.height) / side);
  const scale = Math.min(image.width / size.width, image.height / size.height) * share;
  const width = scale * size.width;
  const height = scale * size.height;
  const left = (image.width - width) / 2;
  const top = (image.height - height) / 2;
  return [left, top, left + width, top + height];
}

function acrossThenDown(image, size, interpolation, [left, top, right, bottom], ordered) {
  const margin = REACH * Math.max(1, (bottom - top) / size.height) + 2;
  const first = Math.max(0, Math.trunc(top - margin));
  const last = Math.min(image.height, Math.trunc(bottom + margin) + 1);
  const rows = crop(image, 0, first, image.width, last - first);
  const wide = resize(rows, size.width, rows.height, interpolation, [left, 0, right, rows.height], ordered);
  const box = [0, top - first, size.width, bottom - first];
  return resize(wide, size.width, size.height, interpolation, box, ordered);
}

// {width, height, step: 3, data} of the size that the network takes.
export function pixels(image, { size: [height, width], resize: side, crop: kind, interpolation }, ordered = true) {
  const size = { width, height };
  if (kind === "squash") return resize(image, width, height, interpolation, null, ordered);
  if (kind === "cover") return resize(image, width, height, interpolation, coverBox(image, size, side), ordered);
  const whole = wholeSize(image, side);
  if ((interpolation === "nearest" || interpolation === "box") && whole.width * whole.height <= MAX_PIXELS) {
    const all = resize(image, whole.width, whole.height, interpolation, null, ordered);
    return crop(all, offset(whole.width, width), offset(whole.height, height), width, height);
  }
  const box = centreBox(image, whole, size);
  if (ordered && downFirst(image, size) && !downFirst(image, whole)) {
    return acrossThenDown(image, size, interpolation, box, ordered);
  }
  return resize(image, width, height, interpolation, box, ordered);
}

// The values of one row of the graph's input, from RGB bytes by row and column.
export function modelInput(rgb, { dtype, layout }, { mean, std }) {
  if (dtype === "uint8" && layout === "NHWC") return rgb;
  const plane = rgb.length / 3;
  const values = dtype === "uint8" ? new Uint8Array(rgb.length) : new Float32Array(rgb.length);
  for (let c = 0; c < 3; c++) {
    const scale = Math.fround(1 / (255 * std[c]));
    const shift = Math.fround(mean[c] / std[c]);
    for (let p = 0; p < plane; p++) {
      const byte = rgb[p * 3 + c];
      values[c * plane + p] = dtype === "uint8" ? byte : Math.fround(byte * scale) - shift;
    }
  }
  return values;
}
