// What the user asks for: two tasks of paint, goals, expressions and demonstrations, and the blend of both.

const INSIDE = 1e-9;
const MOST_UNDO = 200;

/** An empty document: tasks A and B, which of them is edited, and the share of B. */
export function emptyDocument() {
  return { tasks: [emptyTask(), emptyTask()], active: 0, blend: 0 };
}

function emptyTask() {
  return { paint: {}, goals: [], expressions: [], demonstrations: [] };
}

/** Whether a task asks for nothing. */
export function isEmpty(task) {
  return !Object.keys(task.paint).length && !task.goals.length && !task.expressions.length && !task.demonstrations.length;
}

/** A number without needless digits. */
export function tidy(x, digits = 6) {
  return Number(x.toPrecision(digits));
}

/** The shares of tasks A and B: an empty one has none. */
export function shares({ tasks: [a, b], blend }) {
  const share = isEmpty(b) ? 0 : isEmpty(a) ? 1 : blend;
  return [1 - share, share];
}

/** The document as a flat list of weighted terms, as engines and code take them. */
export function lowered(document, scene) {
  const terms = [];
  const factors = shares(document);
  for (const [k, task] of document.tasks.entries()) {
    const factor = factors[k];
    if (factor === 0) continue;
    const weight = (w) => tidy(w * factor);
    const runs = runsOf(task.paint);
    if (runs.length) terms.push({ kind: "paint", runs, weight: weight(1) });
    for (const { at, weight: w } of task.goals) {
      if (["square", "pendulum", "plane"].includes(scene.kind)) terms.push({ kind: "expression", text: ballText(at, scene), weight: weight(w) });
      else terms.push({ kind: "goal", at, weight: weight(w) });
    }
    for (const { text, weight: w } of task.expressions) terms.push({ kind: "expression", text, weight: weight(w) });
    for (const { states, weight: w } of task.demonstrations) terms.push({ kind: "demonstration", states, weight: weight(w) });
  }
  return { terms };
}

/** A value of an axis with digits as fine as its range asks for. */
export function rounded(value, { low, high }) {
  const digits = Math.min(Math.max(0, Math.ceil(2 - Math.log10(high - low))), 12);
  return Number(value.toFixed(digits)) + 0; // never -0
}

/** A difference, as an expression. */
export function minus(name, value) {
  return value === 0 ? name : `(${name} ${value < 0 ? `+ ${-value}` : `- ${value}`})`;
}

/** A reward of one around a place, as an expression: single points have no reward in worlds of numbers. */
export function ballText(at, scene) {
  if (!scene.axes.some(({ turns }) => turns)) {
    const sides = scene.axes.map((axis, k) => `${minus(axis.name, tidy(at[k], 4))} / ${tidy(ballRadius(axis), 4)}`);
    return `hypot(${sides.join(", ")}) < 1`;
  }
  const sides = scene.axes.flatMap((axis, k) => {
    const radius = ballRadius(axis);
    if (!axis.turns) return [[axis.name, tidy(at[k], 4), tidy(radius, 4)]];
    const chord = tidy(2 * Math.sin(radius / 2), 4); // on the circle, where an angle has no ends
    return [Math.cos, Math.sin].map((part, i) => [`f${axis.columns[i]}`, Number(part(at[k]).toFixed(4)), chord]);
  });
  return `${sides.map(([name, value, radius]) => `(${minus(name, value)} / ${radius})**2`).join(" + ")} < 1`;
}

/**
 * The weight of a forbidden place. For tables, which are exact, what a goal pays in as many steps as the world is wide and
 * high, so that a detour is worth it. Networks are trained for sums of few goals: the paper's -0.5.
 */
export function forbidding(scene) {
  if (scene.method !== "tables") return -0.5;
  return scene.kind === "maze" ? -(scene.grid.width + scene.grid.height) : -20;
}

/** The radius of such a goal along an axis; between whole numbers, one of them. */
export function ballRadius(axis) {
  const radius = 0.05 * (axis.high - axis.low);
  return axis.whole ? Math.max(radius, 0.5) : radius;
}

/** Painted cells {index: value} as runs of consecutive values. */
export function runsOf(paint) {
  const runs = [];
  let last = -2;
  for (const index of Object.keys(paint).map(Number).sort((i, j) => i - j)) {
    if (paint[index] === 0) continue;
    if (index === last + 1) runs[runs.length - 1].push(paint[index]);
    else runs.push([index, paint[index]]);
    last = index;
  }
  return runs;
}

