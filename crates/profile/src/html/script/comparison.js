// Two profiles side by side.

const compared = JSON.parse(document.getElementById("data").textContent);

const taken = (part) => (part === null ? 0 : part.nanoseconds);
const direction = (difference) => (difference < 0 ? "better" : difference > 0 ? "worse" : "same");

/** The change in percent, or that there is nothing to compare with. */
function changeWords(row) {
  if (row.before === null) return "new";
  if (row.after === null) return "gone";
  return row.percent === null ? "–" : changePercent(row.percent);
}

function drawSides({ before, after, total }) {
  const side = (label, { title, device }) => element("div", { class: "side panel" },
    element("p", { class: "overline" }, label),
    element("p", { class: "heading" }, named(title)),
    element("p", { class: "muted" }, device === "" ? "on an unknown device" : named(device)));
  const sides = document.getElementById("sides");
  sides.append(side("Before", before), side("After", after));
  if (before.device !== after.device) {
    sides.after(element("p", { class: "notice" }, "The two runs were on different devices, so the differences may not come from the program."));
  }
  const figure = (label, from, to, difference, words, key) => element("div", {},
    element("dt", {}, label),
    element("dd", { "data-figure": key, class: "pair" }, element("span", { class: "old" }, from), " → ", element("span", {}, to)),
    element("dd", { class: `note ${direction(difference)}` }, words));
  const figures = [
    figure("Total time", time(taken(total.before)), time(taken(total.after)), total.difference_nanoseconds,
      `${change(total.difference_nanoseconds)}${total.percent === null ? "" : `, ${changePercent(total.percent)}`}`, "total"),
  ];
  if (before.peak_bytes !== null && after.peak_bytes !== null) {
    const difference = after.peak_bytes - before.peak_bytes;
    const sign = difference < 0 ? "−" : "+";
    figures.push(figure("Peak memory", bytes(before.peak_bytes), bytes(after.peak_bytes), difference,
      difference === 0 ? "the same" : `${sign}${bytes(Math.abs(difference))}`, "peak"));
  }
  document.getElementById("figures").append(...figures);
}

/** Bars of all stages of both runs to one scale. */
function drawPairs({ stages }) {
  const body = room("stages");
  if (stages.length === 0) {
    body.append(nothing("Neither run has stages."));
    return;
  }
  const longest = Math.max(...stages.map((row) => Math.max(taken(row.before), taken(row.after))), 1);
  const bar = (name, part) => element("span", { class: "bar", "aria-hidden": "true" },
    element("span", { class: `piece ${name}`, style: { width: `${(100 * taken(part)) / longest}%` } }));
  const line = (label, name, part) => [
    element("span", { class: "when" }, label), bar(name, part),
    element("span", { class: "taken" }, part === null ? "–" : time(part.nanoseconds)),
    element("span", { class: "limits" }, limitMark(part?.limit)),
  ];
  const pair = (row) => element("li", { class: "pair" },
    element("span", { class: "label" }, named(row.name),
      element("span", { class: `change ${direction(row.difference_nanoseconds)}` }, `${change(row.difference_nanoseconds)}, ${changeWords(row)}`)),
    line("before", "in-before", row.before), line("after", "in-after", row.after));
  body.append(element("ol", { class: "pairs panel" }, stages.map(pair)));
}

function drawChanges(section, rows, caption, leftOut) {
  const body = room(section);
  if (rows.length === 0) {
    body.append(nothing("Neither run has layers."));
    return;
  }
  const largest = Math.max(...rows.map((row) => Math.abs(row.difference_nanoseconds)), 1);
  const runs = (part) => (part && part.runs !== null ? part.runs : null);
  const runsWords = (row) => {
    const [first, second] = [runs(row.before), runs(row.after)];
    if (first === second) return count(first);
    return `${first === null ? "–" : count(first)} → ${second === null ? "–" : count(second)}`;
  };
  const columns = [
    { label: "Name", words: true, value: (row) => `${row.program} ${row.name}`,
      cell: (row) => [named(row.name), row.program === "" ? null : element("span", { class: "program" }, named(row.program))] },
    { label: "Before", value: (row) => row.before?.nanoseconds ?? null, cell: (row) => (row.before ? time(row.before.nanoseconds) : "–") },
    { label: "After", value: (row) => row.after?.nanoseconds ?? null, cell: (row) => (row.after ? time(row.after.nanoseconds) : "–") },
    { label: "Difference", value: (row) => row.difference_nanoseconds, class: "difference",
      cell: (row) => element("span", { class: direction(row.difference_nanoseconds) }, change(row.difference_nanoseconds)) },
    { label: "Change", value: (row) => row.percent, cell: (row) => element("span", { class: direction(row.difference_nanoseconds) }, changeWords(row)) },
    { label: "By how much", value: (row) => Math.abs(row.difference_nanoseconds), class: "diverging",
      cell: (row) => {
        const width = `${(50 * Math.abs(row.difference_nanoseconds)) / largest}%`;
        return element("span", { class: "track", "aria-hidden": "true" }, element("span", { class: `piece ${direction(row.difference_nanoseconds)}`, style: { width } }));
      } },
    { label: "Runs", value: (row) => runs(row.after) ?? runs(row.before), cell: runsWords },
  ];
  // A phone shows two columns beside the names: there the difference comes first.
  if (document.documentElement.clientWidth < 600) columns.splice(1, 0, ...columns.splice(3, 2));
  const search = (row) => `${row.program} ${row.name} ${row.before === null ? "new" : ""} ${row.after === null ? "gone" : ""}`;
  const sorted = columns.findIndex((column) => column.label === "By how much");
  body.append(...sortedTable({ caption, columns, rows, sorted, search, className: "changes" }));
  if (leftOut > 0) body.append(element("p", { class: "hint" }, `The ${count(rows.length)} that changed the most are listed; ${count(leftOut)} are not.`));
}

part(() => drawSides(compared));
part(() => drawPairs(compared));
part(() => drawChanges("kinds", compared.ops, "changes by kind of op", 0));
part(() => drawChanges("layers", compared.layers, "changes by layer", compared.layers_left_out));
document.documentElement.dataset.ready = "";
