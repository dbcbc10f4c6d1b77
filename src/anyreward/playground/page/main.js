// The page: tools, drawing, and the loop from a change of the task to the picture of its answer.

import { range } from "./arrays.js";
import { asCommand, asPython } from "./code.js";
import { drawBars, drawScale } from "./colours.js";
import { shortest } from "./coordinates.js";
import { LocalEngine } from "./engine-local.js";
import { ServerEngine, listAgents } from "./engine-server.js";
import { ExpressionInput } from "./input.js";
import { Live } from "./live.js";
import { presetsOf } from "./presets.js";
import { saveGif, savePng, copied } from "./saving.js";
import { Store, dab, emptyDocument, forbidding, fromFragment, isEmpty, lowered, rounded, shares, toFragment } from "./task.js";
import { showAnswer, showTerms } from "./panels.js";
import { View } from "./view.js";
import { Walkers } from "./walkers.js";

const $ = (id) => document.getElementById(id);
const IDLE = 250;
const TOOLS = [
  ["reward", "○", "Paint reward"],
  ["cost", "×", "Paint cost"],
  ["erase", "⌫", "Erase"],
  ["goal", "★", "Goal"],
  ["avoid", "✚", "Forbid"],
  ["agent", "●", "Agent"],
  ["follow", "~", "Demonstrate"],
];

/** The state of the page; tests read it. */
const page = (window.playground = { latency: [], engine: null, answer: null, explanation: null, busy: false, version: 0 });
const store = new Store(changed);
const view = new View($("world"));
const other = new View($("other"));
let agents = [];
let bundles = null;
let tool = "reward";
let stroke = null;
let cursor = null;
let hovered = null;
let event = null;
let waiting = false;
let settle = null;
let walkers = null;
let live = null;
let asked = null;
let shows = 0;
let language = "python";
const engines = new Map();

const input = new ExpressionInput($("expression-form"), (text) => store.change((d) => d.tasks[d.active].expressions.push({ text, weight: 1 })));

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

/** Errors in words. */
function failed(error) {
  if (error.name === "AbortError") return;
  const at = typeof error.at === "number" ? ` (character ${error.at + 1})` : "";
  say(`${error.message.split("\n")[0]}${at}`, true);
}

// The loop -------------------------------------------------------------------------------------------------------------

function changed() {
  page.version++;
  asked?.abort();
  $("undo").disabled = !store.past.length;
  $("redo").disabled = !store.future.length;
  if (page.engine) showTerms($("terms"), store, page.engine.scene);
  $("blend").value = store.document.blend;
  $("blend-label").classList.toggle("quiet", store.document.tasks.some(isEmpty));
  [["task-a", 0], ["task-b", 1]].forEach(([id, k]) => $(id).setAttribute("aria-checked", String(store.document.active === k)));
  empty();
  ask();
}

function empty() {
  const scene = page.engine?.scene;
  const nothing = store.document.tasks.every(isEmpty);
  if (!nothing || !scene) $("empty").textContent = "";
  else if (scene.paintable) $("empty").textContent = "Paint a reward here: drag with the mouse or a finger. The agent was trained without any reward and answers at once. Or choose a preset.";
  else $("empty").textContent = "Click a goal here. The agent was trained without any reward and goes there at once.";
}

/** Ask for the answer to the present task; only the newest one counts. */
async function ask() {
  if (!page.engine || page.busy) {
    waiting = true;
    return;
  }
  page.busy = true;
  waiting = false;
  const { engine, version } = page;
  const task = lowered(store.document, engine.scene);
  const began = event;
  event = null;
  clearTimeout(settle);
  try {
    const quick = Boolean(stroke?.painted);
    const answer = task.terms.length ? await engine.answer(task, quick) : null;
    if (quick && !stroke) waiting = true; // the stroke has ended meanwhile
    if (engine === page.engine) {
      Object.assign(page, { answer, task, explanation: null, answered: version });
      if (!quick || answer === null) say(answer?.notes?.[0] ?? unheard());
      if (!answer) live?.ask(task);
      draw();
      if (began !== null) page.latency.push(performance.now() - began);
      if (!quick) code();
      if (answer && !quick) settle = setTimeout(explain, IDLE);
      else if (!answer) showAnswer(engine.scene, null, null);
    }
  } catch (error) {
    if (engine === page.engine) {
      Object.assign(page, { answer: null, explanation: null, task });
      draw();
      code();
      showAnswer(engine.scene, null, null, "No answer: see the message below the picture.");
    }
    failed(error);
  }
  page.busy = false;
  if (waiting) ask();
}

