// SHA-256 of a part. Browsers have it built in on HTTPS and on this machine; elsewhere it is worked out here (FIPS 180-4).
(() => {
  "use strict";
  const primes = [];
  for (let number = 2; primes.length < 64; number += 1) if (primes.every((prime) => number % prime)) primes.push(number);
  const fraction = (value) => ((value - Math.floor(value)) * 4294967296) | 0;
  const rounds = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
  const begin = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
  const turn = (word, by) => (word >>> by) | (word << (32 - by));

  function digest(bytes) {
    const padded = new Uint8Array((((bytes.length + 8) >> 6) + 1) << 6);
    padded.set(bytes);
    padded[bytes.length] = 0x80;
    const view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(bytes.length / 536870912));
    view.setUint32(padded.length - 4, (bytes.length << 3) >>> 0);
    const state = begin.slice();
    const words = new Int32Array(64);
    for (let at = 0; at < padded.length; at += 64) {
      for (let i = 0; i < 16; i += 1) words[i] = view.getInt32(at + i * 4);
      for (let i = 16; i < 64; i += 1) {
        const x = words[i - 15];
        const y = words[i - 2];
        const low = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3);
        const high = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
        words[i] = (words[i - 16] + low + words[i - 7] + high) | 0;
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i += 1) {
        const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i] + words[i]) | 0;
        const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
      }
      [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = (state[i] + word) | 0; });
    }
    const out = new DataView(new ArrayBuffer(32));
    state.forEach((word, i) => out.setInt32(i * 4, word));
    return new Uint8Array(out.buffer);
  }

  window.holdfastSha256 = async (buffer, own = false) => {
    const found = crypto.subtle && !own ? new Uint8Array(await crypto.subtle.digest("SHA-256", buffer)) : digest(new Uint8Array(buffer));
    return [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  };
})();
