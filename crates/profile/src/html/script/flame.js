// Nested rectangles, as wide as the time that they stand for.

const FLAME_ROW = 26;
/** Rectangles narrower than this are hidden until the user zooms in. */
const NARROWEST = 2;

/** The nodes of a lane with their parents and children. */
function flameNodes(flame) {
  const open = [];
  return flame.nodes.map(([depth, kind, name, nanoseconds, runs, work], number) => {
    const node = { number, depth, kind, name, nanoseconds, runs, work, parent: open[depth - 1] ?? null, children: [] };
    node.parent?.children.push(node);
    open.length = depth;
    open.push(node);
    return node;
  });
}

function drawFlame({ flames, works, ops }) {
  const body = room("flame");
  if (flames.length === 0) {
    body.append(nothing("Nothing was recorded."));
    return;
  }
  const lanes = flames.map(flameNodes);
  let lane = 0;
  let top = lanes[0][0];
  let focused = top;
  const boxes = new Map();
  const box = element("div", { role: "tree", "aria-label": "Time by layer" });
  const crumbs = element("nav", { class: "crumbs", "aria-label": "Path to what is shown" });
  const note = element("p", { class: "hint" });

  const labelOf = (node) => (node.parent === null ? flames[lane].name || "unnamed lane" : node.name || "unnamed");
  const kindOf = (node) => (node.work === null ? null : works[node.work][2]);

  function path(node) {
    const nodes = [];
    for (let at = node; at; at = at.parent) nodes.unshift(at);
    return nodes;
  }

  function facts(node) {
    const whole = lanes[lane][0].nanoseconds;
    const own = node.children.reduce((left, child) => left - child.nanoseconds, node.nanoseconds);
    const work = node.work === null ? null : works[node.work];
    const share = (of) => (of > 0 ? `${fixed((100 * node.nanoseconds) / of, 1)} %` : null);
    return [
      node.kind === "module" && work ? work[1] : labelOf(node),
      [
        ["Time", time(node.nanoseconds)],
        ["Of the lane", share(whole)],
        ["Of what is shown", top === lanes[lane][0] ? null : share(top.nanoseconds)],
        ["Outside its children", node.children.length > 0 && own > 0 ? time(own) : null],
        [work ? "Runs" : "Count", count(node.runs)],
        ["Kind", work ? named(ops[work[2]]) : null],
        ["Kernel", work?.[3] ? named(work[3]) : null],
      ],
    ];
  }

  function look(node) {
    top = node;
    focused = node;
    draw();
    boxes.get(node)?.focus({ preventScroll: true });
  }

  function focus(node) {
    if (!boxes.has(node)) return;
    boxes.get(focused)?.setAttribute("tabindex", "-1");
    focused = node;
    boxes.get(node).setAttribute("tabindex", "0");
    boxes.get(node).focus();
  }

  function press(event, node) {
    const beside = (by) => {
      const all = (node.parent?.children ?? [node]).filter((other) => boxes.has(other));
      return all[all.indexOf(node) + by];
    };
    const acts = {
      ArrowDown: () => focus(node.children.find((child) => boxes.has(child))),
      ArrowUp: () => focus(node.parent),
      ArrowLeft: () => focus(beside(-1)),
      ArrowRight: () => focus(beside(1)),
      Escape: () => { if (top.parent) look(top.parent); },
      Backspace: () => { if (top.parent) look(top.parent); },
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  function rectangle(node, left, width, level) {
    const kind = kindOf(node);
    const colour = kind === null ? mixed(colours.shades[Math.min(level, 2)], colours.surface, 0.25) : kindColour(kind);
    const button = element("div", {
      class: "rectangle", role: "treeitem", tabindex: node === focused ? "0" : "-1", "aria-level": level + 1,
      "aria-label": `${labelOf(node)}, ${time(node.nanoseconds)}`,
      style: { left: `${left}px`, top: `${level * FLAME_ROW}px`, width: `${width}px`, background: colour, color: inkOn(colour) },
      onclick: () => look(node === top && node.parent ? node.parent : node),
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          look(node);
        } else press(event, node);
      },
      onpointermove: (event) => showTooltip(event.clientX, event.clientY, ...facts(node)),
      onpointerleave: hideTooltip,
    });
    // A rectangle that is too narrow for its name has none.
    if (width > 34) {
      button.append(element("span", { class: "text" }, named(labelOf(node))));
      if (width > 190) button.append(element("span", { class: "amount" }, time(node.nanoseconds)));
    }
    boxes.set(node, button);
    return button;
  }

  function draw() {
    hideTooltip();
    const hadFocus = box.contains(document.activeElement);
    boxes.clear();
    const width = box.clientWidth;
    const scale = width / Math.max(top.nanoseconds, 1);
    const open = [[top, 0]];
    const found = [];
    let deepest = 0;
    while (open.length > 0) {
      const [node, left] = open.pop();
      const level = node.depth - top.depth;
      deepest = Math.max(deepest, level);
      found.push(rectangle(node, left, node === top ? width : node.nanoseconds * scale, level));
      let at = left;
      const next = [];
      for (const child of node.children) {
        // Children come in the order of their time: what follows is narrower still.
        if (child.nanoseconds * scale < NARROWEST) break;
        next.push([child, at]);
        at += child.nanoseconds * scale;
      }
      open.push(...next.reverse());
    }
    box.replaceChildren(...found);
    if (hadFocus) boxes.get(focused)?.focus({ preventScroll: true });
    box.style.height = `${(deepest + 1) * FLAME_ROW}px`;
    const steps = path(top);
    crumbs.hidden = steps.length === 1;
    crumbs.replaceChildren(...steps.map((node) => node === top
      ? element("span", { "aria-current": "location" }, named(labelOf(node)))
      : element("button", { type: "button", onclick: () => look(node) }, named(labelOf(node)))));
    const small = lanes[lane].length - 1 - found.length;
    const left = flames[lane].left_out > 0 ? ` ${counted(flames[lane].left_out, "rectangle")} with the least time ${flames[lane].left_out === 1 ? "is" : "are"} not in this page.` : "";
    note.textContent = `Click a rectangle, or press Enter, to zoom in; Escape goes back. Arrow keys move between rectangles.${small > 0 && top === lanes[lane][0] ? " Rectangles narrower than two pixels are hidden until you zoom in." : ""}${left}`;
  }

  const choice = element("select", { id: "flame-lane", onchange: (event) => {
    lane = Number(event.target.value);
    [top, focused] = [lanes[lane][0], lanes[lane][0]];
    draw();
  } }, flames.map((flame, number) => element("option", { value: number }, `${flame.name || "unnamed lane"} (${flame.kind})`)));
  const used = new Set(lanes.flat().map(kindOf).filter((kind) => kind !== null));
  let marks = legend([]);
  body.append(
    element("div", { class: "controls" },
      flames.length > 1 ? element("label", { for: "flame-lane" }, "Time of", choice) : null, crumbs),
    element("div", { class: "flame panel" }, box), marks, note);
  drawn(() => {
    const fresh = legend([...kindEntries(ops, used), ["stages, steps and modules", mixed(colours.shades[2], colours.surface, 0.25)]]);
    marks.replaceWith(fresh);
    marks = fresh;
    draw();
  });
}
