"use strict";
// The page of the server: asks it as one types, and shows what it answers. Texts of others are only ever set as text, never as HTML.

const WAIT_MS = 120; // after the last letter
const GRAPH_LABELS = 13;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

const state = { models: [], shown: [], asked: 0, timer: 0, key: sessionStorage.getItem("key") || "" };

function made(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside.filter((one) => one !== null));
  return element;
}

function drawn(tag, attributes = {}, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

async function ask(path, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (state.key) headers.Authorization = `Bearer ${state.key}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const content = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (answer.status === 401) $("key-form").hidden = false;
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// ---- labels as one types

function typed() {
  clearTimeout(state.timer);
  state.timer = setTimeout(predict, WAIT_MS);
}

async function predict() {
  const number = ++state.asked; // only the answer to the last question is shown
  const text = $("text").value;
  if (!text.trim()) {
    say("");
    show(state.shown.map(() => null));
    return;
  }
  const k = Math.min(50, Math.max(1, Number($("k").value) || 5));
  const minimum_score = Math.min(1, Math.max(0, Number($("minimum").value) || 0));
  const began = performance.now();
  try {
    const answers = await Promise.all(state.shown.map((model) => ask("predict", { text, k, minimum_score, model })));
    if (number !== state.asked) return;
    say(`${Math.max(1, Math.round(performance.now() - began))} ms`);
    show(answers.map((answer) => answer.predictions[0].labels), text);
  } catch (error) {
    if (number === state.asked) say(error.message, true);
  }
}

function show(found, text) {
  const columns = state.shown.map((name, place) => {
    const others = found.filter((labels, other) => labels && other !== place);
    const model = state.models.find((one) => one.name === name);
    return column(model, place, found[place], text, others);
  });
  $("columns").replaceChildren(...columns);
  // the few words that a screen reader says, instead of everything that changed
  const announced = found.map((labels, place) => labels && `${state.shown[place]}: ${labels.map((label) => label.text).join(", ") || "no label fits"}`);
  $("announced").textContent = announced.filter(Boolean).join(". ");
}

function column(model, place, labels, text, others) {
  const title = state.models.length > 2 ? chooser(model, place) : made("h2", {}, model.name);
  const description = `${model.labels.toLocaleString()} labels · ${model.recipe}${model.augmentation === "none" ? "" : `, ${model.augmentation}`}`;
  const box = made("section", { class: "column", "aria-label": `Model ${model.name}` }, made("div", { class: "row" }, title, made("span", { class: "faint" }, description)));
  if (labels && labels.length) {
    const known = others.map((one) => new Set(one.map((label) => label.id)));
    const rows = labels.map((label) => row(model, label, text, known.length > 0 && !known.some((ids) => ids.has(label.id))));
    box.append(made("ol", { class: "found" }, ...rows));
  } else {
    box.append(made("p", { class: "faint" }, labels ? "No label fits." : "Labels appear here as you type."));
  }
  return box;
}

function chooser(model, place) {
  const options = state.models.map((one) => made("option", { value: one.name, selected: one.name === model.name }, one.name));
  const changed = (event) => {
    state.shown[place] = event.target.value;
    predict();
  };
  return made("select", { "aria-label": `Model ${place + 1}`, onchange: changed }, ...options);
}

function row(model, label, text, alone) {
  const top = made(
    "div",
    { class: "top" },
    made("span", { class: "name" }, label.text),
    alone ? made("span", { class: "badge alone" }, "only here") : null,
    made("span", { class: `badge ${label.group}` }, label.group),
    made("span", { class: "score" }, label.score.toFixed(2)),
  );
  const detail = made("div", { class: "detail", hidden: true });
  const item = made("li", {}, top, bar(label.score));
  item.append(opener("Why", `Why ${label.text}`, detail, () => reasons(model, label, text)));
  if (model.has_graph) item.append(opener("Neighbours", `Neighbours of ${label.text}`, detail, () => neighbours(model, label, detail)));
  item.append(detail);
  return item;
}

function bar(share) {
  const inner = made("span");
  inner.style.width = `${Math.max(1, 100 * Math.min(1, share))}%`;
  return made("div", { class: "bar", "aria-hidden": "true" }, inner);
}

function opener(word, name, detail, content) {
  const clicked = async (event) => {
    const button = event.currentTarget;
    const open = button.getAttribute("aria-expanded") === "true";
    for (const other of button.parentNode.querySelectorAll(".more")) other.setAttribute("aria-expanded", "false");
    detail.hidden = open;
    if (open) return;
    button.setAttribute("aria-expanded", "true");
    detail.replaceChildren(made("p", { class: "faint" }, "…"));
    const content_now = await content().catch((error) => made("p", { class: "wrong" }, error.message));
    if (button.getAttribute("aria-expanded") === "true") detail.replaceChildren(content_now);
  };
  return made("button", { type: "button", class: "more", "aria-expanded": "false", "aria-label": name, onclick: clicked }, word);
}

// ---- explanations

async function reasons(model, label, text) {
  const question = new URLSearchParams({ text, label: label.id, model: model.name });
  return explanation(await ask(`explain?${question}`));
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const MAX_WORDS = 12;

// what parts of the label and words of the text contribute, training rows like it, and the path through the label graph
function explanation(why) {
  const place = why.place === null ? "not among the best" : `place ${why.place}`;
  const box = made("div", {}, made("p", { class: "faint" }, `Score ${why.score.toFixed(3)}, ${place}. Evidence ${signed(why.evidence)}, of it bias ${signed(why.bias)}.`));
  const add = (title, content) => box.append(made("h3", {}, title), content);
  if (why.parts.length) add("Parts of the label", made("div", {}, ...why.parts.map((part) => shares(part.name, part.share, signed(part.brings)))));
  if (why.tokens.length) {
    const words = why.tokens.slice(0, MAX_WORDS).map((token) => {
      const hint = token.in_label ? "It stands in the label's text, too" : "";
      return made("li", { class: token.in_label ? "word same" : "word", title: hint }, `${token.name} `, made("span", {}, signed(token.brings)));
    });
    add("Words of the text", made("ul", { class: "words" }, ...words));
  }
  if (why.rows.length) add("Training rows with this label", made("ul", {}, ...why.rows.map((row) => made("li", {}, row.text, made("span", { class: "faint" }, ` ${row.cosine.toFixed(2)}`)))));
  if (why.path.length > 1) add("Path through the label graph", made("p", {}, why.path.map((step, at) => `${at ? ` →(${step.weight.toFixed(2)}) ` : ""}${step.text || step.label}`).join("")));
  return box;
}

function shares(name, share, number = `${Math.round(100 * share)} %`) {
  return made("div", { class: "share" }, made("span", {}, name), bar(share), made("span", {}, number));
}

// ---- the graph around a label

async function neighbours(model, label, detail) {
  const question = new URLSearchParams({ nodes: GRAPH_LABELS, model: model.name });
  const graph = await ask(`graph/${label.id}?${question}`);
  if (graph.nodes.length < 2) return made("p", { class: "faint" }, "No other label is near it in the graph.");
  const go = async (node) => detail.replaceChildren(await neighbours(model, node, detail));
  return star(graph, go, Math.max(280, Math.min(620, detail.clientWidth)));
}

// the label in the middle, those it points to around it, and those behind them further out; names next to their dots
function star(graph, go, width) {
  const letters = width < 420 ? 13 : 22;
  const height = Math.min(400, width);
  const [wide, high] = [width / 2 - 6.6 * letters - 4, height / 2 - 18];
  const places = new Map([[graph.nodes[0].id, { x: width / 2, y: height / 2, side: 0 }]]);
  const others = graph.nodes.slice(1);
  others.forEach((node, at) => {
    const angle = (2 * Math.PI * (at + 0.5)) / others.length - Math.PI / 2;
    const far = node.distance > 1 ? 1 : 0.8;
    const side = Math.cos(angle) < 0 ? -1 : 1;
    places.set(node.id, { x: width / 2 + wide * far * Math.cos(angle), y: height / 2 + high * far * Math.sin(angle), side });
  });
  const strongest = Math.max(...graph.edges.map((edge) => edge.weight), 1e-9);
  const svg = drawn("svg", { class: "star", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Labels near ${graph.nodes[0].text}` });
  for (const edge of graph.edges) {
    const [from, to] = [places.get(edge.source), places.get(edge.target)];
    const own = edge.source === graph.nodes[0].id || edge.target === graph.nodes[0].id;
    svg.append(drawn("line", { class: own ? "edge own" : "edge", x1: from.x, y1: from.y, x2: to.x, y2: to.y, "stroke-width": 0.6 + (3.4 * edge.weight) / strongest }));
  }
  for (const node of graph.nodes) {
    const { x, y, side } = places.get(node.id);
    const name = node.text.length > letters ? `${node.text.slice(0, letters - 1)}…` : node.text;
    const anchor = side === 0 ? "middle" : side < 0 ? "end" : "start";
    const group = drawn(
      "g",
      { class: `node ${node.group} ${side ? "" : "middle"}`, tabindex: side ? 0 : -1, role: side ? "button" : "img", "aria-label": `${node.text}, ${node.group}` },
      drawn("title", {}, `${node.text} (${node.group}, ${node.training_rows.toLocaleString()} training rows)`),
      drawn("circle", { cx: x, cy: y, r: side ? 6 : 8 }),
      drawn("text", { x: x + 11 * side, y: side ? y + 4 : y - 13, "text-anchor": anchor }, name),
    );
    if (side) {
      group.addEventListener("click", () => go(node));
      group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          go(node);
        }
      });
    }
    svg.append(group);
  }
  return svg;
}

