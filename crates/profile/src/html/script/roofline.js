// What layers reach against what the device could do, both axes logarithmic.

/** How many points are drawn: those of the layers that took the longest. */
const POINTS = 1500;

function drawRoofline({ by_layer, by_kernel, ceilings, ops }) {
  const body = room("roofline");
  const tables = [["layer", by_layer], ["kernel", by_kernel]];
  if (by_layer.rows.length === 0) {
    body.append(nothing("No layers were recorded."));
    return;
  }
  let chosen = 0;
  const picture = shape("svg", {
    class: "picture", role: "img", tabindex: "0", "aria-describedby": "roofline-note",
    "aria-label": "Roofline: FLOP per second over FLOP per byte",
  });
  const details = element("div", { class: "details", "aria-live": "polite" });
  const note = element("p", { class: "hint", id: "roofline-note" });
  let points = [];
  let shownPoint = -1;

  const canBeShown = (row) => row.flops > 0 && row.bytes > 0 && row.nanoseconds > 0;

  function facts(row) {
    return [
      row.name,
      [
        ["Network", row.program === "" ? null : named(row.program)],
        ["Kind", named(ops[row.op])],
        ["Time", `${time(row.nanoseconds)} in ${counted(row.runs, "run")}`],
        ["Arithmetic", prefixed(row.flops_per_second, "FLOP/s")],
        ["Memory", prefixed(row.bytes_per_second, "B/s")],
        ["Intensity", `${prefixed(row.flops / row.bytes, "FLOP")} per byte`],
        ["Of best", row.efficiency === null ? null : wholePercent(row.efficiency)],
        ["Limited by", row.limit],
      ],
    ];
  }

  function draw() {
    const rows = tables[chosen][1].rows;
    const shown = rows.filter(canBeShown).slice(0, POINTS);
    const width = picture.parentNode.clientWidth;
    const height = Math.round(Math.max(280, Math.min(460, width * 0.5)));
    const edge = { left: 66, right: 18, top: 18, bottom: 46 };
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.replaceChildren();
    points = [];
    shownPoint = -1;

    const intensities = shown.map((row) => row.flops / row.bytes);
    const rates = shown.map((row) => row.flops_per_second);
    const ridge = ceilings ? ceilings.flops_per_second / ceilings.bytes_per_second : null;
    // In decades, with room around the outermost points.
    const bounds = (values) => {
      const powers = values.map(Math.log10).filter(Number.isFinite);
      if (powers.length === 0) return [0, 1];
      const [low, high] = powers.reduce(([low, high], power) => [Math.min(low, power), Math.max(high, power)], [Infinity, -Infinity]);
      const more = Math.max(0.25, (1.5 - (high - low)) / 2);
      return [low - more, high + more];
    };
    // Leaves room to the right of the ridge, so that the flat part of the roof shows.
    const [xLow, xHigh] = bounds([...intensities, ...(ridge ? [ridge, ridge * 4] : [])]);
    const [yLow, yHigh] = bounds([...rates, ...(ceilings ? [ceilings.flops_per_second] : [])]);
    const x = (value) => edge.left + ((Math.log10(value) - xLow) / (xHigh - xLow)) * (width - edge.left - edge.right);
    const y = (value) => height - edge.bottom - ((Math.log10(value) - yLow) / (yHigh - yLow)) * (height - edge.top - edge.bottom);

    const grid = shape("g", { class: "grid" });
    const words = shape("g", { class: "axis" });
    // Every decade has a line; on a small screen, not every line has a number.
    const apart = (count, room, least) => Math.max(1, Math.ceil((count * least) / room));
    const everyX = apart(xHigh - xLow, width - edge.left - edge.right, 56);
    const everyY = apart(yHigh - yLow, height - edge.top - edge.bottom, 24);
    for (let power = Math.ceil(xLow); power <= xHigh; power += 1) {
      const at = x(10 ** power);
      grid.append(shape("line", { x1: at, x2: at, y1: edge.top, y2: height - edge.bottom }));
      const label = power < 0 ? (10 ** power).toPrecision(1) : prefixed(10 ** power, "").trim().replace(/\.0+(?= |$)/, "");
      if ((power - Math.ceil(xLow)) % everyX === 0) words.append(shape("text", { x: at, y: height - edge.bottom + 18, "text-anchor": "middle" }, label));
    }
    for (let power = Math.ceil(yLow); power <= yHigh; power += 1) {
      const at = y(10 ** power);
      grid.append(shape("line", { x1: edge.left, x2: width - edge.right, y1: at, y2: at }));
      if ((power - Math.ceil(yLow)) % everyY === 0) {
        words.append(shape("text", { x: edge.left - 8, y: at + 4, "text-anchor": "end" }, prefixed(10 ** power, "").replace(/\.0+ /, " ").trim()));
      }
    }
    words.append(
      shape("text", { x: (edge.left + width - edge.right) / 2, y: height - 8, "text-anchor": "middle", class: "title" }, "FLOP per byte"),
      shape("text", { x: -(edge.top + height - edge.bottom) / 2, y: 14, transform: "rotate(-90)", "text-anchor": "middle", class: "title" }, "FLOP/s"));
    picture.append(grid, words);

    if (ceilings) {
      const { flops_per_second: peak, bytes_per_second: bandwidth } = ceilings;
      // The slope begins where it enters the picture: at the left edge, or at the bottom.
      const begin = Math.max(10 ** xLow, 10 ** yLow / bandwidth);
      const roof = [[begin, begin * bandwidth], [ridge, peak], [10 ** xHigh, peak]];
      const line = roof.map(([at, rate]) => `${x(at)},${y(rate)}`).join(" ");
      picture.append(shape("polyline", { class: "roof", points: line }));
      picture.append(shape("text", { class: "roof-label", x: width - edge.right - 4, y: y(peak) - 7, "text-anchor": "end" }, prefixed(peak, "FLOP/s")));
      const middle = Math.sqrt(begin * ridge);
      const turn = (Math.atan2(y(peak) - y(begin * bandwidth), x(ridge) - x(begin)) * 180) / Math.PI;
      const [mx, my] = [x(middle), y(middle * bandwidth)];
      picture.append(shape("text", { class: "roof-label", x: mx, y: my - 7, transform: `rotate(${turn} ${mx} ${my})`, "text-anchor": "middle" }, prefixed(bandwidth, "B/s")));
    }

    const most = Math.max(...shown.map((row) => row.nanoseconds), 1);
    const places = shape("g", { class: "points" });
    // The largest come first and lie below.
    shown.forEach((row, number) => {
      const radius = 3 + 11 * Math.sqrt(row.nanoseconds / most);
      const [cx, cy] = [x(intensities[number]), y(rates[number])];
      const colour = kindColour(row.op);
      const circle = shape("circle", { cx, cy, r: radius, fill: colour, stroke: mixed(colour, colours.ink, 0.35) });
      points.push({ row, x: cx, y: cy, radius, circle });
      places.append(circle);
    });
    picture.append(places);

    const [noArithmetic, beyond] = [rows.filter((row) => !canBeShown(row)), rows.filter(canBeShown).length - shown.length];
    const taken = noArithmetic.reduce((sum, row) => sum + row.nanoseconds, 0);
    note.textContent = [
      ceilings ? "" : "The device's ceilings were not measured, so there is no roof.",
      noArithmetic.length > 0 ? `${counted(noArithmetic.length, tables[chosen][0])} without arithmetic or bytes (${time(taken)}) ${noArithmetic.length === 1 ? "has" : "have"} no place in this chart.` : "",
      beyond > 0 ? `Only the ${count(POINTS)} longest are drawn; ${count(beyond)} are not.` : "",
      "Arrow keys move between points in order of their time.",
    ].filter(Boolean).join(" ");
    details.replaceChildren(element("p", { class: "muted" }, "Point at a layer to see what it is."));
  }

  function show(number, event) {
    if (shownPoint >= 0) points[shownPoint]?.circle.classList.remove("shown");
    shownPoint = number;
    if (number < 0) {
      hideTooltip();
      return;
    }
    const { row, circle } = points[number];
    circle.classList.add("shown");
    if (event) showTooltip(event.clientX, event.clientY, ...facts(row));
    details.replaceChildren(...described(...facts(row)));
  }

  function nearest(event) {
    const box = picture.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = { number: -1, away: 10 };
    points.forEach((point, number) => {
      const away = Math.max(0, Math.hypot(point.x - px, point.y - py) - point.radius);
      // If points overlap, the smaller one is meant: it is on top.
      if (away < best.away || (away === 0 && best.away === 0)) best = { number, away };
    });
    return best.number;
  }

  picture.addEventListener("pointermove", (event) => show(nearest(event), event));
  picture.addEventListener("pointerdown", (event) => show(nearest(event), event));
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || points.length === 0) return;
    event.preventDefault();
    show(Math.max(0, Math.min(points.length - 1, shownPoint + by)));
  });

  const choice = element("select", { id: "roofline-by", onchange: (event) => { chosen = Number(event.target.value); draw(); } },
    tables.map(([name], number) => element("option", { value: number }, name)));
  const used = new Set(by_layer.rows.filter(canBeShown).map((row) => row.op));
  let marks = legend([]);
  body.append(
    element("div", { class: "controls" }, element("label", { for: "roofline-by" }, "One point per", choice)),
    element("div", { class: "panel" }, element("div", { class: "drawing" }, picture), details), marks, note);
  drawn(() => {
    const fresh = legend(kindEntries(ops, used));
    marks.replaceWith(fresh);
    marks = fresh;
    draw();
  });
}
