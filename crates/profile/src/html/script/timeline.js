// The timeline: a canvas of the size of the window onto it, on which only what is seen is drawn. A frame costs what the
// pixels cost, however many spans there are: those that share a column of pixels are drawn as one.

const AXIS = 26;
const LANE = 24;
const ROW = 20;
const GAP = 10;
/** The closest zoom, in nanoseconds per window width. */
const CLOSEST = 200;
const TIMELINE_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** The rows of all lanes with their places. Times of spans are those since recording began. */
function timelineRows({ lanes, from }) {
  const rows = [];
  const headings = [];
  let y = AXIS + 4;
  for (const lane of lanes) {
    const kind = lane.is_activity ? "as traced on the device" : lane.kind === "device" ? "device queue" : "host thread";
    headings.push({ y, name: lane.name, kind });
    y += LANE;
    lane.rows.forEach((numbers, depth) => {
      const length = numbers.length / 3;
      const row = {
        y, depth, length, isActivity: lane.is_activity,
        starts: new Float64Array(length), ends: new Float64Array(length), labels: new Uint32Array(length),
        // The total time of all spans before each, so that a column's content is one subtraction.
        before: new Float64Array(length + 1),
      };
      let end = from;
      for (let at = 0; at < length; at += 1) {
        row.starts[at] = end + numbers[3 * at];
        end = row.starts[at] + numbers[3 * at + 1];
        row.ends[at] = end;
        row.before[at + 1] = row.before[at] + numbers[3 * at + 1];
        row.labels[at] = numbers[3 * at + 2];
      }
      rows.push(row);
      y += ROW;
    });
    y += GAP;
  }
  return { rows, headings, height: y };
}

