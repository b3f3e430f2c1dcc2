// The page: takes photos, shows answers.

import { about, megabytes, members, percent, sentence, share, verdict, warnings } from "./words.js";

const TOP = 5;
const $ = (id) => document.getElementById(id);

function element(name, text, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== undefined) made.textContent = text;
  return made;
}

const say = (text) => ($("status").textContent = text);

// ---- the worker ----

let worker = null;
let settings = null;
let asked = 0; // the newest photo; answers to older ones are not shown
let address = null;

function listen({ data }) {
  if (data.settings) {
    settings = data.settings;
    fill($("about"), about(settings).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
    $("progress").hidden = true;
    if (asked === 0) say(ready());
  } else if (data.failed) {
    $("progress").hidden = true;
    say(data.failed);
  } else if (data.id === asked) {
    document.body.removeAttribute("aria-busy");
    if (data.error) say(data.error);
    else show(data.answer);
  }
}

function start() {
  worker = new Worker("classifier.js", { type: "module" });
  worker.onmessage = listen;
  worker.onerror = (event) => {
    event.preventDefault();
    say(`This browser cannot run the model${event.message ? ` (${event.message})` : ""}. A newer one can.`);
  };
  if (asked > 0) ask(pending);
}

let pending = null;

function ask(blob) {
  if (!blob) return;
  pending = blob;
  asked += 1;
  $("result").hidden = true;
  document.body.setAttribute("aria-busy", "true");
  say(settings === null ? "Waiting for the model, then looking …" : "Looking …");
  if (address !== null) URL.revokeObjectURL(address);
  address = URL.createObjectURL(blob);
  worker?.postMessage({ id: asked, blob });
}

// ---- the answer ----

const fill = (parent, children) => parent.replaceChildren(...children);

function row(k, found, withBar) {
  const p = found.probabilities[k];
  const item = element("li", undefined, { className: k === found.label ? "first" : "" });
  item.append(element("span", settings.classes[k]), element("data", share(p), { value: String(p) }));
  if (withBar) {
    const bar = element("div", undefined, { className: "bar", ariaHidden: "true" });
    const part = element("i");
    part.style.width = `${100 * p}%`;
    bar.append(part);
    item.append(bar);
  }
  return item;
}

function show(found) {
  say(ready());
  $("photo").src = address;
  $("verdict").textContent = verdict(found, settings);
  $("sentence").textContent = sentence(found, settings);
  $("warning").textContent = warnings(found);
  $("warning").hidden = $("warning").textContent === "";
  $("result").classList.toggle("unsure", found.abstained);
  fill($("classes"), found.order.slice(0, TOP).map((k) => row(k, found, true)));
  fill($("all"), found.order.map((k) => row(k, found, false)));
  showSets(found);
  draw(found.seen);
  $("result").hidden = false;
  $("verdict").focus({ preventScroll: true }); // where a screen reader goes on
  $("result").scrollIntoView({ block: "nearest" });
}

function showSets(found) {
  $("sets").hidden = found.sets.length === 0;
  if (found.sets.length === 0) return;
  const select = $("coverage");
  if (select.options.length === 0) fill(select, found.sets.map((set, i) => new Option(percent(set), i)));
  const update = () => ($("members").textContent = members(found.sets[select.value], settings));
  select.onchange = update;
  update();
}

function draw({ width, height, data }) {
  const canvas = Object.assign($("seen"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = context.createImageData(width, height);
  for (let p = 0; p < width * height; p++) {
    for (let c = 0; c < 3; c++) rgba.data[p * 4 + c] = data[p * 3 + c];
    rgba.data[p * 4 + 3] = 255;
  }
  context.putImageData(rgba, 0, 0);
}

// ---- photos in ----

// Without a touch screen the camera's button would only open the files; with one there is nothing to drop.
const touch = navigator.maxTouchPoints > 0;
$("camera").hidden = !touch;
$("pointer").hidden = touch;

for (const input of document.querySelectorAll("input[type=file]")) {
  input.addEventListener("change", () => {
    ask(input.files[0]);
    input.value = ""; // so that the same photo can be chosen again
  });
}
const picture = (transfer) => Array.from(transfer?.files ?? []).find((file) => file);
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("drop");
});
addEventListener("dragleave", (event) => event.relatedTarget === null && document.body.classList.remove("drop"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("drop");
  ask(picture(event.dataTransfer));
});
addEventListener("paste", (event) => ask(picture(event.clipboardData)));

// ---- without a network ----

let offline = false;
const ready = () => (offline ? "Ready. Works without a network." : "Ready. Needs the network when the page is opened.");

function loading({ data: { done, total } }) {
  if (settings !== null || total === undefined) return; // a newer version comes in quietly
  Object.assign($("progress"), { hidden: false, value: done / total });
  say(`Getting the model: ${megabytes(done)} of ${megabytes(total)}. This is needed once.`);
}

function offer(waiting) {
  $("news").hidden = false;
  $("news").querySelector("button").onclick = () => {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
    waiting.postMessage("take over");
  };
}

// Until the service worker has all files and this page is its own; null where it failed.
async function kept() {
  const registration = await navigator.serviceWorker.register("service-worker.js");
  const look = () => {
    if (registration.waiting && registration.active) offer(registration.waiting);
    const coming = registration.installing;
    coming?.addEventListener("statechange", () => {
      if (coming.state === "installed" && navigator.serviceWorker.controller) offer(coming);
    });
  };
  look(); // it may have come before anybody listened
  registration.addEventListener("updatefound", look); // and be there by the time that a busy page is told
  if (navigator.serviceWorker.controller) return;
  await new Promise((done, failed) => {
    navigator.serviceWorker.addEventListener("controllerchange", done, { once: true });
    const coming = registration.installing;
    coming?.addEventListener("statechange", () => coming.state === "redundant" && failed(new Error("it came damaged")));
    if (registration.active) setTimeout(done, 0); // reloaded past it (shift and reload): it does not control this page
  });
}

async function main() {
  $("late").remove();
  if ("serviceWorker" in navigator) {
    navigator.serviceWorker.addEventListener("message", loading);
    try {
      await kept();
      offline = navigator.serviceWorker.controller !== null;
    } catch (error) {
      console.warn("not kept on this device:", error);
    }
  }
  if (offline && matchMedia("(display-mode: standalone)").matches) navigator.storage?.persist?.();
  say("Starting the model …");
  start();
}

main();