/** Why a task that is edited changes nothing; empty if it does. */
function unheard() {
  const { tasks, active } = store.document;
  const silent = !isEmpty(tasks[active]) && shares(store.document)[active] === 0;
  return silent ? `Task ${"AB"[active]} has no share in the answer: move the slider.` : "";
}

/** What takes longer, when the task has not changed for a moment. */
async function explain() {
  const { engine, task, answer } = page;
  const version = page.version;
  asked = new AbortController();
  try {
    const found = await engine.explain(task, page.answer, asked.signal);
    if (version !== page.version || engine !== page.engine) return;
    if (found.answer) page.answer = { ...page.answer, ...found.answer };
    page.explanation = found;
    if (found.notes.length) say(found.notes[0]);
    draw();
    live?.ask(task);
  } catch (error) {
    if (version === page.version) failed(error);
  }
  page.explained = version;
}

function draw() {
  const { engine, answer, explanation } = page;
  if (!engine) return;
  const { scene } = engine;
  const factors = shares(store.document);
  const tasks = store.document.tasks.filter((_, k) => factors[k] > 0);
  const parts = {
    paint: Object.assign({}, ...tasks.map((task) => task.paint)),
    goals: tasks.flatMap((task) => task.goals).concat(),
    demonstrations: tasks.flatMap((task) => task.demonstrations.map((d) => d.states)),
    cursor: document.activeElement === $("world") && cursor && !stroke ? cursor : null,
  };
  if (stroke?.states) parts.demonstrations.push(stroke.states);
  const landmark = landmarkAt(hovered);
  view.draw({ ...parts, ...answer, image: live?.picture, landmark, walkers: live?.dots ?? walkers?.all, path: walkers?.path(answer?.action) });
  const optimum = explanation?.optimum;
  $("other-view").hidden = !scene.exact && scene.kind !== "arm";
  if (scene.kind === "arm") other.draw({ goals: sideGoals(parts.goals), walkers: live?.side });
  else if (scene.exact) {
    other.draw(optimum ? { ...parts, cursor: null, ...optimum, path: walkers?.path(optimum.action) } : {});
    $("other-text").textContent = optimum ? `mean value ${number(optimum.optimal)}` : !answer ? "" : explanation ? "not known for this reward" : "computing ...";
  }
  const [low, high] = range(answer?.value ?? []);
  const drawn = answer?.value.some((v) => !Number.isNaN(v));
  $("scale-text").textContent = drawn ? `estimated value ${number(low)} to ${number(high)}${ofArrows(scene)}` : answer ? "values cannot be drawn here" : "value of the agent's policy, as it estimates it";
  if (answer || !page.task?.terms.length) showAnswer(scene, answer, explanation);
  $("landmark").textContent = landmark ? `From there the agent heads for the landmark at (${landmark.map(number).join(", ")}).` : "";
  drawBars($("z"), answer?.z);
  $("z-text").textContent = `d = ${scene.dim}`;
}

/** What the arrows of actions of a box mean. */
function ofArrows({ kind, box }) {
  if (!box || box.length > 2) return "";
  const [first] = box;
  if (box.length === 2) return `; arrows: ${box.map(({ name }) => name).join(" and ")}`;
  const most = [first.low, first.high].map(number);
  return kind === "pendulum" ? `; arrows: ${first.name}, down ${most[0]} to up ${most[1]}` : `; arrows: ${first.name}, left ${most[0]} to right ${most[1]}`;
}

