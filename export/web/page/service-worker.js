// Keeps the whole site on the device: after the first visit it answers without a network.

const FILES = {};
const VERSION = "";

const base = self.registration.scope;
const cacheName = `calibrant ${base} ${VERSION}`;
const keyOf = (name) => `${base}${name}?${FILES[name].hash}`;

async function told(message) {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  for (const page of pages) page.postMessage(message);
}

// The file, checked to be whole: where a network asks for a log-in first, it answers everything with its own page.
async function fetched(name, onBytes) {
  const response = await fetch(base + name, { cache: "no-cache" });
  if (!response.ok || response.body === null) throw new Error(`${name}: ${response.status}`);
  const parts = [];
  let bytes = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    bytes += value.length;
    onBytes(value.length);
  }
  const blob = new Blob(parts);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await blob.arrayBuffer()));
  const hash = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
  if (!hash.startsWith(FILES[name].hash)) throw new Error(`${name} came damaged (${bytes} bytes)`);
  return new Response(blob, { headers: { "Content-Type": FILES[name].type } });
}

// What an earlier version or an interrupted visit has left is taken from there.
async function install() {
  const cache = await caches.open(cacheName);
  const total = Object.values(FILES).reduce((sum, { bytes }) => sum + bytes, 0);
  let done = 0;
  let said = 0;
  const onBytes = (count) => {
    done += count;
    if (done - said < total / 200) return;
    said = done;
    told({ done, total });
  };
  for (const name of Object.keys(FILES)) {
    const kept = await caches.match(keyOf(name));
    if (kept === undefined) {
      await cache.put(keyOf(name), await fetched(name, onBytes));
    } else {
      await cache.put(keyOf(name), kept);
      onBytes(FILES[name].bytes);
    }
  }
}

async function activate() {
  const mine = `calibrant ${base} `;
  const old = (await caches.keys()).filter((name) => name.startsWith(mine) && name !== cacheName);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

async function answered(request, name) {
  const found = await (await caches.open(cacheName)).match(keyOf(name));
  return found ?? fetch(request);
}

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("message", (event) => {
  if (event.data === "take over") self.skipWaiting();
});
self.addEventListener("fetch", (event) => {
  const [address] = event.request.url.split(/[?#]/);
  if (event.request.method !== "GET" || !address.startsWith(base)) return;
  const name = address.slice(base.length) || "index.html";
  if (Object.hasOwn(FILES, name)) event.respondWith(answered(event.request, name));
});
