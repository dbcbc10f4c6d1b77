// Answers computed in the page, from the tables or networks that are inside it. The same numbers as anyreward's.

import { decodeAll } from "./arrays.js";
import { columnAlong } from "./coordinates.js";
import { checkNames, evaluate, parse } from "./expression.js";
import { namedColumns } from "./features.js";
import { conjugateGradients, length } from "./linear.js";
import { Known } from "./locate.js";
import { networkOf } from "./network-answers.js";
import { optimumOf } from "./optimum.js";
import { observed } from "./pendulum.js";
import { Mdp, argmax } from "./solve.js";
import { Swing } from "./swing.js";
import { paintedAt } from "./task.js";

const ROUNDING = 1e-6;
const NO_ACTION = 255;
const EQUAL = 0.05;
const FAST = 45;

/** An error that the page shows in words. */
export class TaskError extends Error {}

export class LocalEngine {
  constructor(bundle) {
    this.scene = bundle.scene;
    this.numbers = bundle.numbers;
    const a = (this.arrays = decodeAll(bundle.arrays));
    const { scene, numbers } = this;
    this.sampleSize = a.weights.length;
    this.columns = namedColumns(scene.features, a.features, this.sampleSize);
    this.coarse = 1;
    if (bundle.network) this.network = networkOf(bundle.network, a, scene, numbers);
    if (a.pStart) {
      this.mdp = new Mdp({ states: numbers.states, actions: numbers.actions, start: a.pStart, column: a.pColumn, share: a.pValue, seen: a.seen });
      this.V = new Float64Array(numbers.states);
    }
    if (a.points) this.states = new Known({ ...a, corners: numbers.corners });
    if (a.centres) this.known = new Known({ points: a.centres, scale: a.centreScale, corners: numbers.centreCorners, triangles: a.centreTriangles });
    this.exact = optimumOf(this);
  }

  /** z_R (d), values and greedy actions on the grid. With quick, a large network may be evaluated at fewer points. */
  async answer(task, quick = false) {
    const z = this.infer(task);
    const found = this.onGrid(z, quick);
    const notes = [];
    if (task.terms.length && z.every((x) => x === 0)) {
      notes.push("This reward is zero everywhere in the training data: every policy is equally good.");
    }
    return { z, ...found, notes };
  }

  /** E_rho[r B], the sum of what each term contributes. */
  infer(task) {
    const { numbers } = this;
    const z = new Float64Array(numbers.dim);
    let size = 0;
    for (const term of task.terms) {
      const part = this.part(term);
      let norm = 0;
      for (let i = 0; i < z.length; i++) {
        z[i] += term.weight * part[i];
        norm += part[i] * part[i];
      }
      size += Math.abs(term.weight) * Math.sqrt(norm);
    }
    if (length(z) <= ROUNDING * size) z.fill(0);
    return z;
  }

  part(term) {
    if (term.kind === "goal") return this.goalPart(term.at);
    if (term.kind === "demonstration") return this.demonstrationPart(term.states);
    const values = this.values(term, this.columns, this.sampleSize);
    const part = new Float64Array(this.numbers.dim);
    const { weights } = this.arrays;
    for (let i = 0; i < values.length; i++) if (values[i] !== 0) this.addB(i, weights[i] * values[i], part);
    return part;
  }

  /** The values of a term at rows of features, given as named columns. */
  values(term, columns, n) {
    if (term.kind === "expression") {
      const expression = parse(term.text);
      checkNames(expression, Object.keys(columns));
      const values = evaluate(expression, columns, n);
      const bad = values.findIndex((x) => !(Math.abs(x) <= 1e30));
      if (bad >= 0) {
        const at = this.scene.features.map((name) => `${name} = ${+columns[name][bad].toPrecision(3)}`).join(", ");
        throw new TaskError(`The reward ${term.text} is ${values[bad]} at ${at}; rewards must be finite.`);
      }
      return values;
    }
    const [x, y] = this.scene.axes.map((axis) => columnAlong(axis, columns));
    const at = paintedAt(term.runs, this.scene);
    return Float64Array.from({ length: n }, (_, i) => at(x[i], y[i]));
  }

  /** Adds B of row i of the sample, times a weight. */
  addB(i, weight, total) {
    const { bStart, bColumn, bValue } = this.arrays;
    for (let j = bStart[i]; j < bStart[i + 1]; j++) total[bColumn[j]] += weight * bValue[j];
  }

  goalPart(at) {
    const row = this.rowAt(at);
    if (row < 0) throw new TaskError(`goal(${at.join(", ")}) was never visited in training, so this agent knows nothing about it.`);
    const part = new Float64Array(this.numbers.dim);
    this.addB(row, this.arrays.weights[row], part);
    return part;
  }

