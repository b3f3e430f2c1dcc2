// The answer from what the graph returned, as the server makes it.

const FLOAT32 = 1e-7; // what probabilities in single precision may lie beside those that a threshold was fitted on

export function softmax(logits) {
  const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Array.from(logits, (z) => Math.exp(z - highest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((e) => e / sum);
}

const sigmoid = (logits) =>
  Array.from(logits, (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z))));

// Classes by falling probability; the lower index first among equals.
export const ranked = (p) => Array.from(p, (_, k) => k).sort((a, b) => p[b] - p[a] || a - b);

function scores(p, { kind, penalty, rank }) {
  if (kind === "lac") return p.map((value) => 1 - value);
  const found = new Array(p.length);
  let sum = 0;
  ranked(p).forEach((k, place) => {
    sum += p[k];
    found[k] = sum - p[k] + (kind === "raps" ? penalty * Math.max(0, place + 1 - rank) : 0);
  });
  return found;
}

// Which classes belong to the set at this coverage; the answer itself always does. A limit of null is none.
export function predictionSet(logits, block, label) {
  const own = softmax(logits);
  const p = block.temperature === 1 ? own : softmax(own.map((v) => Math.max(Math.log(v), -700) / block.temperature));
  const s = scores(p, block);
  const limit = (k) => (block.class_thresholds === null ? block.threshold : block.class_thresholds[k]) ?? Infinity;
  return ranked(own).filter((k) => k === label || s[k] <= limit(k) + FLOAT32);
}

// outputs: {probabilities?, logits, ood_score?}, one row each.
export function answer(outputs, settings) {
  const given = outputs.probabilities ?? (settings.independent ? sigmoid : softmax)(outputs.logits);
  const probabilities = Float32Array.from(given);
  if (!probabilities.every(Number.isFinite)) throw new Error("the model's answer is not a number");
  const order = ranked(probabilities);
  const [label] = order;
  const confidence = probabilities[label];
  const score = outputs.ood_score?.[0];
  return {
    probabilities,
    order,
    label,
    confidence,
    abstained: settings.abstain_below !== null && confidence < Math.fround(settings.abstain_below),
    unusual: score !== undefined && settings.ood_threshold !== null && score > settings.ood_threshold,
    present: settings.independent ? order.filter((k) => probabilities[k] >= 0.5) : null,
    sets: settings.sets.map((block) => ({
      coverage: block.coverage,
      members: predictionSet(outputs.logits, block, label),
    })),
  };
}
