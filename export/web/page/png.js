// PNG to RGB, by the bytes that are in the file: no colour management, no gamma, colours under transparency as they
// are, of 16 bits the upper eight. So does the server; a browser's canvas changes each of these.

import { orientationOf, upright } from "./orientation.js";

const SIGNATURE = [137, 80, 78, 71, 13, 10, 26, 10];
const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
// Adam7: where each of the seven small pictures begins, and its steps.
const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];

export const isPng = (bytes) => SIGNATURE.every((value, i) => bytes[i] === value);

async function inflated(parts) {
  const stream = new Blob(parts).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function chunksOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const chunks = [];
  for (let at = 8; at + 12 <= bytes.length; ) {
    const length = view.getUint32(at);
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (at + 12 + length > bytes.length) throw new Error("the file ends too early");
    chunks.push({ name, data: bytes.subarray(at + 8, at + 8 + length) });
    at += 12 + length;
    if (name === "IEND") break;
  }
  return chunks;
}

const paeth = (a, b, c) => {
  const pa = Math.abs(b - c);
  const pb = Math.abs(a - c);
  const pc = Math.abs(a + b - 2 * c);
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
};

// Undoes the filter of one row in place; `above` is the finished row before it, or zeros.
function unfilter(kind, row, above, bpp) {
  for (let i = 0; i < row.length; i++) {
    const a = i >= bpp ? row[i - bpp] : 0;
    const b = above[i];
    const c = i >= bpp ? above[i - bpp] : 0;
    if (kind === 1) row[i] += a;
    else if (kind === 2) row[i] += b;
    else if (kind === 3) row[i] += (a + b) >> 1;
    else if (kind === 4) row[i] += paeth(a, b, c);
    else if (kind !== 0) throw new Error("damaged");
  }
}

// The upper eight bits of sample i of a row, or all of a smaller one.
function sample(row, i, depth) {
  if (depth === 8) return row[i];
  if (depth === 16) return row[2 * i];
  return (row[(i * depth) >> 3] >> (8 - depth - ((i * depth) & 7))) & ((1 << depth) - 1);
}

export async function decodePng(bytes, maxPixels) {
  const chunks = chunksOf(bytes);
  const one = (name) => chunks.find((chunk) => chunk.name === name)?.data;
  const head = one("IHDR");
  if (head === undefined || head.length !== 13) throw new Error("damaged");
  const view = new DataView(head.buffer, head.byteOffset, 13);
  const [width, height, depth, kind, interlaced] = [view.getUint32(0), view.getUint32(4), head[8], head[9], head[12]];
  if (width * height > maxPixels) throw new RangeError(`${width} x ${height} pixels are too many`);
  const channels = CHANNELS[kind];
  if (!channels || !width || !height || ![1, 2, 4, 8, 16].includes(depth)) throw new Error("damaged");
  const palette = new Uint8Array(768); // what lies beyond its end is black
  if (kind === 3) palette.set((one("PLTE") ?? new Uint8Array()).subarray(0, 768));
  const raw = await inflated(chunks.filter((chunk) => chunk.name === "IDAT").map((chunk) => chunk.data));
  const data = new Uint8Array(width * height * 3);
  const bits = channels * depth;
  const full = depth < 8 && kind === 0 ? 255 / ((1 << depth) - 1) : 1; // greys of few bits are spread over 0..255
  let at = 0;
  for (const [x0, y0, dx, dy] of interlaced ? PASSES : [[0, 0, 1, 1]]) {
    const [w, h] = [Math.ceil((width - x0) / dx), Math.ceil((height - y0) / dy)];
    if (w <= 0 || h <= 0) continue;
    const length = Math.ceil((w * bits) / 8);
    let above = new Uint8Array(length);
    for (let y = 0; y < h; y++, at += length + 1) {
      if (at + 1 + length > raw.length) throw new Error("the file ends too early");
      const row = raw.subarray(at + 1, at + 1 + length);
      unfilter(raw[at], row, above, Math.max(1, bits >> 3));
      above = row;
      for (let x = 0; x < w; x++) {
        const to = ((y0 + y * dy) * width + x0 + x * dx) * 3;
        for (let c = 0; c < 3; c++) {
          const value = sample(row, x * channels + (channels >= 3 ? c : 0), depth);
          data[to + c] = kind === 3 ? palette[value * 3 + c] : value * full;
        }
      }
    }
  }
  return upright({ width, height, step: 3, data }, orientationOf(one("eXIf") ?? new Uint8Array()));
}
