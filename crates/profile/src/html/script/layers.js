// The tables of layers.

function drawLayers(section, table, { ops, ceilings }, caption, { withKind, withProgram }) {
  const body = room(section);
  if (table.rows.length === 0) {
    body.append(nothing("No layers were recorded."));
    return;
  }
  const number = (label, key, show) => ({
    label,
    value: (row) => row[key],
    cell: (row) => (row[key] === null ? "–" : show(row[key])),
  });
  const columns = [
    {
      label: "Name",
      words: true,
      value: (row) => `${row.program} ${row.name}`,
      cell: (row) => element("span", { class: "entry" },
        element("span", { class: "swatch", style: { background: `var(--kind-${Math.min(row.op, 9)})` } }),
        element("span", {},
          named(row.name),
          withProgram && row.program !== "" ? element("span", { class: "program" }, named(row.program)) : null)),
    },
    // What matters most comes first, where a phone shows it.
    number("Time", "nanoseconds", time),
    { ...number("Share", "share", (share) => `${fixed(share, 1)} %`), class: "share" },
    number("Runs", "runs", count),
    withKind ? { label: "Kind", words: true, value: (row) => ops[row.op], cell: (row) => named(ops[row.op]) } : null,
    number("FLOP/s", "flops_per_second", (rate) => prefixed(rate, "FLOP/s")),
    number("B/s", "bytes_per_second", (rate) => prefixed(rate, "B/s")),
    ceilings ? number("Of best", "efficiency", wholePercent) : null,
    ceilings ? number("Could save", "saving_nanoseconds", (saving) => time(Math.trunc(saving))) : null,
    ceilings ? { label: "Limited by", words: true, value: (row) => row.limit, cell: (row) => limitMark(row.limit) } : null,
  ].filter(Boolean);
  const search = (row) => `${row.program} ${row.name} ${ops[row.op]} ${row.limit ?? ""}`;
  const sorted = columns.findIndex((column) => column.label === "Time");
  body.append(...sortedTable({ caption, columns, rows: table.rows, sorted, search }));
  if (table.left_out > 0) {
    const text = `The ${count(table.rows.length)} longest are listed; ${count(table.left_out)} more took ${time(table.left_out_nanoseconds)} in total.`;
    body.append(element("p", { class: "hint" }, text));
  }
}
