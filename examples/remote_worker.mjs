// A worker in Node (18 or newer), with nothing but what Node brings: register, claim, report, end, and stop in peace.
//
//   HOLDFAST_SERVER=http://127.0.0.1:7878 HOLDFAST_KEY=hf_… node examples/remote_worker.mjs

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
const held = new Map(); // token -> { job_id, abort }
let stopping = false;

// One request. What is not answered is asked again: every write may be repeated, the token sees to that.
async function ask(method, path, body, { once = false } = {}) {
  for (let rest = 200; ; rest = Math.min(rest * 2, 5000)) {
    try {
      const answer = await fetch(`${server}/api/v1${path}`, {
        method,
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
        body: body && JSON.stringify(body),
      });
      if (answer.ok) return await answer.json();
      const problem = await answer.json().catch(() => ({ error: "unreadable", message: `status ${answer.status}` }));
      if (answer.status !== 429 && answer.status < 500) throw Object.assign(new Error(problem.message), problem);
      if (once) return null;
      rest = Math.max(rest, 1000 * (answer.headers.get("Retry-After") ?? 0));
    } catch (error) {
      if (error.error) throw error; // refused, and told why
      if (once) return null; // the server is away
    }
    await pause(rest);
  }
}

async function run(claimed) {
  const { job_id, token, task, args } = claimed;
  const abort = new AbortController();
  held.set(token, { job_id, abort });
  const write = (what, body = {}) => ask("POST", `/jobs/${job_id}/${what}`, { token, ...body });
  try {
    let end;
    try {
      const progress = (percent, message = "") => write("progress", { percent, message });
      const result = await tasks[task](args, { ...claimed, signal: abort.signal, progress });
      end = abort.signal.aborted ? ["release", { reason: "it was stopped" }] : ["complete", { result: result ?? null }];
    } catch (error) {
      if (error.error === "stale") throw error;
      end = ["fail", { code: error.code ?? error.name, message: error.message, traceback: error.stack ?? "",
        retryable: error.retryable ?? true }];
    }
    const { state } = await write(...end);
    console.log(`${task} ${job_id}: ${state}`);
  } catch (error) {
    console.log(`${task} ${job_id}: ${error.error ?? error} ${error.message}`); // another worker has it: nothing was written
  } finally {
    held.delete(token);
  }
}

// Keeps the leases, and hears of cancels and of leases that are lost.
async function heartbeat(worker) {
  while (!stopping || held.size) {
    const leases = [...held].map(([token, { job_id }]) => ({ job_id, token }));
    const answer = await ask("POST", `/workers/${worker}/heartbeat`, { leases }, { once: true });
    answer?.leases.forEach(({ hold, cancel_requested }, at) => {
      if (cancel_requested || !["held", "settling"].includes(hold)) held.get(leases[at].token)?.abort.abort();
    });
    if (answer?.disabled || answer?.drain) stopping = true;
    await pause(held.size ? 500 : 2000);
  }
}

const capabilities = (process.env.HOLDFAST_CAPABILITIES ?? "").split(",").filter(Boolean); // what jobs may require
const introduction = { name: `node-${process.pid}`, slots: SLOTS, version: process.version, capabilities };
const { id: worker } = await ask("POST", "/workers", introduction);
console.log(`worker ${worker} on ${server}: ${Object.keys(tasks).join(", ")}`);
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => { stopping = true; });
const beating = heartbeat(worker);
while (!stopping) {
  if (held.size >= SLOTS) { await pause(20); continue; }
  const wanted = { tasks: Object.keys(tasks), limit: SLOTS - held.size, wait_ms: 1000 };
  const answer = await ask("POST", `/workers/${worker}/claim`, wanted, { once: true });
  answer ? answer.jobs.forEach((job) => run(job)) : await pause(500);
}
while (held.size) await pause(20); // what runs may end
await beating;
await ask("DELETE", `/workers/${worker}`, undefined, { once: true });
console.log("stopped");
