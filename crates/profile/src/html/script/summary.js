// The heading, the stages and the bottlenecks.

/** How many bottlenecks are shown before the button that shows the rest. */
const BOTTLENECKS_AT_FIRST = 8;

function figure(label, value, note, key) {
  return element("div", {}, element("dt", {}, label), element("dd", { "data-figure": key }, value), element("dd", { class: "note" }, note));
}

function drawMachine({ device, ceilings }) {
  const parts = device === "" ? [] : [named(device)];
  if (ceilings) {
    parts.push(element("span", {}, `peak ${prefixed(ceilings.flops_per_second, "FLOP/s")}`));
    parts.push(element("span", {}, prefixed(ceilings.bytes_per_second, "B/s")));
    parts.push(element("span", {}, `${time(ceilings.launch_nanoseconds)} per launch`));
  } else {
    parts.push(element("span", {}, "the device's ceilings were not measured"));
  }
  document.getElementById("machine").append(...parts);
}

function drawNotes({ notes }) {
  const list = document.getElementById("notes");
  list.append(...notes.map((note) => element("p", { class: "notice" }, note)));
}

function drawFigures({ summary, ceilings }) {
  const whose = summary.layer_kind === "device" ? "device" : "host";
  const share = summary.nanoseconds > 0 ? summary.layer_nanoseconds / summary.nanoseconds : 0;
  const figures = [
    figure("Total time", time(summary.nanoseconds), `${counted(summary.spans, "span")} in ${counted(summary.lanes, "lane")}`, "total"),
  ];
  if (summary.runs > 0) {
    const best = summary.efficiency === null ? counted(summary.runs, "run") : `${wholePercent(summary.efficiency)} of what is possible`;
    figures.push(figure("In layers", time(summary.layer_nanoseconds), `${wholePercent(share)} of the run, ${whose}`, "layers"));
    figures.push(figure("Layers reach", prefixed(summary.flops_per_second, "FLOP/s"), best, "rate"));
    const each = summary.launches > 0 ? `${counted(summary.runs, "run")} of layers` : "none were recorded";
    figures.push(figure("Launches", count(summary.launches), each, "launches"));
  } else {
    figures.push(figure("In layers", "–", "no layers were recorded", "layers"));
  }
  if (summary.peak) {
    const planned = summary.planned_peak_bytes;
    const note = planned === null ? "nothing was planned" : planned === summary.peak.bytes ? "exactly as planned" : `planned: ${bytes(planned)}`;
    figures.push(figure("Peak memory", bytes(summary.peak.bytes), note, "peak"));
  } else if (summary.planned_peak_bytes !== null) {
    figures.push(figure("Planned memory", bytes(summary.planned_peak_bytes), "actual use was not recorded", "planned"));
  }
  document.getElementById("figures").append(...figures);
}

function drawStages({ stages, summary }) {
  const body = room("stages");
  if (stages.length === 0) {
    body.append(nothing(summary.spans === 0 ? "Nothing was recorded." : "The run has no stages: its outermost span contains no others."));
    return;
  }
  const longest = Math.max(...stages.map((stage) => stage.nanoseconds), 1);
  const all = Math.max(stages.reduce((sum, stage) => sum + stage.nanoseconds, 0), 1);
  const row = (stage) => {
    // Layers of several lanes may take longer together than the stage that waits for them.
    const layers = Math.min(stage.layer_nanoseconds, stage.nanoseconds);
    const copies = Math.min(stage.copy_nanoseconds, stage.nanoseconds - layers);
    const words = [[layers, "layers"], [copies, "copies"]].filter(([part]) => part > 0).map(([part, name]) => `${time(part)} in ${name}`);
    const width = (nanoseconds) => `${(100 * nanoseconds) / longest}%`;
    const piece = (name, nanoseconds) => (nanoseconds > 0 ? element("span", { class: `piece ${name}`, style: { width: width(nanoseconds) } }) : null);
    return element("li", { class: "stage" },
      element("span", { class: "label" }, named(stage.name)),
      element("span", { class: "bar", "aria-hidden": "true" },
        piece("in-layers", layers), piece("in-copies", copies), piece("in-host", stage.nanoseconds - layers - copies)),
      element("span", { class: "taken" }, time(stage.nanoseconds)),
      element("span", { class: "share" }, `${fixed((100 * stage.nanoseconds) / all, 1)} %`),
      limitMark(stage.limit),
      element("span", { class: "parts" }, words.join(", ") || "no layers and no copies"));
  };
  const key = ([label, name]) => element("li", {}, element("span", { class: `swatch ${name}` }), label);
  const keys = [["layers", "in-layers"], ["copies", "in-copies"], ["neither", "in-host"]];
  body.append(element("ol", { class: "stages panel" }, stages.map(row)), element("ul", { class: "legend" }, keys.map(key)));
}

function drawBottlenecks({ bottlenecks, ceilings, summary }) {
  const body = room("bottlenecks");
  if (bottlenecks.length === 0) {
    body.append(nothing(ceilings ? "Nothing takes longer than it should." : "The device's ceilings were not measured, so nothing can be ranked."));
    return;
  }
  const most = Math.max(bottlenecks[0].saving_nanoseconds, 1);
  const entry = (found, rank) => element("li", { class: "bottleneck", hidden: rank >= BOTTLENECKS_AT_FIRST },
    element("span", { class: "rank", "aria-hidden": "true" }, String(rank + 1)),
    element("h3", {}, named(found.what)),
    limitMark(found.limit),
    element("p", { class: "saving" },
      element("strong", {}, time(Math.trunc(found.saving_nanoseconds))),
      ` of ${time(found.nanoseconds)}`,
      summary.nanoseconds > 0 ? element("span", { class: "muted" }, `, ${fixed((100 * found.saving_nanoseconds) / summary.nanoseconds, 1)} % of the run`) : null),
    element("span", { class: "meter", "aria-hidden": "true" }, element("span", { style: { width: `${(100 * found.saving_nanoseconds) / most}%` } })),
    element("p", { class: "advice" }, found.advice));
  const list = element("ol", { class: "bottlenecks panel" }, bottlenecks.map(entry));
  body.append(list);
  if (bottlenecks.length > BOTTLENECKS_AT_FIRST) {
    const more = element("button", { type: "button", class: "more", onclick: () => {
      for (const hidden of list.querySelectorAll("[hidden]")) hidden.hidden = false;
      more.remove();
    } }, `Show all ${count(bottlenecks.length)}`);
    body.append(more);
  }
}
