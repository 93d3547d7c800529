"use strict";
// The address keeps the query after #, so that an answer can be linked to.
const { items, users } = JSON.parse(document.getElementById("index").textContent);
const query = document.getElementById("query");
const found = document.getElementById("found");
const SHOWN = 12;
const element = (name, text, ...children) => {
  const made = document.createElement(name);
  made.append(text ?? "", ...children);
  return made;
};
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const label = ([id, title, , , mark]) => [
  ...(title ? [title, " ", element("small", id)] : [`item ${id}`]), ...(mark ? [" ", element("b", mark)] : [])];
const rows = { users: users.map((user) => [user[0].toLowerCase(), user]),
  items: items.map((item) => [`${item[0]}\n${item[1]}`.toLowerCase(), item]) };
// Those whose id is the text first, then those that begin with it, then those that contain it.
const pick = (all, text, id) => {
  const exact = [], first = [], inside = [];
  for (const [name, row] of all) {
    const place = name.indexOf(text);
    if (place < 0) continue;
    (id(row) === text ? exact : place === 0 ? first : inside).push(row);
  }
  return [...exact, ...first, ...inside];
};
const section = (heading, of, draw) => {
  const made = element("section", "", element("h2", heading));
  made.className = "grid";
  made.append(...of.slice(0, SHOWN).map(draw));
  if (of.length > SHOWN) made.append(element("p", `and ${(of.length - SHOWN).toLocaleString("en")} more`));
  return made;
};
const drawUser = ([id, likes, list]) => {
  const ordered = element("ol");
  ordered.append(...list.map((at) => element("li", "", ...label(items[at]))));
  return element("article", "", element("h3", `User ${id}`), element("p", count(likes, "like")), ordered);
};
const drawItem = (item) => {
  const [, , likes, lists] = item;
  const facts = likes === null ? "in a list" : `${count(likes, "like")}, in ${count(lists, "list")}`;
  return element("article", "", element("h3", "", ...label(item)), element("p", facts));
};
const search = () => {
  const text = query.value.trim().toLowerCase();
  history.replaceState(null, "", text ? `#${encodeURIComponent(query.value.trim())}` : "#");
  if (!text) return found.replaceChildren();
  const of_users = pick(rows.users, text, (user) => user[0].toLowerCase());
  const of_items = pick(rows.items, text, (item) => item[0].toLowerCase());
  found.replaceChildren(
    ...(of_users.length ? [section(count(of_users.length, "user"), of_users, drawUser)] : []),
    ...(of_items.length ? [section(count(of_items.length, "item"), of_items, drawItem)] : []),
    ...(of_users.length || of_items.length ? [] : [element("p", "Nothing has this id or title.")]),
  );
};
const read = () => { query.value = decodeURIComponent(location.hash.slice(1)); search(); };
query.addEventListener("input", search);
window.addEventListener("hashchange", read);
read();
