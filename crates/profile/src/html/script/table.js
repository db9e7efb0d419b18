// Tables that can be sorted by any column and searched by name.

/** How many rows are shown before the button that shows the rest. */
const ROWS_AT_FIRST = 25;

/**
 * A table. A column has a `label`, a `value` of a row to sort by, a `cell` that shows it (`text` for plain text), and
 * `words` if it is first sorted alphabetically. `search` returns the text that the filter searches.
 */
function sortedTable({ caption, columns, rows, sorted, search, className }) {
  const state = { column: sorted, descending: true, filter: "", all: rows.length <= ROWS_AT_FIRST };
  const body = element("tbody");
  const more = element("button", { type: "button", class: "more", onclick: () => { state.all = true; fill(); } });
  const status = element("p", { class: "visually-hidden", role: "status" });
  const headings = columns.map((column, number) => {
    const sort = () => {
      state.descending = state.column === number ? !state.descending : !column.words;
      state.column = number;
      fill();
    };
    const button = element("button", { type: "button", onclick: sort }, column.label, element("span", { class: "arrow", "aria-hidden": "true" }));
    return element("th", { scope: "col", class: column.words ? null : "number" }, button);
  });

  function chosen() {
    const wanted = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = wanted.length ? rows.filter((row) => wanted.every((word) => search(row).toLowerCase().includes(word))) : [...rows];
    const column = columns[state.column];
    const sign = state.descending ? -1 : 1;
    return found.sort((a, b) => {
      const [first, second] = [column.value(a), column.value(b)];
      // Unknown values come last in either order.
      if (first === null || second === null) return (first === null) - (second === null);
      return sign * (typeof first === "string" ? first.localeCompare(second, "en") : first - second);
    });
  }

  function fill() {
    headings.forEach((heading, number) => {
      const order = state.descending ? "descending" : "ascending";
      if (number === state.column) heading.setAttribute("aria-sort", order);
      else heading.removeAttribute("aria-sort");
    });
    const found = chosen();
    const shown = state.all ? found : found.slice(0, ROWS_AT_FIRST);
    body.replaceChildren(...shown.map((row) => element("tr", {}, columns.map((column, number) => cell(column, row, number)))));
    if (found.length === 0) {
      body.append(element("tr", { class: "none" }, element("td", { colspan: columns.length }, "No name matches.")));
    }
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${count(found.length)}`;
    if (state.filter !== "") status.textContent = `${count(found.length)} of ${count(rows.length)} rows`;
  }

  function cell(column, row, number) {
    const content = column.cell(row);
    if (number === 0) return element("th", { scope: "row" }, content);
    return element("td", { class: column.words ? column.class : `number ${column.class ?? ""}` }, content);
  }

  const input = element("input", {
    type: "search", placeholder: "Filter by name", "aria-label": `Filter ${caption}`, autocomplete: "off", spellcheck: "false",
    oninput: (event) => { state.filter = event.target.value; fill(); },
  });
  fill();
  const table = element("table", { class: className, "data-rows": rows.length },
    element("caption", { class: "visually-hidden" }, caption),
    element("thead", {}, element("tr", {}, headings)), body);
  return [
    rows.length > 5 ? element("div", { class: "controls" }, input) : null,
    element("div", { class: "scroller panel", tabindex: "0", role: "region", "aria-label": caption }, table),
    more, status,
  ].filter(Boolean);
}