  /** The row of the sample at a place of a maze; -1 if there is none. */
  rowAt(at) {
    const [x, y] = this.scene.axes.map((axis) => this.columns[axis.name]);
    for (let i = 0; i < this.sampleSize; i++) if (x[i] === at[0] && y[i] === at[1]) return i;
    return -1;
  }

  demonstrationPart(states) {
    const part = new Float64Array(this.numbers.dim);
    for (const at of states) {
      if (this.scene.kind === "maze") {
        const row = this.rowAt(at);
        if (row >= 0) this.addB(row, 1 / states.length, part);
      } else {
        const B = this.B(at);
        for (let i = 0; i < part.length; i++) part[i] += B[i] / states.length;
      }
    }
    return part;
  }

  /** B at a place of the continuous maze. */
  B(at) {
    const out = new Float64Array(this.numbers.dim);
    if (!this.known) return this.network.backward(at);
    const [index, share] = this.known.locate(Array.from(at, Math.fround));
    const { tStart, tColumn, tValue } = this.arrays;
    index.forEach((i, k) => {
      for (let j = tStart[i]; j < tStart[i + 1]; j++) out[tColumn[j]] += share[k] * tValue[j];
    });
    return out;
  }

  onGrid(z, quick) {
    const { grid } = this.scene;
    const n = grid.width * grid.height;
    const value = new Float32Array(n).fill(NaN);
    const action = new Uint8Array(n).fill(NO_ACTION);
    const { gridAt, gridIndex, gridShare } = this.arrays;
    const idle = z.every((x) => x === 0);
    const A = this.numbers.actions;
    if (this.mdp) {
      this.solve(z);
      const c = gridIndex.length / gridAt.length;
      const q = new Float64Array(A);
      for (let i = 0; i < gridAt.length; i++) {
        q.fill(0);
        for (let k = 0; k < c; k++) for (let a = 0; a < A; a++) q[a] += gridShare[i * c + k] * this.Q[gridIndex[i * c + k] * A + a];
        const best = argmax(q, 0, A);
        value[gridAt[i]] = q[best];
        if (!idle) action[gridAt[i]] = best;
      }
      return { value, action };
    }
    const began = performance.now();
    const { Q, rows, spread } = this.network.grid(z, quick ? this.coarse : 1);
    rows.forEach((at, r) => {
      const best = argmax(Q, r * A, A);
      for (const i of spread ? spread(at) : [at]) {
        value[i] = Q[r * A + best];
        if (!idle) action[i] = best;
      }
    });
    if (quick && performance.now() - began > FAST && this.coarse < 4) this.coarse++;
    return { value, action };
  }

  /** Q (M * A) at the known states, by modified policy iteration from the values of the last answer. */
  solve(z) {
    const { oStart, oColumn, oValue } = this.arrays;
    const { states, actions } = this.numbers;
    const wide = oStart.length - 1 === states * actions;
    const r = new Float64Array(wide ? states * actions : states);
    for (let m = 0; m < r.length; m++) for (let j = oStart[m]; j < oStart[m + 1]; j++) r[m] += oValue[j] * z[oColumn[j]];
    this.mdp.optimum(r, this.V);
    this.Q = this.mdp.q(r, this.V);
    this.z = z;
  }

  /** The greedy action at a place, for the last answer. */
  act(place) {
    if (!this.mdp) return this.network.act(place);
    if (this.scene.kind === "maze") return null;
    const A = this.numbers.actions;
    const q = new Float64Array(A);
    const [index, share] = this.states.locate(Array.from(this.scene.kind === "pendulum" ? observed(place) : place, Math.fround));
    index.forEach((i, k) => {
      for (let a = 0; a < A; a++) q[a] += share[k] * this.Q[i * A + a];
    });
    return argmax(q, 0, A);
  }

  /** The greedy actions at the n states that the optimum is computed at, for the last answer. */
  actionsAtWorld(n) {
    const { worldIndex, worldShare } = this.arrays;
    const A = this.numbers.actions;
    const c = worldIndex.length / n;
    const q = new Float64Array(A);
    return Int32Array.from({ length: n }, (_, s) => {
      q.fill(0);
      for (let k = 0; k < c; k++) for (let a = 0; a < A; a++) q[a] += worldShare[s * c + k] * this.Q[worldIndex[s * c + k] * A + a];
      return argmax(q, 0, A);
    });
  }

  /** What pushes the pendulum at a place, as the torque's share of the largest; at random where all policies are equally good. */
  push(place) {
    const { listed } = this.scene;
    const idle = !this.z || this.z.every((x) => x === 0);
    return listed[idle ? Math.floor(Math.random() * listed.length) : this.act(place)];
  }

  /** The pendulum, stepped in the page, in place of a socket. */
  live() {
    return new Swing(this);
  }

