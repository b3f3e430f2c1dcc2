// Which side of a picture is up. Of JPEG browsers know it by themselves; of PNG and WebP some do.

// By an EXIF block: 1 to 8.
export function orientationOf(block) {
  const named = String.fromCharCode(...block.subarray(0, 4)) === "Exif"; // some writers put a JPEG's prefix before it
  const exif = named ? block.subarray(6) : block;
  if (exif.length < 8) return 1;
  const view = new DataView(exif.buffer, exif.byteOffset, exif.byteLength);
  const little = view.getUint16(0) === 0x4949;
  const start = view.getUint32(4, little);
  if (start + 2 > exif.length) return 1;
  const entries = view.getUint16(start, little);
  for (let i = 0, at = start + 2; i < entries && at + 12 <= exif.length; i++, at += 12) {
    if (view.getUint16(at, little) === 0x0112) return view.getUint16(at + 8, little);
  }
  return 1;
}

// Where pixel (x, y) of the upright picture lies in one of sides w, h, by EXIF's number.
const PLACES = {
  2: (x, y, w) => [w - 1 - x, y],
  3: (x, y, w, h) => [w - 1 - x, h - 1 - y],
  4: (x, y, w, h) => [x, h - 1 - y],
  5: (x, y) => [y, x],
  6: (x, y, w, h) => [y, h - 1 - x],
  7: (x, y, w, h) => [w - 1 - y, h - 1 - x],
  8: (x, y, w) => [w - 1 - y, x],
};

export function upright(image, orientation) {
  const place = PLACES[orientation];
  if (place === undefined) return image;
  const { width: w, height: h, step } = image;
  const [width, height] = orientation >= 5 ? [h, w] : [w, h];
  const data = new Uint8Array(image.data.length);
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++, to += step) {
      const [u, v] = place(x, y, w, h);
      for (let c = 0; c < step; c++) data[to + c] = image.data[(v * w + u) * step + c];
    }
  }
  return { width, height, step, data };
}