function number(x) {
  return String(Number(x.toPrecision(3)));
}

function landmarkAt(place) {
  const found = page.explanation?.landmarks;
  if (!found || !place) return null;
  const { width } = page.engine.scene.grid;
  const k = found.leads[Math.round(place[1]) * width + Math.round(place[0])];
  return k >= 0 ? found.places[k] : null;
}

function code() {
  const { scene } = page.engine;
  const terms = page.task?.terms ?? [];
  $("code").textContent = language === "python" ? asPython(scene, terms) : asCommand(scene, terms);
}

// Tools ----------------------------------------------------------------------------------------------------------------

function choose(name) {
  tool = name;
  for (const button of $("tools").children) button.setAttribute("aria-checked", String(button.dataset.tool === name));
}

function makeTools() {
  TOOLS.forEach(([name, sign, title], k) => {
    const button = Object.assign(document.createElement("button"), { title: `${title} (${k + 1})` });
    button.dataset.tool = name;
    button.setAttribute("role", "radio");
    button.append(Object.assign(document.createElement("span"), { textContent: sign, ariaHidden: "true" }), title);
    button.addEventListener("click", () => choose(name));
    $("tools").append(button);
  });
  choose(tool);
}

/** Use the tool at a place of the grid; first: whether the stroke begins here. */
function use(place, first) {
  const { scene } = page.engine;
  const strength = Number($("strength").value);
  if (["reward", "cost", "erase"].includes(tool)) {
    const amount = tool === "erase" ? 0 : tool === "cost" ? -strength : strength;
    const allowed = scene.kind === "maze" ? (i, j) => !view.wall(i, j) : undefined;
    const radius = Number($("size").value);
    if (allowed && tool !== "erase" && first && !allowed(...place)) say("That is a wall.", true);
    stroke.painted = true;
    store.change(() => {
      for (const at of stroke.last ? along(stroke.last, place) : [place]) {
        dab(store.task.paint, scene, at, radius, amount, allowed);
        if (tool === "erase") eraseAt(at, Math.max(radius, 0.75));
      }
    }, first);
    stroke.last = place;
    return;
  }
  if (tool === "follow") return follow(place, first);
  if (!first) return;
  if (tool === "agent") {
    if (live) live.restart(view.features(place));
    else walkers?.add(view.features(place));
    draw();
    return;
  }
  const at = exactly(place);
  if (!at) return say("That is a wall.", true);
  store.change((d) => {
    const { goals } = d.tasks[d.active];
    const same = goals.findIndex((goal) => goal.at.every((x, k) => x === at[k]));
    if (same >= 0) goals.splice(same, 1);
    else goals.push({ at, weight: tool === "goal" ? 1 : forbidding(scene) });
  });
}

/** The features of a goal at a place: a cell of a maze, else rounded; null on a wall. */
function exactly(place) {
  const { scene } = page.engine;
  if (scene.kind === "maze") return view.wall(...place) ? null : place;
  const at = view.features(place).map((x, k) => {
    const axis = scene.axes[k];
    if (axis.whole) return Math.round(x);
    return scene.kind === "screen" ? Math.round(x) : rounded(x, axis);
  });
  if (scene.kind !== "arm") return at;
  const [low, high] = scene.ranges[2];
  return [...at, live?.height ?? Number(((low + high) / 2).toFixed(2))];
}

function eraseAt(place, radius) {
  const { axes } = page.engine.scene;
  const near = (at) => Math.hypot(...view.gridOf(at).map((x, k) => shortest(axes[k], x - place[k], axes[k].points - 1))) <= radius;
  store.task.goals = store.task.goals.filter((goal) => !near(goal.at));
  store.task.demonstrations = store.task.demonstrations.filter((d) => !d.states.some(near));
}

