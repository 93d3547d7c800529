"use strict";
// The address keeps the two runs after #, as their places from the newest.
const { runs } = JSON.parse(document.getElementById("index").textContent);
const sides = ["left", "right"].map((name) => document.getElementById(name));
const compared = document.getElementById("compared");
const element = (name, text, ...children) => {
  const made = document.createElement(name);
  made.append(text ?? "", ...children);
  return made;
};
const digits = (value, error) => (error ? Math.min(4, Math.max(2, Math.ceil(-Math.log10(error)) + 1)) : 4);
const show = (cell) => {
  if (!cell) return "";
  const [value, error] = cell;
  const places = digits(value, error);
  return error === null ? value.toFixed(places) : `${value.toFixed(places)} ± ${error.toFixed(places)}`;
};
const table = (heading, columns, body) => {
  const made = element("table", "", element("caption", "", element("span", heading)));
  const head = element("tr");
  head.append(...columns.map((text, place) => {
    const cell = element("th", text);
    cell.scope = "col";
    if (place === 0) cell.className = "text";
    return cell;
  }));
  const rows = element("tbody");
  rows.append(...body.map((row) => {
    const line = element("tr");
    line.append(...row.map((text, place) => {
      const cell = element("td", text);
      if (place === 0) cell.className = "text";
      return cell;
    }));
    return line;
  }));
  made.append(element("thead", "", head), rows);
  const wide = element("div", "", made);
  wide.className = "wide";
  wide.tabIndex = 0;
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", heading);
  return wide;
};
const compare = () => {
  const [left, right] = sides.map((side) => runs[side.value]);
  history.replaceState(null, "", `#${sides[0].value},${sides[1].value}`);
  const facts = Object.keys(left.facts).map((name) => [name, left.facts[name], right.facts[name]]);
  const union = (one, other) => [...new Set([...Object.keys(one), ...Object.keys(other)])];
  const tables = union(left.lists, right.lists).map((protocol) => {
    const [one, other] = [left.lists[protocol] ?? {}, right.lists[protocol] ?? {}];
    const body = union(one, other).map((name) => {
      const [a, b] = [one[name], other[name]];
      const gain = a && b ? a[0] - b[0] : null;
      const change = gain === null ? "" : `${gain < 0 ? "−" : "+"}${Math.abs(gain).toFixed(digits(...a))}`;
      return [name, show(a), show(b), change];
    });
    return table(protocol, ["list, metric", left.name, right.name, "difference"], body);
  });
  compared.replaceChildren(table("The runs", ["", left.name, right.name], facts), ...tables);
};
if (runs.length) {
  const asked = location.hash.slice(1).split(",").map(Number);
  sides.forEach((side, place) => {
    side.append(...runs.map((run, at) => new Option(run.name, at)));
    side.value = asked.length === 2 && runs[asked[place]] ? asked[place] : Math.min(place, runs.length - 1);
    side.addEventListener("change", compare);
  });
  compare();
}
