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
// Each table can be saved as CSV, each drawing as SVG, from the page itself: no server or other file is needed.
function save(name, address) {
  const link = document.createElement("a");
  link.download = name;
  link.href = address;
  link.click();
}
function addButtons(after, name, makers) {
  const line = document.createElement("p");
  line.className = "get";
  for (const [format, make] of Object.entries(makers)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format;
    button.setAttribute("aria-label", `Save ${name} as ${format}`);
    button.addEventListener("click", make);
    line.append(button);
  }
  after.after(line);
}
for (const table of document.querySelectorAll("main table[id]")) {
  const quote = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  addButtons(table.parentElement, table.id, {
    CSV() {
      const header = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.key);
      const rows = [...table.tBodies[0].rows].map(
        (row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent.trim()));
      const text = [header, ...rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";
      save(`${table.id}.csv`, URL.createObjectURL(new Blob([text], {type: "text/csv"})));
    },
  });
}
for (const svg of document.querySelectorAll(".panels svg")) {
  const name = svg.getAttribute("aria-labelledby").replace(/-title$/, "");
  const holder = document.createElement("div");
  svg.replaceWith(holder);
  holder.append(svg);
  addButtons(svg, name, {
    SVG() {  // outside the page, its colours are those of the light theme
      const text = new XMLSerializer().serializeToString(svg);
      save(`${name}.svg`, `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
    },
  });
}
