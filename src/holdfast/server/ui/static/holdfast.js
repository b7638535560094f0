// The dashboard's own script: keys of the keyboard, pausing, the theme, selected rows, charts, and ages that grow.
// Pages work without it; what it adds is comfort. Nothing here makes HTML out of data.
(() => {
  "use strict";
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const root = document.body.dataset.root.replace(/\/$/, "");
  const main = one("#main");

  // ---- live ----------------------------------------------------------------------------------------------------------
  const pauseButton = one("#pause");
  const refresh = one("#refresh");
  const live = one("#live");
  const summary = one("#summary");
  let paused = false;
  let missed = false;
  let spoken = 0;

  function setPaused(value) {
    paused = value;
    pauseButton.setAttribute("aria-pressed", String(paused));
    one(".word", pauseButton).textContent = paused ? "Paused" : "Live";
    if (!paused && missed && refresh) htmx.trigger(live, "changed");
  }
  pauseButton?.addEventListener("click", () => setPaused(!paused));
  refresh?.addEventListener("htmx:config:request", (event) => {
    missed = paused;
    if (paused) event.preventDefault();
  });
  live?.addEventListener("changed", (event) => {
    const now = Date.now();
    if (!event.detail?.data || now - spoken < 10000) return;
    const text = JSON.parse(event.detail.data).summary;
    if (text !== summary.textContent) {
      spoken = now;
      summary.textContent = text;
    }
  });
  live?.addEventListener("htmx:sse:after:connection", () => {
    pauseButton?.classList.remove("lost");
    // A browser has six connections to a host, and a stream keeps one: htmx gives it back when the page is hidden, and connects
    // again when it is seen. It is not told of a page that was hidden before: opened in the background, or while it connected.
    if (document.hidden) setTimeout(() => document.dispatchEvent(new Event("visibilitychange")));
  });
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) live?.addEventListener(name, () => pauseButton?.classList.add("lost"));

  // A page that follows the end of its log stays there.
  let atEnd = true;
  document.addEventListener("htmx:before:swap", () => {
    const log = one("#log");
    atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
  });
  document.addEventListener("htmx:after:swap", () => {
    const log = one("#log");
    if (log && atEnd) log.scrollTop = log.scrollHeight;
    draw();
    point();
    count();
  });

  // ---- ages ----------------------------------------------------------------------------------------------------------
  // Times on a page are the store's, and this machine's clock may be hours off: what counts is how far.
  const skew = Number(document.body.dataset.now) - Date.now();
  function age(seconds) {
    if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
    if (seconds < 10) return `${Number(seconds.toFixed(1))}s`;
    const whole = Math.round(seconds);
    for (const [size, unit, part, smaller] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
      if (whole < size) continue;
      const rest = Math.floor((whole % size) / part);
      return `${Math.floor(whole / size)}${unit}${rest ? ` ${rest}${smaller}` : ""}`;
    }
    return `${whole}s`;
  }
  setInterval(() => {
    if (document.hidden || paused) return;
    for (const time of all("#main time[title]")) {
      const text = time.textContent;
      const seconds = (Date.now() + skew - Date.parse(time.dateTime)) / 1000;
      if (Math.abs(seconds) > 86400 * 2) continue;
      if (text.startsWith("in ") && seconds < -1) time.textContent = `in ${age(-seconds)}`;
      else if (text.endsWith(" ago") && seconds >= 1) time.textContent = `${age(seconds)} ago`;
    }
  }, 1000);

  // ---- theme ---------------------------------------------------------------------------------------------------------
  function turnTheme() {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    const chosen = dark ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    document.cookie = `holdfast_theme=${chosen}; path=${root || "/"}; max-age=31536000; samesite=strict`;
    draw(true);
  }
  one("#theme")?.addEventListener("click", turnTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));

  // ---- charts --------------------------------------------------------------------------------------------------------
  const plots = new Map();
  const colours = { succeeded: "--succeeded", failed: "--failed", retried: "--scheduled", p50: "--ready", p95: "--blocked" };
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const short = (value) => (value == null ? "–" : value >= 100 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(2)).toString());
  const seconds = (value) => (value == null ? "–" : age(value));

  function draw(again = false) {
    for (const [element, plot] of plots) {
      if (!element.isConnected) {
        plot.destroy();
        plots.delete(element);
      }
    }
    for (const element of all(".plot[data-chart]")) {
      const text = element.dataset.chart;
      let plot = plots.get(element);
      if (plot && (again || plot.columns !== Object.keys(JSON.parse(text).series).join())) {
        plot.destroy();
        plots.delete(element);
        plot = null;
      }
      if (plot?.text === text) continue;
      const data = JSON.parse(text);
      const columns = [data.times, ...Object.values(data.series)];
      if (plot) plot.setData(columns);
      else plots.set(element, (plot = make(element, data, columns)));
      plot.text = text;
      plot.columns = Object.keys(data.series).join();
    }
  }

  function make(element, data, columns) {
    const muted = colour("--muted");
    const line = colour("--line");
    const say = data.unit === "s" ? seconds : short;
    const axis = { stroke: muted, font: "11px system-ui", grid: { stroke: line, width: 1 }, ticks: { show: false } };
    return new uPlot(
      {
        width: element.clientWidth || 320,
        height: 140,
        padding: [8, 22, 0, 0], // on the right, for half of a label that stands at the end of the axis
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, size: 24, space: 70, values: [[86400, "{MMM} {D}"], [3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, form]) => [step, form, null, null, null, null, null, null, 0]) },
          { ...axis, size: 46, space: 34, values: (_, values) => values.map((value) => (value ? say(value) : "0")) },
        ],
        series: [
          { value: (_, value) => (value == null ? "–" : new Date(value * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
          ...Object.keys(data.series).map((name) => ({
            label: name,
            stroke: colour(colours[name]),
            width: 1.75,
            spanGaps: true,
            points: { show: (plot, index) => plot.data[index].filter((value) => value != null).length < 2, size: 5 },
            // Where nothing is pointed at, what it was last: a dash would look like none.
            value: (plot, value, index, point) => say(point == null ? plot.data[index].findLast((one) => one != null) : value),
          })),
        ],
      },
      columns,
      element,
    );
  }
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => draw(true), 150);
  });

  // ---- rows ----------------------------------------------------------------------------------------------------------
  let at = -1;
  let atId = null;
  const rows = () => all("tr[data-row]", main);

  function point() {
    const list = rows();
    if (atId) {
      const found = list.findIndex((row) => row.id === atId);
      if (found >= 0) at = found;
    }
    list.forEach((row, index) => row.classList.toggle("at", index === at));
  }
  function move(step) {
    const list = rows();
    if (!list.length) return;
    at = Math.max(0, Math.min(list.length - 1, at + step));
    atId = list[at].id || null;
    point();
    list[at].scrollIntoView({ block: "nearest" });
  }

  const picks = () => all("input[name=job]", main);
  function count() {
    const told = one("#selected");
    if (!told) return;
    const chosen = picks().filter((pick) => pick.checked).length;
    const everything = one("#all-matching")?.checked;
    told.textContent = everything ? "All that match" : chosen ? `${chosen} selected` : "No row selected";
    const shown = one("#all-shown");
    if (shown) shown.checked = chosen > 0 && chosen === picks().length;
  }
  document.addEventListener("change", (event) => {
    if (event.target.id === "all-shown") picks().forEach((pick) => { pick.checked = event.target.checked; });
    count();
  });

  // ---- keys ----------------------------------------------------------------------------------------------------------
  const help = one("#help");
  one("#help-button")?.addEventListener("click", () => help.showModal());
  let going = 0;

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) return event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open || !pauseButton) return;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    const row = rows()[at];
    const acts = {
      g: () => { going = Date.now(); },
      "/": () => { const field = one("#q"); if (field) { field.focus(); field.select(); } else location.href = `${root}/jobs`; },
      j: () => move(1),
      k: () => move(-1),
      x: () => { const pick = row && one("input[name=job]", row); if (pick) { pick.checked = !pick.checked; count(); } },
      Enter: () => row && (one("[data-open]", row) ?? one("a", row))?.click(),
      r: () => one('[data-key="r"]')?.click(),
      p: () => setPaused(!paused),
      t: turnTheme,
      "?": () => help.showModal(),
    };
    if (event.key === "Enter" && event.target.closest?.("a, button, summary, input")) return;
    if (Object.hasOwn(acts, event.key)) {
      event.preventDefault();
      acts[event.key]();
    }
  });

  const log = one("#log");
  if (log) log.scrollTop = log.scrollHeight;
  draw();
  count();
})();