// ---- models

async function cards() {
  const box = $("models");
  box.replaceChildren(made("p", { class: "faint" }, "…"));
  try {
    const found = await Promise.all(state.models.map((model) => ask(`models/${encodeURIComponent(model.name)}`)));
    box.replaceChildren(made("div", { class: "cards" }, ...found.map(card)));
  } catch (error) {
    box.replaceChildren(made("p", { class: "wrong" }, error.message));
  }
}

function card(model) {
  const box = made("section", { class: "card", "aria-label": `Model ${model.name}` }, made("h2", {}, model.name));
  box.append(made("p", { class: "faint" }, `version ${model.version}, loaded ${new Date(model.loaded_at).toLocaleString()}`));
  const metrics = Object.entries(model.metrics);
  if (metrics.length) box.append(made("h3", {}, "Test rows"), ...metrics.map(([name, value]) => shares(name, value / 100, value.toFixed(1))));
  const curves = ["loss", "P@1", "PSP@1"].filter((name) => model.history.filter((epoch) => typeof epoch[name] === "number").length > 1);
  for (const name of curves) box.append(made("h3", {}, name === "loss" ? "Loss of every epoch" : `${name} on validation rows`), curve(model.history, name));
  const rows = Object.entries(model.about).map(([name, value]) => made("tr", {}, made("th", { scope: "row" }, name), made("td", {}, shown(value))));
  box.append(made("h3", {}, "About"), made("table", {}, made("tbody", {}, ...rows)));
  return box;
}