function along(a, b) {
  const n = Math.max(1, Math.ceil(Math.hypot(b[0] - a[0], b[1] - a[1]) / 0.6));
  return Array.from({ length: n }, (_, k) => [a[0] + ((k + 1) / n) * (b[0] - a[0]), a[1] + ((k + 1) / n) * (b[1] - a[1])]);
}

function follow(place, first) {
  const { scene } = page.engine;
  if (!scene.demonstrable) return first && say("Demonstrations can be drawn in mazes only.", true);
  const maze = scene.kind === "maze";
  const at = maze ? place : view.features(place).map((x) => Number(x.toFixed(3)));
  if (maze && view.wall(...place)) return;
  stroke.states ??= [];
  const last = stroke.states[stroke.states.length - 1];
  const apart = last ? Math.hypot(at[0] - last[0], at[1] - last[1]) : Infinity;
  if (apart > (maze ? 0 : 0.03)) stroke.states.push(at);
  draw();
}

function begin(place) {
  stroke = {};
  page.drawing = true;
  use(place, true);
}

function end() {
  if (!stroke) return;
  const { states, painted } = stroke;
  stroke = null;
  page.drawing = false;
  if (states?.length > 1) store.change((d) => d.tasks[d.active].demonstrations.push({ states, weight: 1 }));
  else if (states) say("Drag to draw a way to follow.");
  else if (painted) ask();
}

function listen() {
  const canvas = $("world");
  const at = (e) => {
    const box = canvas.getBoundingClientRect();
    return view.place(e.clientX - box.left, e.clientY - box.top);
  };
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0 || !page.engine) return;
    canvas.setPointerCapture(e.pointerId);
    canvas.focus({ preventScroll: true });
    event ??= e.timeStamp;
    begin(at(e));
    e.preventDefault();
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!page.engine) return;
    hovered = at(e);
    if (stroke) {
      event ??= e.timeStamp;
      use(hovered, false);
    } else if (page.explanation?.landmarks) draw();
  });
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
  });
  canvas.addEventListener("keydown", keys);
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);
  $("other").addEventListener("pointerdown", sideClick);
  document.addEventListener("keydown", (e) => {
    if (!(e.ctrlKey || e.metaKey) || e.target === $("expression")) return;
    if (e.key === "z" && !e.shiftKey) travel("undo");
    else if (e.key === "y" || (e.key.toLowerCase() === "z" && e.shiftKey)) travel("redo");
    else return;
    e.preventDefault();
  });
  const fit = new ResizeObserver(() => {
    if (view.wide === canvas.clientWidth && other.wide === $("other").clientWidth) return;
    view.resize();
    other.resize();
    draw();
  });
  for (const id of ["views", "main-view", "other-view"]) fit.observe($(id));
}

/** Undo or redo, unless a stroke goes on. */
function travel(way) {
  if (!stroke) store[way]();
}

function keys(e) {
  if (!page.engine || e.ctrlKey || e.metaKey || e.altKey) return;
  const { width, height, up } = page.engine.scene.grid;
  cursor ??= [Math.floor(width / 2), Math.floor(height / 2)];
  const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, up ? 1 : -1], ArrowDown: [0, up ? -1 : 1] }[e.key];
  const number = Number(e.key);
  if (move) cursor = [Math.min(Math.max(cursor[0] + move[0], 0), width - 1), Math.min(Math.max(cursor[1] + move[1], 0), height - 1)];
  else if (e.key === " " || e.key === "Enter") {
    if (tool === "follow") {
      if (stroke) end();
      else begin(cursor);
    } else {
      begin(cursor);
      end();
    }
  } else if (number >= 1 && number <= TOOLS.length && !$("tools").children[number - 1].hidden) choose(TOOLS[number - 1][0]);
  else return;
  if (move && stroke && tool === "follow") use(cursor, false);
  e.preventDefault();
  const place = view.features(cursor).map((x) => Number(x.toPrecision(3))).join(", ");
  if (move) say(`Cursor at (${place})`);
  draw();
}

// FetchReach: the second view shows gx and gz ---------------------------------------------------------------------------

