// The player: HLS through hls.js, through the browser itself where that cannot be. Nothing here makes HTML out of data.
// The page around it is told anew again and again; the player itself is left alone, and reads what is new from #playing.
(() => {
  "use strict";
  const one = (selector, within = document) => within.querySelector(selector);
  // Rounded as the page rounds: so a film of 59.6 s is 1:00 long everywhere, and ends there.
  const clock = (seconds) => {
    const whole = Math.max(0, Math.round(seconds || 0));
    const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, String(whole % 60).padStart(2, "0")];
    return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  };
  const STEP = 5;

  // hls.js is large, so it comes only where something is played.
  let coming = null;
  const fetched = (address) => {
    coming ??= new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = address;
      script.addEventListener("load", resolve);
      script.addEventListener("error", resolve); // then the browser itself may play it
      document.head.append(script);
    });
    return coming;
  };

  class Player {
    constructor(section) {
      this.section = section;
      this.video = one("#video", section);
      this.seek = one("#seek", section);
      this.quality = one("#quality", section);
      this.says = one("#player-says", section);
      this.preview = one("#preview", section);
      this.cues = [];
      this.dragging = false;
      this.listen();
    }

    // ---- what is played ------------------------------------------------------------------------------------------------
    async load(facts, at = 0, playing = false) {
      this.loaded = `${facts.version} ${facts.qualities}`;
      this.facts = facts;
      this.names = JSON.parse(facts.qualities);
      this.furnish();
      this.tell("");
      this.hls?.destroy();
      this.hls = null;
      await fetched(facts.hls);
      if (this.facts !== facts) return;
      if (window.Hls?.isSupported()) this.loadHls(facts, at);
      else if (this.video.canPlayType("application/vnd.apple.mpegurl")) this.loadNative(facts, at);
      else this.tell("This browser plays no HLS. A newer one does.");
      this.sprites(facts.track);
      if (playing) this.video.play().catch(() => {});
    }

    // What there is to be seen and heard says which controls there are.
    furnish() {
      const { picture, sound } = this.facts;
      this.section.classList.toggle("sound-only", !picture);
      this.quality.hidden = !picture;
      one("#full", this.section).hidden = !picture;
      const mute = one("#mute", this.section);
      mute.disabled = !sound;
      mute.title = sound ? "" : "There is no sound";
      this.draw();
    }

    loadHls(facts, at) {
      const hls = new Hls({ enableWorker: false, backBufferLength: 60, startPosition: at || -1 });
      this.hls = hls;
      this.mended = 0;
      hls.on(Hls.Events.MANIFEST_PARSED, () => {
        this.list(hls.levels);
        this.subtitles(facts.captions); // not before: hls.js empties the tracks that it finds when it begins
      });
      hls.on(Hls.Events.LEVEL_SWITCHED, (_, data) => this.name(data.level));
      hls.on(Hls.Events.ERROR, (_, data) => {
        if (!data.fatal) return;
        if (data.type === Hls.ErrorTypes.MEDIA_ERROR && this.mended < 3) {
          this.mended += 1;
          hls.recoverMediaError();
          return;
        }
        this.tell(data.type === Hls.ErrorTypes.NETWORK_ERROR ? "It could not be fetched." : `It cannot be played: ${data.details}.`, "Try again", () => this.load(this.facts, this.video.currentTime, true));
      });
      hls.loadSource(facts.master);
      hls.attachMedia(this.video);
    }

    loadNative(facts, at) {
      this.video.src = facts.master;
      this.subtitles(facts.captions);
      this.quality.hidden = true; // the browser chooses
      if (at) this.video.addEventListener("loadedmetadata", () => { this.video.currentTime = at; }, { once: true });
    }

    // What has come since: another version, or more qualities. Somebody who watches is asked, not interrupted.
    update(facts) {
      if (`${facts.version} ${facts.qualities}` === this.loaded || this.offered === facts.qualities + facts.version) return;
      if (this.video.paused && this.video.currentTime === 0) {
        this.load(facts);
        return;
      }
      this.offered = facts.qualities + facts.version;
      const text = facts.version !== this.facts.version ? `Version ${facts.version} is ready.` : "More qualities are ready.";
      this.tell(text, "Use it", () => this.load(facts, this.video.currentTime, !this.video.paused));
    }

    // ---- quality -------------------------------------------------------------------------------------------------------
    list(levels) {
      const label = (level) => this.names.find((known) => level.url[0].includes(`/${known.folder}/`))?.name ?? `${level.height}p`;
      this.labels = levels.map(label);
      const order = levels.map((_, index) => index).sort((x, y) => levels[y].bitrate - levels[x].bitrate);
      const options = order.map((index) => new Option(this.labels[index], index));
      this.auto = new Option("Auto", -1);
      this.quality.replaceChildren(this.auto, ...options);
      this.quality.value = "-1";
    }

    name(level) {
      this.section.dataset.level = this.labels?.[level] ?? "";
      if (this.auto) this.auto.textContent = this.hls.autoLevelEnabled ? `Auto (${this.labels[level]})` : "Auto";
    }

    // ---- subtitles and sprites -----------------------------------------------------------------------------------------
    subtitles(address) {
      one("track", this.video)?.remove();
      const button = one("#captions", this.section);
      button.hidden = !address;
      button.setAttribute("aria-pressed", "false");
      if (!address) return;
      const track = document.createElement("track");
      Object.assign(track, { kind: "subtitles", label: "Subtitles", src: address });
      this.video.append(track);
      track.track.mode = "disabled";
      this.track = track.track;
    }

    async sprites(address) {
      this.cues = [];
      if (!address) return;
      const answer = await fetch(address).catch(() => null);
      if (!answer?.ok) return;
      const base = new URL(address, location.href);
      const seconds = (text) => text.split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
      const pattern = /([\d:.]+) --> ([\d:.]+)\s+(\S+)#xywh=(\d+),(\d+),(\d+),(\d+)/g;
      this.cues = [...(await answer.text()).matchAll(pattern)].map(([, from, to, file, ...area]) => ({
        from: seconds(from),
        to: seconds(to),
        sheet: new URL(file, base).href,
        area: area.map(Number),
      }));
    }

    point(event) {
      const box = this.seek.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      this.show(share * (this.video.duration || 0), share * box.width, box.width);
    }

    show(time, x, width) {
      if (!Number.isFinite(time) || !this.video.duration) return;
      const cue = this.cues.find((each) => time < each.to) ?? this.cues.at(-1);
      const tile = one(".tile-of", this.preview);
      if (cue) {
        const [left, top, wide, high] = cue.area;
        Object.assign(tile.style, { width: `${wide}px`, height: `${high}px`, backgroundImage: `url("${cue.sheet}")`, backgroundPosition: `-${left}px -${top}px` });
      }
      tile.hidden = !cue;
      one("span", this.preview).textContent = clock(time);
      this.preview.hidden = false;
      const half = this.preview.offsetWidth / 2;
      this.preview.style.left = `${Math.min(width - half, Math.max(half, x))}px`;
    }

    // ---- controls ------------------------------------------------------------------------------------------------------
    listen() {
      const { video, seek } = this;
      const on = (element, names, work) => names.split(" ").forEach((name) => element.addEventListener(name, work));
      const toggle = () => (video.paused || video.ended ? video.play().catch(() => {}) : video.pause());
      for (const id of ["#play", "#big-play"]) one(id, this.section).addEventListener("click", toggle);
      video.addEventListener("click", toggle);
      on(video, "play pause ended emptied", () => this.draw());
      on(video, "timeupdate durationchange seeked loadedmetadata", () => this.time());
      on(video, "volumechange", () => this.draw());
      on(seek, "input", () => {
        this.dragging = true;
        video.currentTime = Number(seek.value);
        this.time();
      });
      on(seek, "change", () => { this.dragging = false; });
      seek.addEventListener("keydown", (event) => {
        const step = { ArrowRight: STEP, ArrowUp: STEP, ArrowLeft: -STEP, ArrowDown: -STEP, PageUp: 10 * STEP, PageDown: -10 * STEP }[event.key];
        if (!step) return;
        event.preventDefault();
        video.currentTime = Math.min(video.duration || 0, Math.max(0, video.currentTime + step));
        this.time();
      });
      seek.addEventListener("pointermove", (event) => this.point(event));
      on(seek, "pointerleave blur", () => { this.preview.hidden = true; });
      one("#mute", this.section).addEventListener("click", () => { video.muted = !video.muted; });
      this.quality.addEventListener("change", () => {
        if (!this.hls) return;
        this.hls.nextLevel = Number(this.quality.value);
        this.name(this.hls.currentLevel);
      });
      one("#captions", this.section).addEventListener("click", (event) => {
        const shown = this.track.mode !== "showing";
        this.track.mode = shown ? "showing" : "disabled";
        event.currentTarget.setAttribute("aria-pressed", String(shown));
      });
      one("#full", this.section).addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : this.section.requestFullscreen?.().catch(() => {})));
    }

    draw() {
      const { video } = this;
      const [icon, name] = video.ended ? ["m-again", "Play again"] : video.paused ? ["m-play", "Play"] : ["m-pause", "Pause"];
      const play = one("#play", this.section);
      one("use", play).setAttribute("href", `#i-${icon}`);
      play.setAttribute("aria-label", name);
      one("#big-play", this.section).hidden = !(video.paused && video.currentTime === 0);
      const mute = one("#mute", this.section);
      one("use", mute).setAttribute("href", video.muted || mute.disabled ? "#i-m-quiet" : "#i-m-sound");
      mute.setAttribute("aria-pressed", String(video.muted));
      this.section.dataset.state = video.ended ? "ended" : video.paused ? "paused" : "playing";
    }

    time() {
      const { video, seek } = this;
      const length = Number.isFinite(video.duration) ? video.duration : 0;
      seek.max = String(length);
      if (!this.dragging) seek.value = String(video.currentTime);
      seek.setAttribute("aria-valuetext", `${clock(video.currentTime)} of ${clock(length)}`);
      one("#time", this.section).textContent = `${clock(video.currentTime)} / ${clock(length)}`;
    }

    tell(text, label, act) {
      this.says.replaceChildren(text);
      if (!label) return;
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "button small", textContent: label });
      button.addEventListener("click", act);
      this.says.append(button);
    }
  }

  let player = null;
  function look() {
    const section = one("#player");
    const facts = one("#playing")?.dataset;
    if (!section || !facts) {
      player?.hls?.destroy();
      player = null;
      return;
    }
    if (player?.section === section) return player.update({ ...facts });
    player?.hls?.destroy();
    player = new Player(section);
    return player.load({ ...facts });
  }
  document.addEventListener("htmx:after:swap", look);
  look();
})();
