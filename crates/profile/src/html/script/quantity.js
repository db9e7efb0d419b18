// Quantities as people read them: the same as the crate's `quantity` module, digit for digit.

/** A number with this many decimals; an exact half goes to the even digit. */
function fixed(value, decimals) {
  const text = value.toFixed(decimals);
  // `toFixed` lets an exact half go up. A double that is one has few digits; thirty tell it from its neighbours.
  const digits = value.toFixed(30);
  const rest = digits.slice(digits.indexOf(".") + 1 + decimals);
  if (!/^50*$/.test(rest)) return text;
  const down = digits.slice(0, digits.length - rest.length).replace(/\.$/, "");
  return "02468".includes(down.at(-1)) ? down : text;
}

function decimalsOf(value) {
  if (value < 9.995) return 2;
  return value < 99.95 ? 1 : 0;
}

/** Three digits and a decimal prefix: `1.52 GB`. */
function prefixed(value, unit) {
  let prefix = "";
  for (const next of ["k", "M", "G", "T", "P", "E"]) {
    if (value < 999.5) break;
    value /= 1000;
    prefix = next;
  }
  return `${fixed(value, prefix === "" ? 0 : decimalsOf(value))} ${prefix}${unit}`;
}

function bytes(count) {
  return prefixed(count, "B");
}

/** A time that is given in nanoseconds: `420 ns`, `1.25 ms`, `3 min 20 s`. */
function time(nanoseconds) {
  if (nanoseconds >= 59_950_000_000) {
    const seconds = Math.floor((nanoseconds + 500_000_000) / 1_000_000_000);
    return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  }
  if (nanoseconds < 1000) return `${Math.floor(nanoseconds)} ns`;
  let [value, unit] = [nanoseconds / 1e9, "s"];
  if (nanoseconds < 999_500) [value, unit] = [nanoseconds / 1e3, "µs"];
  else if (nanoseconds < 999_500_000) [value, unit] = [nanoseconds / 1e6, "ms"];
  return `${fixed(value, decimalsOf(value))} ${unit}`;
}

function change(nanoseconds) {
  const sign = nanoseconds === 0 ? "" : nanoseconds < 0 ? "−" : "+";
  return sign + time(Math.abs(nanoseconds));
}

function changePercent(percent) {
  const amount = fixed(Math.abs(percent), Math.abs(percent) < 999.5 ? 1 : 0);
  const sign = amount === "0.0" ? "" : percent < 0 ? "−" : "+";
  return `${sign}${amount} %`;
}

/** A share of 1 as the terminal shows it. */
function wholePercent(share) {
  return `${fixed(100 * share, 0)} %`;
}

/** A number of things: `12,345`. */
function count(number) {
  return number.toLocaleString("en");
}

/** A number with its noun: `1 span`, `12 spans`. */
function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A rate per second, from an amount and nanoseconds. */
function perSecond(amount, nanoseconds) {
  return nanoseconds > 0 ? (amount / nanoseconds) * 1e9 : 0;
}

/** About this many round numbers between two bounds: 1, 2 or 5 times a power of ten apart. */
function ticks(from, to, about) {
  const rough = (to - from) / Math.max(1, about);
  if (!(rough > 0)) return { step: 1, at: [from] };
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const at = [];
  for (let tick = Math.ceil(from / step); tick * step <= to; tick += 1) at.push(tick * step);
  return { step, at };
}
