"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i, kind) => {
    const cell = row.cells[i];
    if (kind !== "number") return cell.textContent.trim();
    const given = cell.dataset.value;
    return given === "" || given === undefined || isNaN(given) ? null : Number(given);
  };
  const compare = (a, b, kind) => (kind === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  heads.forEach((head, i) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const kind = button.dataset.kind;
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [row, value(row, i, kind)]);
      rows.sort(([, a], [, b]) => {
        if (a === null || b === null) return (a === null) - (b === null); // what is unknown stays last
        return down ? compare(b, a, kind) : compare(a, b, kind);
      });
      body.append(...rows.map(([row]) => row));
    });
  });
}
// what is folded on screen is shown on paper
const folded = () => [...document.querySelectorAll("details:not([open]):not(.screen)")];
let opened = [];
addEventListener("beforeprint", () => { opened = folded(); for (const d of opened) d.open = true; });
addEventListener("afterprint", () => { for (const d of opened) d.open = false; });
