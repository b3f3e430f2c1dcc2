// What the page says, apart from where.

const NO_BREAK = "\u00a0";
const unit = (text) => `${text}${NO_BREAK}%`;

export const share = (p) =>
  p >= 0.9995 ? `over ${unit("99.9")}` : p < 0.0005 ? `under ${unit("0.1")}` : unit((100 * p).toFixed(1));

export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

const list = (names) => (names.length > 1 ? `${names.slice(0, -1).join(", ")} or ${names.at(-1)}` : names[0]);

export function verdict(found, settings) {
  if (found.abstained) return "I don't know";
  if (found.present === null) return settings.classes[found.label];
  return found.present.length === 0 ? "None of the labels" : found.present.map((k) => settings.classes[k]).join(", ");
}

export function sentence(found, settings) {
  const name = settings.classes[found.label];
  const p = share(found.confidence);
  if (found.abstained) {
    return `Most likely it is ${name}, with ${p}. Under ${share(settings.abstain_below)} this model is wrong too often to answer. Try another photo, closer or in better light, or ask somebody who knows.`;
  }
  if (found.present !== null) return "Each label has a probability of its own; named are those that are more likely than not.";
  if (settings.calibrator === null) return `${p} sure. This model's probabilities were not calibrated.`;
  const right = Math.round(100 * found.confidence);
  const of = right >= 100 ? "nearly all" : right <= 0 ? "hardly any" : `about ${right} of 100`;
  return `${p} sure: of answers like this, ${of} are right, on photos like those that it was tested on.`;
}

export function warnings(found) {
  const said = [];
  if (found.unusual) said.push("This photo is unlike those that the model knows: trust the answer less.");
  if (found.transparent) {
    said.push("Parts of this picture are transparent, and browsers change the colours there. Save it as PNG for an exact answer.");
  }
  return said.join(" ");
}

export const percent = ({ coverage }) => unit(+(100 * coverage).toFixed(6));

export const members = (set, settings) =>
  `${list(set.members.map((k) => settings.classes[k]))}. At least ${percent(set)} of such lists hold the right class.`;

export function about(settings) {
  const rows = [
    ["Classes", `${settings.classes.length}: ${settings.classes.slice(0, 12).join(", ")}${settings.classes.length > 12 ? ", …" : ""}`],
    ["Probabilities", settings.calibrator === null ? "not calibrated" : `calibrated (${settings.calibrator})`],
    ["Says “I don't know”", settings.abstain_below === null ? "never" : `under ${share(settings.abstain_below)}`],
    ["Author", settings.author],
    ["Licence", settings.licence],
    ["Made", settings.created?.slice(0, 10)],
    ["Version", settings.version],
  ];
  return rows.filter(([, value]) => value);
}