function sideGoals(goals) {
  return goals.map(({ at, weight }) => ({ at: [at[0], at[2]], weight }));
}

function sideClick(e) {
  const scene = page.engine?.scene;
  if (scene?.kind !== "arm") return;
  const box = $("other").getBoundingClientRect();
  const [x, z] = other.features(other.place(e.clientX - box.left, e.clientY - box.top)).map((v) => Number(v.toFixed(2)));
  if (live) live.height = z;
  store.change((d) => {
    const { goals } = d.tasks[d.active];
    const [low, high] = scene.ranges[1];
    if (goals.length) Object.assign(goals[goals.length - 1], { at: [x, goals[goals.length - 1].at[1], z] });
    else goals.push({ at: [x, Number(((low + high) / 2).toFixed(2)), z], weight: 1 });
  });
}

// Agents ---------------------------------------------------------------------------------------------------------------

async function openAgent(id) {
  if (!engines.has(id)) {
    const bundle = bundles?.find((one) => one.scene.id === id);
    engines.set(id, bundle ? new LocalEngine(bundle) : await ServerEngine.open(id));
  }
  return engines.get(id);
}

/** What must agree for a task to mean the same: the world, and what is drawn of it. */
function worldKey(scene) {
  return JSON.stringify([scene.kind, scene.name, scene.drawing, scene.walls, scene.axes, scene.features]);
}

/** Show another agent; the task stays if the world is the same. If another one is chosen meanwhile, that one counts. */
async function show(id) {
  const turn = ++shows;
  say("Loading ...");
  let engine;
  try {
    engine = await openAgent(id);
  } catch (error) {
    if (turn === shows && page.engine) $("agent").value = page.engine.scene.id.split(".")[0];
    throw error;
  }
  if (turn !== shows) return;
  const before = page.engine?.scene;
  const { scene } = engine;
  const same = before && worldKey(before) === worldKey(scene);
  stroke = null;
  page.drawing = false;
  hovered = cursor = null;
  Object.assign(page, { engine, answer: null, explanation: null, task: null });
  $("agent").value = id.split(".")[0];
  $("world").setAttribute("aria-label", `The world ${scene.name}; paint rewards here`);
  $("names").textContent = scene.features.join(", ");
  input.names = [...scene.features, ...scene.features.map((_, k) => `f${k}`)];
  $("size").value = same ? $("size").value : scene.kind === "maze" ? 0 : 2.5;
  for (const button of $("tools").children) {
    const painting = ["reward", "cost"].includes(button.dataset.tool);
    const walking = scene.kind === "maze" || scene.kind === "square" || scene.live;
    button.hidden = (painting && !scene.paintable) || (button.dataset.tool === "follow" && !scene.demonstrable) || (button.dataset.tool === "agent" && !walking);
  }
  for (const id of ["size", "strength"]) $(id).parentElement.hidden = !scene.paintable;
  if (!scene.paintable && ["reward", "cost", "follow"].includes(tool)) choose("goal");
  view.show(scene);
  other.canvas.parentElement.hidden = !scene.exact && scene.kind !== "arm";
  $("other-title").textContent = scene.kind === "arm" ? "From the side" : "Optimal policy";
  $("other-text").textContent = "";
  if (scene.kind === "arm") other.show(scene, { axes: [scene.axes[0], { name: scene.features[2], low: scene.ranges[2][0], high: scene.ranges[2][1] }], grid: { ...scene.grid, up: true } });
  else other.show(scene);
  if (!same) {
    walkers?.stop();
    walkers = scene.kind === "maze" || scene.kind === "square" ? new Walkers(engine, page, draw) : null;
  } else if (walkers) walkers.engine = engine;
  page.walkers = walkers;
  live?.close();
  live = scene.live && engine.live ? new Live(engine, $("live-view"), { draw, say }) : null;
  page.live = live;
  $("live-view").hidden = !live;
  $("live-title").textContent = bundles ? "The pendulum, computed in this page" : "The real environment";
  const shownAtOnce = scene.kind === "screen" || scene.kind === "arm" || bundles; // goals are chosen on its pictures
  if (live && shownAtOnce) live.open();
  planeAxes(scene, id);
  sizes(id);
  const presets = presetsOf(scene);
  const options = presets.map(({ name }, k) => new Option(name, String(k)));
  const fails = Object.assign(document.createElement("optgroup"), { label: "Some that fail" });
  fails.append(...options.filter((_, k) => presets[k].fails));
  $("preset").replaceChildren(new Option("choose ...", ""), ...options.filter((_, k) => !presets[k].fails), ...(fails.children.length ? [fails] : []));
  $("preset").disabled = !presets.length;
  say("");
  if (same || !before) changed();
  else store.begin(before.agent === scene.agent ? withoutPlaces(store.document) : emptyDocument());
}

