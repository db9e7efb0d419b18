// Colours come from the style sheet, so that light and dark are decided in one place.

const colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  for (const name of ["ink", "muted", "line", "surface", "accent", "span"]) colours[name] = value(name);
  colours.kinds = Array.from({ length: 10 }, (_, number) => value(`kind-${number}`));
  colours.shades = [0, 0.22, 0.38].map((part) => mixed(colours.span, colours.surface, part));
}

/** The colour of a kind of op. There are nine; the rest share the tenth. */
function kindColour(kind) {
  return colours.kinds[Math.min(kind, 9)];
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** Mixes a share of the second colour into the first. */
function mixed(first, second, part) {
  const others = channels(second);
  const sum = channels(first).map((channel, at) => Math.round(channel * (1 - part) + others[at] * part));
  return `#${sum.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

function luminance(colour) {
  const [red, green, blue] = channels(colour).map((channel) => {
    const part = channel / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const inks = new Map();

/** Black or white, whichever is more readable on a colour. */
function inkOn(colour) {
  if (!inks.has(colour)) {
    const light = luminance(colour) + 0.05;
    inks.set(colour, 1.05 / light > light / 0.05 ? "#ffffff" : "#000000");
  }
  return inks.get(colour);
}

/** A legend: labels with their colours. */
function legend(entries) {
  const entry = ([label, colour]) => element("li", {}, element("span", { class: "swatch", style: { background: colour } }), named(label));
  return element("ul", { class: "legend" }, entries.map(entry));
}

/** The kinds of op that have a colour of their own, and one entry for all others. */
function kindEntries(ops, used) {
  const entries = [...ops.slice(0, 9).keys()].filter((kind) => used.has(kind)).map((kind) => [ops[kind], kindColour(kind)]);
  const others = [...used].filter((kind) => kind >= 9);
  if (others.length === 1) entries.push([ops[others[0]], kindColour(9)]);
  if (others.length > 1) entries.push([`${count(others.length)} other kinds`, kindColour(9)]);
  return entries;
}

readColours();
