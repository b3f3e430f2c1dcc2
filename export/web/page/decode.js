// From a file to an upright RGB picture.

import { orientationOf, upright } from "./orientation.js";
import { decodePng, isPng } from "./png.js";

const ROWS = 256; // that are read at a time: telephones have canvases of few pixels
// What a browser would change for the eye: the colours of the file's profile, and those under transparency.
const AS_STORED = { colorSpaceConversion: "none", premultiplyAlpha: "none", imageOrientation: "from-image" };

// Two pixels side by side whose EXIF says that they stand on each other: does this browser turn a WebP?
const TURNED =
  "UklGRlAAAABXRUJQVlA4WAoAAAAIAAAAAQAAAAAAVlA4TA8AAAAvAQAAAAcQ/Y/+ByKi/wEARVhJRhoAAABNTQAqAAAACAABARIAAwAAAAEABgAAAAAAAA==";

export class Unreadable extends Error {}

function canvas(width, height) {
  if (typeof OffscreenCanvas !== "undefined") return new OffscreenCanvas(width, height);
  throw new Unreadable("This browser is too old to read pictures here. Please update it.");
}

function read(bitmap) {
  const { width, height } = bitmap;
  const data = new Uint8ClampedArray(width * height * 4);
  const rows = Math.min(ROWS, height);
  const context = canvas(width, rows).getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = false;
  for (let y = 0; y < height; y += rows) {
    context.clearRect(0, 0, width, rows);
    context.drawImage(bitmap, 0, -y);
    const part = Math.min(rows, height - y);
    data.set(context.getImageData(0, 0, width, part).data, y * width * 4);
  }
  return { width, height, step: 4, data };
}

function transparent({ data, step }) {
  if (step !== 4) return false;
  for (let i = 3; i < data.length; i += 4) if (data[i] !== 255) return true;
  return false;
}

const word = (bytes, at) => String.fromCharCode(...bytes.subarray(at, at + 4));

const isWebp = (bytes) => word(bytes, 0) === "RIFF" && word(bytes, 8) === "WEBP";

function exifOfWebp(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 12; at + 8 <= bytes.length; ) {
    const length = view.getUint32(at + 4, true);
    if (word(bytes, at) === "EXIF") return bytes.subarray(at + 8, at + 8 + length);
    at += 8 + length + (length & 1);
  }
  return new Uint8Array();
}

async function turnsWebp() {
  const bytes = Uint8Array.from(atob(TURNED), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/webp" }), AS_STORED);
  return bitmap.width === 1;
}

async function uprightWebp(image, blob) {
  const orientation = orientationOf(exifOfWebp(new Uint8Array(await blob.arrayBuffer())));
  return orientation === 1 || (await turnsWebp()) ? image : upright(image, orientation);
}

// {image, transparent}: `transparent` where parts of it were read through the browser, which alters their colours.
export async function decode(blob, maxPixels) {
  const start = new Uint8Array(await blob.slice(0, 16).arrayBuffer());
  if (isPng(start)) {
    try {
      return { image: await decodePng(new Uint8Array(await blob.arrayBuffer()), maxPixels), transparent: false };
    } catch (error) {
      if (error instanceof RangeError) throw new Unreadable(`This picture is too large: ${error.message}.`);
      throw new Unreadable("This file is damaged, or no picture.");
    }
  }
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, AS_STORED);
  } catch {
    const tiff = (start[0] === 0x49 && start[1] === 0x49) || (start[0] === 0x4d && start[1] === 0x4d);
    throw new Unreadable(
      tiff ? "This browser cannot read TIFF. Please save it as PNG." : "This file is damaged, or no picture that this browser can read.",
    );
  }
  try {
    if (bitmap.width * bitmap.height > maxPixels) {
      throw new Unreadable(`This picture is too large: ${bitmap.width} x ${bitmap.height} pixels.`);
    }
    const image = read(bitmap);
    const clear = transparent(image);
    return { image: isWebp(start) ? await uprightWebp(image, blob) : image, transparent: clear };
  } finally {
    bitmap.close();
  }
}
