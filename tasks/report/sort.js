"use strict";
// Each header of a sortable table becomes a button; a click, Enter or Space sorts by it, again turns it round.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const numeric = !header.classList.contains("text");
      const before = header.getAttribute("aria-sort");
      // A first click on numbers brings the largest to the top, on words the first of the alphabet.
      const ascending = before ? before === "descending" : !numeric;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[place];
        return numeric && !isNaN(cell.dataset.value) && cell.dataset.value !== ""
          ? Number(cell.dataset.value) : cell.dataset.value ?? cell.textContent;
      };
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === ""); // what is not there stays last
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
        return ascending ? order : -order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}
