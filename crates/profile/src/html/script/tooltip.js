// One box beside the pointer for everything that can be pointed at.

const tooltip = element("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
document.body.append(tooltip);

/** Shows a heading and pairs of words beside a point of the window. */
function showTooltip(x, y, heading, pairs) {
  tooltip.replaceChildren(...described(heading, pairs));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const [right, bottom] = [document.documentElement.clientWidth, innerHeight];
  const left = x + 16 + width < right ? x + 16 : Math.max(8, Math.min(x - 16 - width, right - width - 8));
  const top = y + 16 + height < bottom ? y + 16 : Math.max(8, y - 16 - height);
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${top}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

/** The same words for a box that stays. */
function described(heading, pairs) {
  const pair = ([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value));
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return [element("p", { class: "heading" }, named(heading)), element("dl", {}, known.map(pair))];
}