/** The first place from `from` on whose value is above a bound. */
function firstAbove(values, bound, from) {
  let [low, high] = [from, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** A name shortened to this many letters. The end of a layer's name says more than its beginning; other names keep their beginning. */
function fitted(name, letters) {
  if (name.length <= letters) return name;
  if (letters < 4) return "";
  const last = name.slice(name.lastIndexOf(".") + 1);
  if (last.length < name.length && last.length < letters) return `…${name.slice(1 - letters)}`;
  return last.length <= letters ? last : `${last.slice(0, letters - 1)}…`;
}

function drawTimeline({ timeline, works, ops, summary, ceilings }) {
  const body = room("timeline");
  if (timeline.lanes.length === 0) {
    body.append(nothing("Nothing was recorded."));
    return;
  }
  const { rows, headings, height } = timelineRows(timeline);
  const whole = { from: timeline.from, to: Math.max(timeline.to, timeline.from + CLOSEST) };
  const view = { ...whole };
  let selected = null;
  let size = { width: 0, height: 0 };

  const nameOf = (label) => timeline.labels[label][0] ?? works[timeline.labels[label][1]][1];
  const workOf = (label) => works[timeline.labels[label][1]] ?? null;

  const canvas = element("canvas", {
    tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-describedby": "timeline-keys",
    "aria-label": `Timeline of ${counted(summary.spans, "span")} in ${counted(timeline.lanes.length, "lane")}`,
  });
  const context = canvas.getContext("2d");
  const spacer = element("div", { class: "spacer", style: { height: `${height}px` } }, canvas);
  const scroller = element("div", { class: "timeline" }, spacer);
  const shownRange = element("span", { class: "range" });
  const details = element("div", { class: "details", "aria-live": "polite" }, element("p", { class: "muted" }, "Select a span to see its details."));

  // ---- drawing

  let isAsked = false;
  function ask() {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => { isAsked = false; draw(); });
  }

  function fit() {
    const [width, tall] = [scroller.clientWidth, Math.min(height, scroller.clientHeight || height)];
    const scale = devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${tall}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
    size = { width, height: tall };
    labelColours = null;
  }

  let labelColours = null;
  function colourOf(label, depth) {
    labelColours ??= timeline.labels.map(([, work]) => (work === null ? null : kindColour(works[work][2])));
    return labelColours[label] ?? colours.shades[depth % 3];
  }

  const across = () => size.width / (view.to - view.from);

  function draw() {
    const scale = devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, size.width, size.height);
    context.font = TIMELINE_FONT;
    context.textBaseline = "middle";
    const down = scroller.scrollTop;
    const { step, at } = ticks(view.from, view.to, size.width / 110);
    context.fillStyle = colours.line;
    for (const tick of at) context.fillRect(Math.round((tick - view.from) * across()), AXIS, 1, size.height - AXIS);
    for (const row of rows) {
      const y = row.y - down;
      if (y > -ROW && y < size.height) drawRow(row, y);
    }
    for (const { y, name, kind } of headings) {
      if (y - down < -LANE || y - down > size.height) continue;
      const middle = y - down + LANE / 2 + 2;
      context.font = `600 ${TIMELINE_FONT}`;
      const shown = fitted(name, Math.floor((size.width - 110) / 6.4));
      const width = context.measureText(shown).width;
      context.fillStyle = colours.surface;
      context.fillRect(4, middle - 9, width + 20 + context.measureText(kind).width, 18);
      context.fillStyle = colours.ink;
      context.fillText(shown, 8, middle);
      context.font = TIMELINE_FONT;
      context.fillStyle = colours.muted;
      context.fillText(kind, 16 + width, middle);
    }
    drawAxis(step, at);
    shownRange.textContent = `${time(view.to - view.from)} shown, from ${instant(view.from, step)}`;
  }

  /** A moment with as many decimals as the distance between marks needs. */
  function instant(at, step) {
    const [unit, name] = whole.to >= 1e9 ? [1e9, "s"] : whole.to >= 1e6 ? [1e6, "ms"] : whole.to >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    return `${(at / unit).toFixed(Math.min(decimals, 9))} ${name}`;
  }

  function drawAxis(step, at) {
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, size.width, AXIS);
    context.fillStyle = colours.line;
    context.fillRect(0, AXIS - 1, size.width, 1);
    context.fillStyle = colours.muted;
    for (const tick of at) {
      const x = Math.round((tick - view.from) * across());
      const label = instant(tick, step);
      if (x + 4 + context.measureText(label).width < size.width) context.fillText(label, x + 4, AXIS / 2);
      context.fillRect(x, AXIS - 6, 1, 6);
    }
    // Where the window lies in the whole.
    const length = whole.to - whole.from;
    const [left, wide] = [(view.from - whole.from) / length, (view.to - view.from) / length];
    if (wide < 0.999) {
      context.fillStyle = colours.accent;
      context.fillRect(left * size.width, 0, Math.max(3, wide * size.width), 3);
    }
  }

  function drawRow(row, y) {
    const scale = across();
    const offset = view.from * scale;
    let at = firstAbove(row.ends, view.from, 0);
    while (at < row.length && row.starts[at] < view.to) {
      const [left, right] = [row.starts[at] * scale - offset, row.ends[at] * scale - offset];
      if (right - left >= 1.5) {
        const [x, end] = [Math.max(left, -2), Math.min(right, size.width + 2)];
        const colour = colourOf(row.labels[at], row.depth);
        context.fillStyle = colour;
        // A thin gap separates neighbours of the same colour.
        context.fillRect(x, y, Math.max(1, end - x - (right - left > 4 ? 1 : 0)), ROW - 2);
        if (selected && selected.row === row && selected.at === at) outline(x, y, end - x);
        if (end - x > 26) {
          const from = Math.max(x, 0);
          context.fillStyle = inkOn(colour);
          context.fillText(fitted(nameOf(row.labels[at]), Math.floor((end - from - 8) / 5.9)), from + 4, y + ROW / 2 - 0.5, end - from - 7);
        }
        at += 1;
        continue;
      }
      // Columns are counted from the beginning of the run, so that they do not flicker while the view is moved.
      const column = Math.floor(row.starts[at] * scale);
      let next = firstAbove(row.starts, (column + 1) / scale, at + 1);
      // The last that begins here may be wide enough to be drawn by itself.
      if (next - 1 > at && (row.ends[next - 1] - row.starts[next - 1]) * scale >= 1.5) next -= 1;
      let longest = at;
      for (let other = at + 1; other < Math.min(next, at + 16); other += 1) {
        if (row.ends[other] - row.starts[other] > row.ends[longest] - row.starts[longest]) longest = other;
      }
      const filled = Math.min(1, (row.before[next] - row.before[at]) * scale);
      context.globalAlpha = 0.35 + 0.65 * filled;
      context.fillStyle = colourOf(row.labels[longest], row.depth);
      const x = Math.round(column - offset);
      context.fillRect(x, y, 1, ROW - 2);
      context.globalAlpha = 1;
      if (selected && selected.row === row && selected.at >= at && selected.at < next) outline(x - 1, y, 3);
      at = next;
    }
  }

  function outline(x, y, width) {
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, Math.max(1, width - 3), ROW - 4);
  }

  // ---- moving

  function look(from, to) {
    const length = Math.min(Math.max(to - from, CLOSEST), whole.to - whole.from);
    const begin = Math.min(Math.max(from, whole.from), whole.to - length);
    view.from = begin;
    view.to = begin + length;
    ask();
  }

  function zoom(factor, around) {
    look(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }

  const zoomMiddle = (factor) => zoom(factor, (view.from + view.to) / 2);
  const move = (part) => look(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
  const everything = () => look(whole.from, whole.to);
  const timeAt = (x) => view.from + x / across();

  // ---- what is pointed at

  function found(x, y) {
    const row = rows.find((row) => y + scroller.scrollTop >= row.y && y + scroller.scrollTop < row.y + ROW);
    if (!row || y < AXIS) return null;
    const moment = timeAt(x);
    const after = firstAbove(row.ends, moment, 0);
    // Fingers and thin spans need a few pixels of tolerance.
    const near = [after, after - 1].filter((at) => at >= 0 && at < row.length).map((at) => {
      const away = Math.max(row.starts[at] - moment, moment - row.ends[at], 0) * across();
      return { row, at, away };
    });
    near.sort((a, b) => a.away - b.away);
    return near[0] && near[0].away <= 3 ? near[0] : null;
  }

  function facts({ row, at }) {
    const label = row.labels[at];
    const taken = row.ends[at] - row.starts[at];
    const work = workOf(label);
    const [program, layer, op, kernel, flops, moved] = work ?? [];
    const copied = timeline.labels[label][2];
    // A traced kernel may be only part of a layer's work, so the layer's rates would be wrong for it.
    const hasRates = work && !row.isActivity;
    const best = work && ceilings && flops > 0 ? ` (${wholePercent(perSecond(flops, taken) / ceilings.flops_per_second)})` : "";
    const bestBytes = work && ceilings && moved > 0 ? ` (${wholePercent(perSecond(moved, taken) / ceilings.bytes_per_second)})` : "";
    return [
      nameOf(label),
      [
        ["Time", time(taken)],
        ["Began after", time(row.starts[at])],
        ["Kind", work ? named(ops[op]) : null],
        ["Kernel", kernel ? named(kernel) : null],
        ["Network", work ? named(program) : null],
        ["Layer", work && layer !== nameOf(label) ? named(layer) : null],
        ["Arithmetic", hasRates && flops > 0 ? prefixed(perSecond(flops, taken), "FLOP/s") + best : null],
        ["Memory", hasRates && moved > 0 ? prefixed(perSecond(moved, taken), "B/s") + bestBytes : null],
        ["Copied", copied === null ? null : `${bytes(copied)}, ${prefixed(perSecond(copied, taken), "B/s")}`],
      ],
    ];
  }

  function select(span) {
    selected = span;
    if (span) details.replaceChildren(...described(...facts(span)));
    ask();
  }

  /** Selects a span by the keyboard, and moves the view if the span is outside it. */
  function go(row, at) {
    if (!row || at < 0 || at >= row.length) return;
    select({ row, at });
    const [start, end] = [row.starts[at], row.ends[at]];
    const length = view.to - view.from;
    if (end < view.from || start > view.to) look((start + end - length) / 2, (start + end + length) / 2);
    if (row.y - AXIS < scroller.scrollTop) scroller.scrollTop = row.y - AXIS - LANE;
    else if (row.y + ROW > scroller.scrollTop + size.height) scroller.scrollTop = row.y + ROW + 8 - size.height;
  }

  function goToRow(by) {
    const middle = selected ? (selected.row.starts[selected.at] + selected.row.ends[selected.at]) / 2 : (view.from + view.to) / 2;
    const row = selected ? rows[rows.indexOf(selected.row) + by] : rows[0];
    if (row) go(row, Math.min(firstAbove(row.ends, middle, 0), row.length - 1));
  }

  function goAlong(by) {
    if (selected) go(selected.row, selected.at + by);
    else goToRow(0);
  }

  const keys = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), ArrowUp: () => goToRow(-1), ArrowDown: () => goToRow(1),
    "+": () => zoomMiddle(1 / 1.5), "=": () => zoomMiddle(1 / 1.5), "-": () => zoomMiddle(1.5), 0: everything, Home: everything,
    n: () => goAlong(1), p: () => goAlong(-1),
    Enter: () => { if (selected) closer(selected); },
  };

  function closer({ row, at }) {
    const [start, end] = [row.starts[at], row.ends[at]];
    look(start - (end - start) * 0.05, end + (end - start) * 0.05);
  }

  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  canvas.addEventListener("wheel", (event) => {
    const aside = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.005))), timeAt(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(aside / size.width);
    // A wheel without Ctrl scrolls the page.
    else return;
    event.preventDefault();
  }, { passive: false });

  const pointers = new Map();
  let drag = null;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    drag = { x: event.offsetX, from: view.from, to: view.to, isMoved: pointers.size > 1 };
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      drag.pinch = { apart: Math.max(Math.abs(a - b), 10), around: timeAt((a + b) / 2) };
    }
    hideTooltip();
  });

  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) {
      const span = found(event.offsetX, event.offsetY);
      canvas.style.cursor = span ? "pointer" : "grab";
      if (span) showTooltip(event.clientX, event.clientY, ...facts(span));
      else hideTooltip();
      return;
    }
    pointers.set(event.pointerId, event.offsetX);
    if (!drag) return;
    const positions = [...pointers.values()];
    if (drag.pinch && positions.length === 2) {
      const [a, b] = positions;
      const length = ((drag.to - drag.from) * drag.pinch.apart) / Math.max(Math.abs(a - b), 10);
      const begin = drag.pinch.around - (length * (a + b)) / 2 / size.width;
      look(begin, begin + length);
    } else if (positions.length === 1) {
      const by = event.offsetX - drag.x;
      if (Math.abs(by) > 3) drag.isMoved = true;
      if (drag.isMoved) {
        canvas.style.cursor = "grabbing";
        const shift = (by * (drag.to - drag.from)) / size.width;
        look(drag.from - shift, drag.to - shift);
      }
    }
  });

  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (event.type === "pointerup" && drag && !drag.isMoved) select(found(event.offsetX, event.offsetY));
    const [left] = pointers.values();
    // The remaining finger continues from where it is.
    drag = left === undefined ? null : { x: left, from: view.from, to: view.to, isMoved: true };
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", hideTooltip);
  canvas.addEventListener("dblclick", (event) => {
    const span = found(event.offsetX, event.offsetY);
    if (span) closer(span);
  });
  scroller.addEventListener("scroll", ask);

  const button = (label, text, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const used = new Set(timeline.labels.filter(([, work]) => work !== null).map(([, work]) => works[work][2]));
  const entries = () => [...kindEntries(ops, used), ["other spans", colours.shades[1]]];
  let marks = legend(entries());
  body.append(
    element("div", { class: "controls" },
      button("Zoom in", "+", () => zoomMiddle(0.5)), button("Zoom out", "−", () => zoomMiddle(2)),
      button("Earlier", "←", () => move(-0.4)), button("Later", "→", () => move(0.4)),
      button("Show everything", "Fit", everything), shownRange),
    element("div", { class: "panel" }, scroller, details),
    marks,
    element("p", { class: "hint", id: "timeline-keys" },
      "Drag to move; pinch, or turn the wheel with Ctrl or ⌘ held, to zoom; double-click to zoom to a span. Keys: ← → move, + − zoom, 0 shows everything, ↑ ↓ choose a row, N and P go to the next and previous span, Enter zooms to it."));
  if (timeline.shortest !== null) {
    const text = `The ${count(timeline.shown)} longest of ${count(summary.spans)} spans are drawn, none shorter than ${time(timeline.shortest)}. The other parts of this page count all of them.`;
    body.append(element("p", { class: "hint", id: "timeline-left-out" }, text));
  }
  drawn(() => {
    const fresh = legend(entries());
    marks.replaceWith(fresh);
    marks = fresh;
    fit();
    draw();
  });
}