const shown = (value) => (typeof value === "number" ? value.toLocaleString() : typeof value === "string" ? value : JSON.stringify(value));

function curve(history, name) {
  const [width, height, left, bottom] = [520, 170, 46, 24];
  const members = Map.groupBy
    ? [...Map.groupBy(history, (epoch) => epoch.member ?? 0).values()]
    : Object.values(history.reduce((all, epoch) => ({ ...all, [epoch.member ?? 0]: [...(all[epoch.member ?? 0] || []), epoch] }), {}));
  const lines = members.map((epochs) => epochs.map((epoch) => epoch[name]).filter((value) => typeof value === "number"));
  const values = lines.flat();
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const longest = Math.max(...lines.map((line) => line.length));
  const x = (place) => left + ((width - left - 12) * place) / Math.max(1, longest - 1);
  const y = (value) => 10 + (height - bottom - 14) * (high > low ? (high - value) / (high - low) : 0.5);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} from ${values[0].toFixed(2)} to ${values.at(-1).toFixed(2)} in ${longest} epochs` });
  for (const value of new Set([low, high])) {
    svg.append(drawn("line", { class: "rule", x1: left, x2: width, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toPrecision(3)));
  }
  svg.append(drawn("text", { class: "axis", x: left, y: height - 4 }, "epoch 1"), drawn("text", { class: "axis", x: width - 12, y: height - 4, "text-anchor": "end" }, String(longest)));
  for (const line of lines) {
    svg.append(drawn("polyline", { class: "curve", points: line.map((value, place) => `${x(place)},${y(value)}`).join(" ") }));
    if (line.length) svg.append(drawn("circle", { class: "dot", cx: x(line.length - 1), cy: y(line.at(-1)), r: 3.5 }));
  }
  return svg;
}

// ---- tabs, key, start

function open_tab(tab, focus = false) {
  for (const one of document.querySelectorAll("[role=tab]")) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  if (tab.id === "tab-models") cards();
}

async function start() {
  try {
    state.models = (await ask("models")).models;
    state.shown = state.models.slice(0, 2).map((model) => model.name);
    $("key-form").hidden = true;
    show(state.shown.map(() => null));
    say("");
    if ($("text").value) typed(); // not at once: letters typed meanwhile ask too, and a second answer would close what was opened
  } catch (error) {
    say(error.message, true);
  }
}

const tabs = [...document.querySelectorAll("[role=tab]")];
for (const tab of tabs) {
  tab.addEventListener("click", () => open_tab(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) open_tab(tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length], true);
  });
}
for (const id of ["text", "k", "minimum"]) $(id).addEventListener("input", typed);
$("ask").addEventListener("submit", (event) => event.preventDefault());
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = $("key").value.trim();
  sessionStorage.setItem("key", state.key);
  start();
});
start();
