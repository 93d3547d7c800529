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
// Each drawing can be saved as SVG from the page itself; outside of it, its colours are those of the light theme.
for (const svg of document.querySelectorAll(".panels svg")) {
  const name = svg.getAttribute("aria-labelledby").replace(/-title$/, "");
  const link = Object.assign(document.createElement("a"), {className: "get", download: `${name}.svg`, textContent: "SVG"});
  link.setAttribute("aria-label", `Save ${name} as SVG`);
  link.href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  const holder = document.createElement("div");
  svg.replaceWith(holder);
  holder.append(svg, link);
}
