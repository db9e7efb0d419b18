// Building the page. Text only ever becomes text nodes, so that no name can become markup.

/** An element with attributes, listeners (`onclick`) and children; `null` children are left out. */
function element(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

/** The same for a part of a picture. */
function shape(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** The element of a section that content goes into. */
function room(section) {
  return document.querySelector(`#${section} > .body`);
}

/** Something that a person named, set apart from the words around it whatever its script. It may be broken after a dot. */
function named(text) {
  const parts = (text === "" ? "unnamed" : text).split(/(?<=\.)(?=.)/);
  return element("bdi", { class: "name" }, parts.flatMap((part, at) => (at === 0 ? [part] : [element("wbr"), part])));
}

function nothing(text) {
  return element("p", { class: "nothing" }, text);
}

/** What limits something, as a word with a mark of its own. */
function limitMark(limit) {
  return limit ? element("span", { class: `limit ${limit}` }, limit) : null;
}

/** Runs a part of the page; if it fails, the others are still shown. */
function part(draw) {
  try {
    draw();
  } catch (error) {
    reportError(error);
  }
}

const redrawn = [];

/** Draws now, and again when the width of the page or its colours change. */
function drawn(draw) {
  redrawn.push(draw);
  draw();
}

function redrawAll() {
  readColours();
  for (const draw of redrawn) part(draw);
}

let widthOfPage = document.documentElement.clientWidth;
addEventListener("resize", () => {
  // A phone changes only the height when its bars come and go.
  if (document.documentElement.clientWidth === widthOfPage) return;
  widthOfPage = document.documentElement.clientWidth;
  requestAnimationFrame(redrawAll);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
