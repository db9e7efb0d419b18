// Who held how much memory, stacked.

function drawMemory({ memory, summary, timeline }) {
  const body = room("memory");
  if (memory.moments.length === 0) {
    const planned = summary.planned_peak_bytes === null ? "" : ` The plans predicted a peak of ${bytes(summary.planned_peak_bytes)}.`;
    body.append(nothing(`No memory use was recorded.${planned}`));
    return;
  }
  const names = [...memory.owners, ...(memory.others > 0 ? [`${count(memory.others)} others`] : [])];
  const moments = memory.moments;
  const [from, to] = [Math.min(timeline.from, moments[0]), Math.max(timeline.to, moments.at(-1))];
  const length = Math.max(to - from, 1);
  const sums = moments.map((_, at) => memory.held.reduce((sum, owner) => sum + owner[at], 0));
  const picture = shape("svg", {
    class: "picture", role: "img", tabindex: "0", "aria-describedby": "memory-note",
    "aria-label": `Memory over time: ${bytes(summary.peak.bytes)} at the peak, after ${time(summary.peak.at)}`,
  });
  const details = element("div", { class: "details", "aria-live": "polite" });
  let place = null;
  let shown = -1;

  function draw() {
    const width = picture.parentNode.clientWidth;
    const height = Math.round(Math.max(240, Math.min(340, width * 0.36)));
    const edge = { left: 66, right: 18, top: 26, bottom: 34 };
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.replaceChildren();
    const most = Math.max(summary.peak.bytes, summary.planned_peak_bytes ?? 0, 1) * 1.06;
    const x = (at) => edge.left + ((at - from) / length) * (width - edge.left - edge.right);
    const y = (held) => height - edge.bottom - (held / most) * (height - edge.top - edge.bottom);

    const grid = shape("g", { class: "grid" });
    const words = shape("g", { class: "axis" });
    for (const tick of ticks(0, most, (height - edge.top - edge.bottom) / 44).at) {
      grid.append(shape("line", { x1: edge.left, x2: width - edge.right, y1: y(tick), y2: y(tick) }));
      words.append(shape("text", { x: edge.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick === 0 ? "0" : bytes(tick)));
    }
    for (const tick of ticks(from, to, (width - edge.left - edge.right) / 110).at) {
      words.append(shape("text", { x: x(tick), y: height - edge.bottom + 20, "text-anchor": "middle" }, tick === 0 ? "0" : time(tick)));
    }
    picture.append(grid, words);

    const below = moments.map(() => 0);
    memory.held.forEach((owner, number) => {
      // What is held stays until the next moment: stairs, there along the top and back along the bottom.
      const [top, bottom] = [[], []];
      moments.forEach((at, moment) => {
        const [left, right] = [x(at), x(moments[moment + 1] ?? to)];
        const [low, high] = [y(below[moment]), y(below[moment] + owner[moment])];
        top.push(`${left.toFixed(1)},${high.toFixed(1)} ${right.toFixed(1)},${high.toFixed(1)}`);
        bottom.unshift(`${right.toFixed(1)},${low.toFixed(1)} ${left.toFixed(1)},${low.toFixed(1)}`);
        below[moment] += owner[moment];
      });
      picture.append(shape("polygon", { class: "owner", points: [...top, ...bottom].join(" "), fill: kindColour(number) }));
    });

    const [px, py] = [x(summary.peak.at), y(summary.peak.bytes)];
    const isRight = px > width / 2;
    if (summary.planned_peak_bytes !== null) {
      const at = y(summary.planned_peak_bytes);
      picture.append(shape("line", { class: "planned", x1: edge.left, x2: width - edge.right, y1: at, y2: at }));
      // The words of the peak take its own side; where they reach over to the other, these go below the line.
      const isCrowded = (isRight ? px - edge.left : width - edge.right - px) < 250;
      picture.append(shape("text", {
        class: "planned-label", x: isRight ? edge.left + 4 : width - edge.right - 2, y: isCrowded ? at + 16 : at - 6,
        "text-anchor": isRight ? "start" : "end",
      }, `planned: ${bytes(summary.planned_peak_bytes)}`));
    }
    picture.append(
      shape("circle", { class: "peak", cx: px, cy: py, r: 4.5 }),
      shape("text", { class: "peak-label", x: px + (isRight ? -9 : 9), y: py - 9, "text-anchor": isRight ? "end" : "start" }, `peak: ${bytes(summary.peak.bytes)}`));
    place = { x, line: shape("line", { class: "cursor", y1: edge.top, y2: height - edge.bottom, visibility: "hidden" }) };
    picture.append(place.line);
    rest();
  }

  function facts(at) {
    const held = names.map((name, owner) => [named(name), memory.held[owner][at]]).filter(([, amount]) => amount > 0);
    return [`${bytes(sums[at])} after ${time(moments[at])}`, held.map(([name, amount]) => [name, bytes(amount)])];
  }

  function rest() {
    shown = -1;
    hideTooltip();
    place.line.setAttribute("visibility", "hidden");
    const owners = summary.peak.owners.map(([name, held]) => [named(name), bytes(held)]);
    details.replaceChildren(...described(`${bytes(summary.peak.bytes)} at the peak, after ${time(summary.peak.at)}`, owners));
  }

  function show(at, event) {
    shown = at;
    const left = place.x(moments[at]);
    for (const end of ["x1", "x2"]) place.line.setAttribute(end, left);
    place.line.setAttribute("visibility", "visible");
    if (event) showTooltip(event.clientX, event.clientY, ...facts(at));
    else details.replaceChildren(...described(...facts(at)));
  }

  function point(event) {
    const box = picture.getBoundingClientRect();
    const moment = from + ((event.clientX - box.left - place.x(from)) / (place.x(to) - place.x(from))) * length;
    if (moment < moments[0] || moment > to) rest();
    else show(Math.max(0, firstAbove(moments, moment, 0) - 1), event);
  }

  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", rest);
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") rest();
    if (!by) return;
    event.preventDefault();
    show(Math.max(0, Math.min(moments.length - 1, shown + by)));
  });

  const owners = (colour) => names.map((name, number) => [name, colour(number)]);
  let marks = legend([]);
  const thinned = memory.is_thinned ? ` There were too many moments to show; each of the ${count(moments.length)} shown is the peak of its interval.` : "";
  body.append(
    element("div", { class: "panel" }, element("div", { class: "drawing" }, picture), details), marks,
    element("p", { class: "hint", id: "memory-note" }, `Point at a moment, or press ← →, to see what holds the memory.${thinned}`));
  drawn(() => {
    const fresh = legend(owners(kindColour));
    marks.replaceWith(fresh);
    marks = fresh;
    draw();
  });
}
