// A worker in Node (18 or newer), with nothing but what Node brings: register, claim, report, end, and stop in peace.
//
//   HOLDFAST_SERVER=http://127.0.0.1:7878 HOLDFAST_KEY=hf_… node examples/remote_worker.mjs

import { randomUUID } from "node:crypto";

const server = process.env.HOLDFAST_SERVER ?? "http://127.0.0.1:7878";
const key = process.env.HOLDFAST_KEY;
const SLOTS = 4;

// What it can do: each task is a function of its args. `job` says how far it is, and whether it should stop.
const tasks = {
  async "thumbnail.make"({ file, width = 320 }, job) {
    for (let percent = 0; percent < 100; percent += 25) {
      if (job.signal.aborted) return;
      await job.progress(percent, `scaling ${file}`);
      await pause(50);
    }
    return { file: `${file}@${width}`, node: process.version };
  },
  async "thumbnail.break"({ fatal = false }) {
    throw Object.assign(new Error("the file is broken"), { code: "BAD_FILE", retryable: !fatal });
  },
  async "thumbnail.forever"(_, job) {
    while (!job.signal.aborted) await pause(20);
  },
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const worker = randomUUID(); // our own, so that registering once more makes no second worker
const capabilities = (process.env.HOLDFAST_CAPABILITIES ?? "").split(",").filter(Boolean); // what jobs may require
const introduction = { id: worker, name: `node-${process.pid}`, slots: SLOTS, version: process.version, capabilities };
const held = new Map(); // token -> the job, how to stop it, and until when it may run
let stopping = false;

// One request. What is not answered is asked again: every write may be repeated, the token sees to that. Who is unknown
// registers again; a key that was good when it registered, and is refused now, may be good again.
async function ask(method, path, body, { once = false } = {}) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  for (let rest = 200; ; rest = Math.min(rest * 2, 5000)) {
    const request = { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(10_000) };
    const asked = fetch(`${server}/api/v1${path}`, request).then(async (answer) => [answer, await answer.json()]);
    const [answer, told] = await asked.catch(() => []); // the server is away
    if (answer?.ok) return told;
    const refused = answer && answer.status < 500 && answer.status !== 429 && (answer.status !== 401 || path === "/workers");
    if (told?.error === "unknown_worker") await ask("POST", "/workers", introduction);
    else if (refused) throw Object.assign(new Error(told.message), told);
    await pause(Math.max(rest, 1000 * (answer?.headers.get("Retry-After") ?? 0), answer?.status === 401 ? 5000 : 0));
    if (once || (stopping && !held.size)) return null;
  }
}

// Takes jobs. What a claim has taken whose answer was lost is given back: nobody would keep those leases.
async function claim() {
  const asked = performance.now();
  const wanted = { tasks: Object.keys(tasks), limit: SLOTS - held.size, wait_ms: 1000 };
  const answer = await ask("POST", `/workers/${worker}/claim`, wanted, { once: true });
  if (answer) return answer.jobs.forEach((job) => run(job, asked));
  const { leases } = (await ask("GET", `/workers/${worker}/leases`)) ?? { leases: [] };
  for (const { job_id, token } of leases) {
    if (!held.has(token)) await ask("POST", `/jobs/${job_id}/release`, { token, reason: "its claim was lost" }).catch(() => {});
  }
}

async function run(claimed, asked) {
  const { job_id, token, task, args } = claimed;
  const abort = new AbortController();
  abort.signal.onabort = () => console.log(`${task} ${job_id}: asked to stop: ${abort.signal.reason}`);
  held.set(token, keep({ ...claimed, abort }, asked));
  const write = (what, body = {}) => ask("POST", `/jobs/${job_id}/${what}`, { token, ...body });
  try {
    let end;
    try {
      const progress = (percent, message = "") => write("progress", { percent, message });
      const result = await tasks[task](args, { ...claimed, signal: abort.signal, progress });
      end = ["complete", { result: result ?? null }];
    } catch (error) {
      if (error.error === "stale") throw error;
      end = ["fail", { code: error.code ?? error.name, message: error.message, traceback: error.stack ?? "",
        retryable: error.retryable ?? true }];
    }
    if (abort.signal.aborted) end = ["release", { reason: abort.signal.reason }];
    const { state } = await write(...end);
    console.log(`${task} ${job_id}: ${state}`);
  } catch (error) {
    console.log(`${task} ${job_id}: ${error.error ?? error} ${error.message}`); // another worker has it: nothing was written
  } finally {
    held.delete(token);
  }
}

// How long a handler may run unheard. A lease cannot have begun before it was asked for; a sixth of it is left to stop in, for
// once it is over another worker may start the job.
const keep = (one, asked) => Object.assign(one, { until: asked + (one.lease_ms * 5) / 6 });

// Keeps the leases, and hears of cancels and of leases that are lost.
async function heartbeat() {
  while (!stopping || held.size) {
    const asked = performance.now(), all = [...held.values()];
    const leases = all.map(({ job_id, token }) => ({ job_id, token }));
    const answer = await ask("POST", `/workers/${worker}/heartbeat`, { leases }, { once: true });
    answer?.leases.forEach(({ hold, cancel_requested }, at) => {
      if (!held.has(all[at].token)) return; // it has ended meanwhile
      if (hold === "held") keep(all[at], asked);
      else if (hold !== "settling") all[at].abort.abort(`its lease is ${hold}`);
      if (cancel_requested) all[at].abort.abort("it is to be canceled");
    });
    if (answer?.disabled || answer?.drain) stopping = true;
    await pause(500);
  }
}

for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => { stopping = true; });
await ask("POST", "/workers", introduction);
console.log(`worker ${worker} on ${server}: ${Object.keys(tasks).join(", ")}`);
setInterval(() => held.forEach(({ until, abort }) => performance.now() > until && abort.abort("its lease ends")), 100).unref();
const beating = heartbeat();
while (!stopping) await (held.size < SLOTS ? claim() : pause(20));
while (held.size) await pause(20); // what runs may end
await beating;
await ask("DELETE", `/workers/${worker}`, undefined, { once: true });
console.log("stopped");