/** The document without what was put into the picture, when other features are drawn. */
function withoutPlaces(document) {
  const tasks = document.tasks.map((task) => ({ ...task, paint: {}, goals: [], demonstrations: [] }));
  return { ...document, tasks };
}

/** Which features are drawn, where there are more than two. */
function planeAxes(scene, id) {
  const few = scene.kind !== "plane" || scene.coordinates.length <= 2 || bundles;
  $("plane").hidden = Boolean(few);
  if (few) return;
  [$("across"), $("upward")].forEach((select, k) => {
    select.replaceChildren(...scene.coordinates.map((name, i) => new Option(name, String(i))));
    select.value = String(scene.axes[k].index);
    select.onchange = () => {
      if ($("across").value === $("upward").value) return say("Choose two different features.", true);
      show(`${id.split(".")[0]}.${$("across").value}.${$("upward").value}`).catch(failed);
    };
  });
}

/** Buttons for the agents of the same world with another d. */
function sizes(id) {
  const own = agents.find((one) => one.id === id.split(".")[0]);
  const alike = agents.filter((one) => one.group === own?.group && Boolean(one.shipped) === Boolean(own?.shipped)).sort((a, b) => (a.dim || Infinity) - (b.dim || Infinity));
  $("sizes").replaceChildren();
  const dims = new Set(alike.map((one) => one.dim));
  if (alike.length < 2 || alike.length > 6 || dims.size < alike.length) return;
  for (const one of alike) {
    const known = one.dim || engines.get(one.id)?.scene.dim;
    const button = Object.assign(document.createElement("button"), { textContent: known ? `d = ${known}` : "largest d" });
    button.setAttribute("aria-checked", String(one.id === own.id));
    button.setAttribute("role", "radio");
    button.addEventListener("click", () => show(one.id).catch(failed));
    $("sizes").append(button);
  }
}

function listedAgents() {
  const groups = [["Your runs", agents.filter((one) => !one.shipped)], ["Examples", agents.filter((one) => one.shipped)]];
  for (const [label, members] of groups) {
    if (!members.length) continue;
    const group = Object.assign(document.createElement("optgroup"), { label });
    group.append(...members.map((one) => new Option(one.name, one.id)));
    $("agent").append(group);
  }
}

// Everything else ------------------------------------------------------------------------------------------------------