  async acts(task, places, answer) {
    if (this.scene.kind === "maze") return places.map(([x, y]) => answer.action[y * this.scene.grid.width + x]);
    return places.map((place) => this.act(place));
  }

  /** The optimum, the landmarks, and how much of the reward B represents. */
  async explain(task, answer) {
    const found = { notes: [] };
    if (answer.z.every((x) => x === 0)) return found;
    const functions = task.terms.every((term) => term.kind !== "demonstration");
    if (this.exact && functions) found.optimum = this.exact.compare(this.rewards(task, this.exact.columns, this.exact.size), answer);
    found.landmarks = this.landmarks(answer.z);
    const score = found.optimum ? found.optimum.normalised : null;
    const share = functions ? this.represented(task) : null;
    if (score !== null || share !== null) found.trust = inWords(score, share);
    return found;
  }

  /** The rewards of a task at rows of features, given as named columns. */
  rewards(task, columns, n) {
    const r = new Float64Array(n);
    for (const term of task.terms) {
      const values = term.kind === "goal" ? this.goalValues(term.at, columns, n) : this.values(term, columns, n);
      for (let i = 0; i < n; i++) r[i] += term.weight * values[i];
    }
    return r;
  }

  goalValues(at, columns, n) {
    const [x, y] = this.scene.axes.map((axis) => columns[axis.name]);
    return Float64Array.from({ length: n }, (_, i) => (x[i] === at[0] && y[i] === at[1] ? 1 : 0));
  }

  /** The landmark that leads from each point of the grid, where all states of a maze are landmarks. */
  landmarks(z) {
    const { landmarkV, gridAt, gridIndex } = this.arrays;
    if (!landmarkV) return null;
    const { states: M, dim } = this.numbers;
    const V = this.V;
    let [low, high] = [Infinity, -Infinity];
    for (const v of V) [low, high] = [Math.min(low, v), Math.max(high, v)];
    const leads = new Int16Array(this.scene.grid.width * this.scene.grid.height).fill(-1);
    gridAt.forEach((at, i) => {
      const s = gridIndex[i];
      const values = new Float64Array(M);
      for (let k = 0; k < M; k++) for (let j = 0; j < dim; j++) values[k] += landmarkV[(k * M + s) * dim + j] * z[j];
      const best = Math.max(...values);
      let lead = -1;
      for (let k = 0; k < M; k++) {
        if (values[k] >= best - EQUAL * (high - low) && (lead < 0 || V[k] > V[lead])) lead = k;
      }
      leads[at] = lead;
    });
    const places = Array.from({ length: M }, (_, k) => {
      const i = gridIndex.indexOf(k);
      return i < 0 ? null : [gridAt[i] % this.scene.grid.width, Math.floor(gridAt[i] / this.scene.grid.width)];
    });
    return { places, leads };
  }

  /** R^2 of the reward on the span of B under rho, by conjugate gradients. */
  represented(task) {
    const n = this.sampleSize;
    const r = this.rewards(task, this.columns, n);
    const { weights, bStart, bColumn, bValue } = this.arrays;
    const dim = this.numbers.dim;
    const apply = (v) => {
      const out = Float64Array.from(v, (x) => this.numbers.ridge * x);
      for (let i = 0; i < n; i++) {
        let dot = 0;
        for (let j = bStart[i]; j < bStart[i + 1]; j++) dot += bValue[j] * v[bColumn[j]];
        this.addB(i, weights[i] * dot, out);
      }
      return out;
    };
    const z = new Float64Array(dim);
    let size = 0;
    for (let i = 0; i < n; i++) {
      this.addB(i, weights[i] * r[i], z);
      size += weights[i] * r[i] * r[i];
    }
    if (size === 0) return null;
    const c = conjugateGradients(apply, z);
    let rest = 0;
    for (let i = 0; i < n; i++) {
      let fit = 0;
      for (let j = bStart[i]; j < bStart[i + 1]; j++) fit += bValue[j] * c[bColumn[j]];
      rest += weights[i] * (r[i] - fit) ** 2;
    }
    return 1 - rest / size;
  }
}

function inWords(score, share) {
  const reasons = [];
  let verdict = "nothing to gain";
  if (score !== null) {
    verdict = score >= 0.9 ? "good" : score >= 0.7 ? "doubtful" : "do not rely on it";
    reasons.push(`measured on the exact world: ${score.toFixed(2)} of what is possible (0 = random, 1 = optimal)`);
  } else if (share !== null) {
    verdict = share >= 0.8 ? "doubtful" : "do not rely on it";
  }
  if (share !== null) reasons.push(`B represents ${share.toFixed(2)} of the reward (R²)`);
  return { verdict, reasons, text: "" };
}
