// Sends files in parts, each with its SHA-256. What is there already is not sent again. Nothing here makes HTML out of data.
(() => {
  "use strict";
  const drop = document.querySelector("#drop");
  if (!drop) return;
  const list = document.querySelector("#uploads");
  const says = document.querySelector("#upload-says");
  const most = Number(drop.dataset.most);
  const AT_ONCE = 2;
  const TRIES = 6;

  const size = (count) => {
    let rest = count;
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (rest < 1000) return unit === "B" ? `${rest} B` : `${rest.toFixed(1)} ${unit}`;
      rest /= 1000;
    }
    return `${rest.toFixed(1)} TB`;
  };
  const make = (kind, name, text = "") => {
    const made = document.createElement(kind);
    made.className = name;
    made.textContent = text;
    return made;
  };
  const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

  class Refused extends Error {
    constructor(status, message) {
      super(message);
      this.status = status;
    }
    get passes() { return [0, 408, 409, 422, 502, 503, 504].includes(this.status); }
  }

  // XMLHttpRequest, because only it tells how much of a body was sent.
  function send(method, path, body, { headers = {}, progress, signal } = {}) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open(method, path);
      request.responseType = "json";
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      if (progress) request.upload.addEventListener("progress", (event) => progress(event.loaded));
      request.addEventListener("load", () => {
        if (request.status === 200 && request.response) return resolve(request.response);
        const why = request.response?.message ?? (request.status === 401 ? "Nobody is logged in any more: log in, and choose the file again" : `the server answered ${request.status}`);
        return reject(new Refused(request.status || 500, why));
      });
      request.addEventListener("error", () => reject(new Refused(0, "the server cannot be reached")));
      request.addEventListener("abort", () => reject(new Refused(-1, "stopped")));
      signal?.addEventListener("abort", () => request.abort());
      request.send(body);
    });
  }

  // Tries again what may pass, with pauses that grow.
  async function insist(work, signal, told) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await work();
      } catch (error) {
        if (signal.aborted || !(error instanceof Refused) || !error.passes || attempt >= TRIES) throw error;
        told(`${error.message}; trying again`);
        await wait(Math.min(8000, 400 * 2 ** attempt));
      }
    }
  }

  class Upload {
    constructor(file) {
      this.file = file;
      this.stopping = new AbortController();
      this.row = make("li", "card upload");
      this.how = make("span", "how muted", "waiting");
      this.bar = make("progress", "");
      this.bar.max = file.size;
      this.bar.value = 0;
      this.bar.setAttribute("aria-label", `Upload of ${file.name}`);
      this.figure = make("span", "num", `0 B of ${size(file.size)}`);
      this.choices = make("span", "choices");
      this.stop = make("button", "button small", "Stop");
      this.stop.type = "button";
      this.stop.addEventListener("click", () => this.stopping.abort());
      this.choices.append(this.stop);
      const line = make("span", "bar");
      line.append(this.bar, this.figure);
      const name = make("span", "");
      name.append(make("span", "name", file.name), document.createElement("br"), this.how);
      this.row.append(name, this.choices, line);
      list.append(this.row);
    }

    tell(text) { this.how.textContent = text; }

    async run() {
      if (this.file.size === 0) throw new Error("The file is empty.");
      if (this.file.size > most) throw new Error(`The file has ${size(this.file.size)}, and ${size(most)} are the most. Nothing was sent.`);
      const { signal } = this.stopping;
      const { name, size: bytes, lastModified: modified } = this.file;
      const begun = await insist(() => send("POST", drop.dataset.begin, JSON.stringify({ name, size: bytes, modified }), { signal }), signal, (text) => this.tell(text));
      if (begun.id) document.querySelector(`[data-upload="${CSS.escape(begun.id)}"]`)?.remove();
      if (begun.video) return this.finish(begun.video);
      const have = new Set(begun.have);
      const missing = [];
      this.sent = new Map();
      for (let number = 1; number <= begun.parts; number += 1) {
        const start = (number - 1) * begun.part_size;
        const part = this.file.slice(start, Math.min(start + begun.part_size, bytes));
        if (have.has(number)) this.sent.set(number, part.size);
        else missing.push([number, part]);
      }
      this.tell(have.size ? `going on: ${have.size} of ${begun.parts} parts were there` : "sending");
      this.draw();
      const base = `${drop.dataset.begin}/${begun.id}`;
      const lane = async () => {
        for (let next = missing.shift(); next; next = missing.shift()) await this.part(base, ...next);
      };
      try {
        await Promise.all(Array.from({ length: AT_ONCE }, lane));
      } catch (error) {
        missing.length = 0;
        throw error;
      }
      this.tell("all of it is there; making a title of it");
      const done = await insist(() => send("POST", `${base}/complete`, "", { signal }), signal, (text) => this.tell(text));
      return this.finish(done.video);
    }

    async part(base, number, blob) {
      const { signal } = this.stopping;
      const buffer = await blob.arrayBuffer().catch(() => { throw new Error("The file cannot be read: was it changed or moved?"); });
      const headers = { "Holdfast-Sha256": await window.holdfastSha256(buffer) };
      const progress = (loaded) => { this.sent.set(number, loaded); this.draw(); };
      await insist(() => send("PUT", `${base}/parts/${number}`, buffer, { headers, progress, signal }), signal, (text) => this.tell(text));
      this.sent.set(number, blob.size);
      if (!signal.aborted) this.tell("sending");
      this.draw();
    }

    draw() {
      const there = [...this.sent.values()].reduce((sum, one) => sum + one, 0);
      this.bar.value = Math.min(there, this.file.size);
      this.figure.textContent = `${size(this.bar.value)} of ${size(this.file.size)}`;
    }

    finish(address) {
      this.bar.value = this.file.size;
      this.figure.textContent = size(this.file.size);
      this.tell("It is a title now, and is being transcoded.");
      const link = make("a", "button small primary", "Watch it being made");
      link.href = address;
      this.choices.replaceChildren(link);
      says.textContent = `${this.file.name} was uploaded.`;
    }

    fail(error) {
      this.row.classList.add("broken");
      const stopped = this.stopping.signal.aborted;
      this.tell(stopped ? "Stopped. What was sent is kept: choose the file again to go on." : `${error.message}`);
      const again = make("button", "button small", "Go on");
      again.type = "button";
      again.addEventListener("click", () => { this.row.remove(); take([this.file]); });
      this.choices.replaceChildren(again);
      says.textContent = `${this.file.name} was not uploaded.`;
    }
  }

  let queue = Promise.resolve();
  function take(files) {
    for (const file of files) {
      const upload = new Upload(file);
      queue = queue.then(() => upload.run()).catch((error) => upload.fail(error));
    }
  }

  const field = document.querySelector("#file");
  field.addEventListener("change", () => {
    take([...field.files]);
    field.value = "";
  });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    take([...event.dataTransfer.files]);
  });
})();