function wire() {
  $("agent").addEventListener("change", () => show($("agent").value).catch(failed));
  $("undo").addEventListener("click", () => travel("undo"));
  $("redo").addEventListener("click", () => travel("redo"));
  $("clear").addEventListener("click", () => store.change((d) => Object.assign(d, emptyDocument())));
  $("strength").addEventListener("input", () => ($("strength-shown").value = $("strength").value));
  $("blend").addEventListener("pointerdown", () => store.remember());
  $("blend").addEventListener("keydown", () => store.remember());
  $("blend").addEventListener("input", (e) => {
    event ??= e.timeStamp;
    store.change((d) => (d.blend = Number($("blend").value)), false);
  });
  $("task-a").addEventListener("click", () => store.change((d) => (d.active = 0), false));
  $("task-b").addEventListener("click", () => store.change((d) => Object.assign(d, { active: 1, blend: isEmpty(d.tasks[1]) ? 1 : d.blend }), false));
  $("preset").addEventListener("change", () => {
    const preset = presetsOf(page.engine.scene)[Number($("preset").value)];
    if ($("preset").value !== "") store.change((d) => (d.tasks[d.active] = preset.make()));
    $("preset").value = "";
  });
  $("as-python").addEventListener("click", () => speak("python"));
  $("as-command").addEventListener("click", () => speak("command"));
  $("copy").addEventListener("click", async () => say((await copied($("code").textContent)) ? "Copied." : "Copying is not allowed here: select the code instead."));
  $("share").addEventListener("click", async () => {
    history.replaceState(null, "", toFragment(store.document, sharedAgent()));
    say((await copied(location.href)) ? "The address of this task was copied." : "The address of this page now holds the task.");
  });
  $("png").addEventListener("click", () => savePng([$("world"), ...($("other-view").hidden ? [] : [$("other")])], caption()));
  $("gif").addEventListener("click", async () => {
    say("Recording ...");
    try {
      await saveGif($("world"), () => walkers?.tick() ?? live?.tick(), draw);
      say("The film was saved.");
    } catch (error) {
      failed(error);
    }
  });
  window.addEventListener("hashchange", () => restore().catch(failed));
}

function speak(chosen) {
  language = chosen;
  $("as-python").setAttribute("aria-checked", String(chosen === "python"));
  $("as-command").setAttribute("aria-checked", String(chosen === "command"));
  code();
}

/** What a shared address says of the agent: its name, its fingerprint, and the features that are drawn. */
function sharedAgent() {
  const { scene } = page.engine;
  const name = agents.find((one) => one.id === scene.id.split(".")[0])?.name ?? "";
  const chosen = scene.kind === "plane" && scene.coordinates.length > 2;
  return { name, hash: scene.agent.slice(0, 16), axes: chosen ? scene.axes.map(({ index }) => index) : null };
}

function caption() {
  const optimum = page.explanation?.optimum;
  const score = optimum?.normalised === null || !optimum ? "" : `, ${optimum.normalised.toFixed(2)} of what is possible`;
  return `anyreward: ${page.engine.scene.name}, d = ${page.engine.scene.dim}${score}`;
}

/** Show the task of the address; null if it holds none. */
async function restore() {
  let found;
  try {
    found = fromFragment(location.hash);
  } catch {
    if (!page.engine) await show(agents[0].id);
    say("The address holds a task that cannot be read; it was left out.", true);
    return agents[0];
  }
  if (!found) return null;
  const agent = agents.find((one) => one.name === found.agent?.name);
  const axes = found.agent?.axes?.every(Number.isInteger) && !bundles ? `.${found.agent.axes.join(".")}` : "";
  const id = agent ? `${agent.id}${axes}` : agents[0].id;
  if (page.engine?.scene.id !== id) await show(id);
  if (!agent) {
    say(`This task is for the agent "${found.agent?.name}", which is not offered here.`, true);
    return agents[0];
  }
  const other = page.engine.scene.agent.slice(0, 16) !== found.agent.hash;
  store.change((d) => Object.assign(d, found.document));
  if (other) say(`This agent has the name of the one that the task was made with, ${found.agent.name}, but was trained again.`);
  return agent;
}

async function start() {
  makeTools();
  listen();
  wire();
  drawScale($("scale"));
  const inside = document.getElementById("bundles");
  if (inside) bundles = JSON.parse(inside.textContent);
  agents = bundles ? bundles.map(({ scene }) => ({ id: scene.id, name: scene.shipped ?? scene.run.split(/[/\\]/).pop(), group: worldKey(scene), shipped: scene.shipped, dim: scene.dim })) : await listAgents();
  if (!agents.length) return say("There are no agents. Train one first: anyreward train four-rooms", true);
  listedAgents();
  if (!(await restore())) await show(agents[0].id);
  page.ready = true;
}

start().catch(failed);
