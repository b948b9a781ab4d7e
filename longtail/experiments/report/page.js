"use strict";
// Sorts tables, and shows two rows side by side text by text. Texts of others are only ever set as text, never as HTML.

const $ = (id) => document.getElementById(id);

function made(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside.filter((one) => one !== null));
  return element;
}

// ---- tables that sort

function sort(table, heading) {
  const column = [...heading.parentNode.children].indexOf(heading);
  const number = heading.classList.contains("number");
  const before = heading.getAttribute("aria-sort");
  const falling = before ? before === "ascending" : number && !heading.classList.contains("cost"); // best first: much accuracy, little time
  for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const key = (row) => (number ? Number(row.cells[column].dataset.value ?? NaN) : row.cells[column].textContent);
  const compare = (one, other) => {
    if (!number) return one.localeCompare(other) * (falling ? -1 : 1);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other); // unknown values stand last
    return (one - other) * (falling ? -1 : 1);
  };
  const rows = [...table.tBodies[0].rows].sort((one, other) => compare(key(one), key(other)));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.results")) {
  for (const heading of table.tHead.rows[0].cells) heading.firstElementChild.addEventListener("click", () => sort(table, heading));
}

// ---- wins and losses

const AT_ONCE = 25;
const PLACES = 5;
const content = $("content") ? JSON.parse($("content").textContent) : null;
let shown = AT_ONCE;

function counts(first, second) {
  const [better, equal, worse] = content.wins[first][second];
  const shares = [["first", better], ["", equal], ["second", worse]].map(([kind, count]) => {
    const part = made("span", { class: kind });
    part.style.flexGrow = count;
    return part;
  });
  const entries = [
    [`${content.names[first]} better`, better, "first"],
    ["equal", equal, ""],
    [`${content.names[second]} better`, worse, "second"],
  ].map(([words, count, kind]) => made("li", {}, made("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), made("strong", {}, count.toLocaleString("en")), ` ${words} (${((100 * count) / content.rows).toFixed(1)} %)`));
  $("counts").replaceChildren(made("div", { class: "shares", "aria-hidden": "true" }, ...shares), made("ul", { class: "legend" }, ...entries));
}

const holds = (text, wanted, systems) => {
  const labels = [...text.true, ...systems.flatMap((system) => text.found[system])].filter((label) => label >= 0);
  return [text.text, ...labels.map((label) => content.labels[label])].some((one) => one.toLowerCase().includes(wanted));
};

function list(first, second) {
  const wanted = $("wanted").value.trim().toLowerCase();
  const which = $("which").value;
  const gain = (text) => text.right[first].length - text.right[second].length;
  const fits = { all: () => true, differ: (text) => gain(text) !== 0, first: (text) => gain(text) > 0, second: (text) => gain(text) < 0 }[which];
  const found = content.texts.filter((text) => fits(text) && (!wanted || holds(text, wanted, [first, second])));
  found.sort((one, other) => Math.abs(gain(other)) - Math.abs(gain(one)));
  $("listed").textContent = `${found.length.toLocaleString("en")} of the ${content.texts.length.toLocaleString("en")} texts in this page, of ${content.rows.toLocaleString("en")} test texts`;
  $("texts").replaceChildren(...found.slice(0, shown).map((text) => item(text, first, second)));
  $("more").hidden = found.length <= shown;
}

function item(text, first, second) {
  const right = made("p", { class: "faint" }, "Right: ");
  text.true.forEach((label, place) => right.append(place ? ", " : "", content.labels[label]));
  right.append(text.more ? ` and ${text.more} more` : text.true.length ? "" : "none");
  return made("li", {}, made("h3", {}, text.text), right, made("div", { class: "pair" }, side(text, first), side(text, second)));
}

function side(text, system) {
  const places = text.found[system].map((label, place) => {
    if (label < 0) return made("li", { class: "faint" }, "–");
    const right = text.right[system].includes(place);
    const group = content.groups[label];
    return made(
      "li",
      right ? { class: "right" } : {},
      right ? made("span", { class: "tick", "aria-hidden": "true" }, "✓") : null,
      content.labels[label],
      " ",
      made("span", { class: `badge ${group}` }, group),
      right ? made("span", { class: "unseen-text" }, ", right") : null,
    );
  });
  const title = made("h4", {}, content.names[system], made("span", { class: "faint" }, ` ${text.right[system].length} of ${PLACES}`));
  return made("div", {}, title, made("ol", {}, ...places));
}

function show() {
  const [first, second] = [Number($("first").value), Number($("second").value)];
  counts(first, second);
  list(first, second);
}

function anew() {
  shown = AT_ONCE;
  show();
}

if (content) {
  for (const id of ["first", "second", "which"]) $(id).addEventListener("change", anew);
  $("wanted").addEventListener("input", anew);
  $("swap").addEventListener("click", () => {
    [$("first").value, $("second").value] = [$("second").value, $("first").value];
    anew();
  });
  $("more").addEventListener("click", () => {
    const before = shown;
    shown += AT_ONCE;
    show();
    const next = $("texts").children[before]; // where reading goes on
    next.tabIndex = -1;
    next.focus();
  });
  show();
}
