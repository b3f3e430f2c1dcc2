// Pillow's resize of 8-bit pictures, to the bit: its weights in fixed point, its rounding between the two passes, and
// its boxes in single precision. A browser's own resize is no substitute: its pixels are others.
//
// A picture is {width, height, step, data}: rows of pixels of `step` bytes (3 or 4), of which the first three count.

const BITS = 22; // of the fraction of a weight
const HALF = 1 << (BITS - 1);

const sinc = (x) => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));

// Reach of each filter to either side, and its weight at a distance.
const FILTERS = {
  box: [0.5, (x) => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  hamming: [1, (x) => {
    const t = Math.abs(x);
    if (t >= 1) return 0;
    return sinc(t) * (Math.fround(0.54) + Math.fround(0.46) * Math.cos(t * Math.PI));
  }],
  bicubic: [2, (x) => {
    const t = Math.abs(x);
    if (t < 1) return (1.5 * t - 2.5) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * -0.5 : 0;
  }],
  lanczos: [3, (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
};

// For each of `count` pixels: the first one read, how many, and their weights, of the part from..to of `size` pixels.
function weightsOf(size, from, to, count, [reach, weight]) {
  const scale = Math.fround(to - from) / count; // the difference of two floats is rounded to a float there
  const stretch = Math.max(1, scale);
  const support = reach * stretch;
  const inverse = 1 / stretch;
  const taps = Math.ceil(support) * 2 + 1;
  const first = new Int32Array(count);
  const used = new Int32Array(count);
  const fixed = new Int32Array(count * taps);
  const values = new Float64Array(taps);
  for (let i = 0; i < count; i++) {
    const centre = from + (i + 0.5) * scale;
    const start = Math.max(0, Math.trunc(centre - support + 0.5));
    const n = Math.min(size, Math.trunc(centre + support + 0.5)) - start;
    let sum = 0;
    for (let k = 0; k < n; k++) sum += values[k] = weight((k + start - centre + 0.5) * inverse);
    for (let k = 0; k < n; k++) {
      const w = (sum === 0 ? values[k] : values[k] / sum) * (1 << BITS);
      fixed[i * taps + k] = Math.trunc(w < 0 ? w - 0.5 : w + 0.5);
    }
    first[i] = start;
    used[i] = n;
  }
  return { taps, first, used, fixed };
}

const clip = (sum) => (sum < 0 ? 0 : sum >> BITS > 255 ? 255 : sum >> BITS);

// A line of `count` pixels of the result from a line of the source; steps in bytes along both.
function line(source, at, along, result, to, stride, count, { taps, first, used, fixed }) {
  for (let i = 0; i < count; i++, to += stride) {
    let red = HALF, green = HALF, blue = HALF;
    let p = at + first[i] * along;
    for (let k = i * taps, end = k + used[i]; k < end; k++, p += along) {
      const w = fixed[k];
      red = (red + Math.imul(source[p], w)) | 0;
      green = (green + Math.imul(source[p + 1], w)) | 0;
      blue = (blue + Math.imul(source[p + 2], w)) | 0;
    }
    result[to] = clip(red);
    result[to + 1] = clip(green);
    result[to + 2] = clip(blue);
  }
}

function across(image, width, left, right, filter, firstRow, lastRow) {
  const weights = weightsOf(image.width, left, right, width, filter);
  const data = new Uint8Array(width * image.height * 3);
  for (let y = firstRow; y < lastRow; y++) {
    line(image.data, y * image.width * image.step, image.step, data, y * width * 3, 3, width, weights);
  }
  return { width, height: image.height, step: 3, data };
}

// Row by row of the result, so that memory is read in its order.
function down(image, height, top, bottom, filter) {
  const { taps, first, used, fixed } = weightsOf(image.height, top, bottom, height, filter);
  const { width, step, data } = image;
  const result = new Uint8Array(width * height * 3);
  const sums = new Int32Array(width * 3);
  for (let y = 0; y < height; y++) {
    sums.fill(HALF);
    for (let k = 0; k < used[y]; k++) {
      const w = fixed[y * taps + k];
      let p = (first[y] + k) * width * step;
      for (let x = 0; x < sums.length; x += 3, p += step) {
        sums[x] += Math.imul(data[p], w);
        sums[x + 1] += Math.imul(data[p + 1], w);
        sums[x + 2] += Math.imul(data[p + 2], w);
      }
    }
    for (let x = 0; x < sums.length; x++) result[y * sums.length + x] = clip(sums[x]);
  }
  return { width, height, step: 3, data: result };
}

function nearest(image, width, height, [left, top, right, bottom]) {
  const stepX = Math.fround(right - left) / width;
  const stepY = Math.fround(bottom - top) / height;
  const result = new Uint8Array(width * height * 3);
  for (let y = 0, v = top + stepY * 0.5, to = 0; y < height; y++, v += stepY) {
    for (let x = 0, u = left + stepX * 0.5; x < width; x++, u += stepX, to += 3) {
      if (Math.trunc(u) >= image.width || Math.trunc(v) >= image.height) continue;
      const p = (Math.trunc(v) * image.width + Math.trunc(u)) * image.step;
      for (let c = 0; c < 3; c++) result[to + c] = image.data[p + c];
    }
  }
  return { width, height, step: 3, data: result };
}

// Since version 13 Pillow goes down before across where the height loses more than twice what the width does.
export function downFirst(from, to) {
  const lost = from.height - to.height;
  return lost > 0 && lost > 2 * (from.width - to.width);
}

// A part as three bytes a pixel; what reaches beyond the picture is black.
export function crop(image, left, top, width, height) {
  const { step, data } = image;
  const result = new Uint8Array(width * height * 3);
  const [across, down] = [Math.min(width, image.width - left), Math.min(height, image.height - top)];
  for (let y = 0; y < down; y++) {
    let p = ((top + y) * image.width + left) * step;
    for (let x = 0, to = y * width * 3; x < across; x++, p += step, to += 3) {
      result[to] = data[p];
      result[to + 1] = data[p + 1];
      result[to + 2] = data[p + 2];
    }
  }
  return { width, height, step: 3, data: result };
}

// image.resize((width, height), interpolation, box). `ordered`: as Pillow 13 orders the passes; before, always across.
export function resize(image, width, height, interpolation, box, ordered = true) {
  const [left, top, right, bottom] = (box ?? [0, 0, image.width, image.height]).map(Math.fround);
  const whole = (v) => Number.isInteger(v);
  if (whole(left) && whole(top) && right - left === width && bottom - top === height) {
    return crop(image, left, top, width, height);
  }
  if (interpolation === "nearest") return nearest(image, width, height, [left, top, right, bottom]);
  const filter = FILTERS[interpolation];
  if (filter === undefined) throw new Error(`no filter "${interpolation}"`);
  const needAcross = width !== image.width || left !== 0 || right !== width;
  const needDown = height !== image.height || top !== 0 || bottom !== height;
  if (needDown && ordered && downFirst(image, { width, height })) {
    const narrow = down(image, height, top, bottom, filter);
    return needAcross ? across(narrow, width, left, right, filter, 0, height) : narrow;
  }
  // Only the rows that the pass down will read are worth the pass across.
  const margin = filter[0] * Math.max(1, (bottom - top) / height) + 2;
  const from = needDown ? Math.max(0, Math.floor(top - margin)) : 0;
  const until = needDown ? Math.min(image.height, Math.ceil(bottom + margin)) : image.height;
  const wide = needAcross ? across(image, width, left, right, filter, from, until) : image;
  return needDown ? down(wide, height, top, bottom, filter) : crop(wide, 0, 0, width, height);
}