/** The painted reward as a function of the two drawn features: bilinear, zero outside. */
export function paintedAt(runs, scene) {
  const { width, height } = scene.grid;
  const values = new Float64Array(width * height);
  for (const [first, ...run] of runs) run.forEach((value, k) => (values[first + k] = value));
  const [ax, ay] = scene.axes;
  return (x, y) => {
    let u = ((x - ax.low) / (ax.high - ax.low)) * (width - 1);
    let v = ((y - ay.low) / (ay.high - ay.low)) * (height - 1);
    if (!(u >= -INSIDE && u <= width - 1 + INSIDE && v >= -INSIDE && v <= height - 1 + INSIDE)) return 0;
    u = Math.min(Math.max(u, 0), width - 1);
    v = Math.min(Math.max(v, 0), height - 1);
    const i = Math.min(Math.floor(u), Math.max(width - 2, 0));
    const j = Math.min(Math.floor(v), Math.max(height - 2, 0));
    const right = Math.min(i + 1, width - 1);
    const below = Math.min(j + 1, height - 1);
    const top = (1 - (u - i)) * values[j * width + i] + (u - i) * values[j * width + right];
    const bottom = (1 - (u - i)) * values[below * width + i] + (u - i) * values[below * width + right];
    return (1 - (v - j)) * top + (v - j) * bottom;
  };
}

/**
 * One dab of a brush at a place of the grid (column, row): a round spot that is strongest in the middle. Weaker paint
 * does not cover stronger paint of the same sign, so that a slow stroke is not stronger than a fast one.
 */
export function dab(paint, scene, [column, row], radius, strength, allowed = () => true) {
  const { width, height } = scene.grid;
  const [across, up] = scene.axes;
  const reach = Math.max(radius, 0.5);
  for (let j = Math.ceil(row - reach); j <= row + reach; j++) {
    for (let i = Math.ceil(column - reach); i <= column + reach; i++) {
      const apart = Math.hypot(i - column, j - row);
      if (apart > reach) continue;
      const value = strength && tidy(strength * (radius < 1 ? 1 : 1 - 0.75 * (apart / reach) ** 2), 2);
      for (const v of sameAs(j, height, up)) for (const u of sameAs(i, width, across)) if (allowed(u, v)) put(paint, v * width + u, value);
    }
  }
}

/** The grid's numbers of a column or row: none outside, and both ends of an angle, which are the same place. */
function sameAs(i, n, { turns }) {
  if (!turns) return i >= 0 && i < n ? [i] : [];
  const inside = ((i % (n - 1)) + n - 1) % (n - 1);
  return inside === 0 ? [0, n - 1] : [inside];
}

function put(paint, index, value) {
  const old = paint[index] ?? 0;
  if (value === 0) delete paint[index];
  else if (Math.sign(value) !== Math.sign(old) || Math.abs(value) > Math.abs(old)) paint[index] = value;
}

/** The document and its history. */
export class Store {
  constructor(onChange) {
    this.document = emptyDocument();
    this.past = [];
    this.future = [];
    this.onChange = onChange;
  }

  get task() {
    return this.document.tasks[this.document.active];
  }

  /** Change the document; keep: whether this is a new step of the history (a stroke is one step). */
  change(edit, keep = true) {
    if (keep) this.remember();
    edit(this.document);
    this.onChange();
  }

  remember() {
    this.past.push(JSON.stringify(this.document));
    if (this.past.length > MOST_UNDO) this.past.shift();
    this.future = [];
  }

  /** Another world: its history begins anew, with what is left of the document. */
  begin(document) {
    Object.assign(this, { document, past: [], future: [] });
    this.onChange();
  }

  undo() {
    this.travel(this.past, this.future);
  }

  redo() {
    this.travel(this.future, this.past);
  }

  travel(from, to) {
    if (!from.length) return;
    to.push(JSON.stringify(this.document));
    this.document = JSON.parse(from.pop());
    this.onChange();
  }
}

/** The document as the fragment of an address, with the agent, {name, hash, axes}, that it is for. */
export function toFragment(document, agent) {
  const { tasks, blend, active } = document;
  const packed = tasks.map((t) => ({ p: runsOf(t.paint), g: t.goals.map((g) => [...g.at, g.weight]), e: t.expressions.map((e) => [e.text, e.weight]), d: t.demonstrations.map((d) => [d.states, d.weight]) }));
  const bytes = new TextEncoder().encode(JSON.stringify({ v: 1, agent, t: packed, b: blend, a: active }));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return `#${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

/** {document, agent} from the fragment of an address; null if it holds none, throws if it cannot be read. */
export function fromFragment(fragment) {
  if (fragment.length < 2) return null;
  const text = atob(fragment.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
  const data = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  const number = (x) => {
    if (typeof x !== "number" || !Number.isFinite(x)) throw new Error("a number is missing");
    return x;
  };
  const tasks = [0, 1].map((k) => {
    const { p = [], g = [], e = [], d = [] } = data.t[k];
    const paint = {};
    for (const [first, ...run] of p) run.forEach((value, i) => (paint[number(first) + i] = number(value)));
    return {
      paint,
      goals: g.map((goal) => ({ at: goal.slice(0, -1).map(number), weight: number(goal[goal.length - 1]) })),
      expressions: e.map(([text, weight]) => ({ text: String(text), weight: number(weight) })),
      demonstrations: d.map(([states, weight]) => ({ states: states.map((at) => at.map(number)), weight: number(weight) })),
    };
  });
  return { document: { tasks, blend: Math.min(Math.max(number(data.b), 0), 1), active: data.a ? 1 : 0 }, agent: data.agent };
}
