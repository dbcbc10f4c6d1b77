// Answers computed in the page, from the tables or networks that are inside it. The same numbers as anyreward's.

import { decodeAll } from "./arrays.js";
import { checkNames, evaluate, parse } from "./expression.js";
import { Known } from "./locate.js";
import { Forward, radialBasis } from "./network.js";
import { Mdp, argmax } from "./solve.js";
import { paintedAt } from "./task.js";

const ROUNDING = 1e-6;
const SMALL_MEAN = 0.5;
const NO_ACTION = 255;
const EQUAL = 0.05;
const GAIN = 1e-9;
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
    if (a.points) {
      const { points, scale, examples, exampleOf, alike, triangles } = a;
      this.states = new Known({ points, scale, examples, exampleOf, alike, triangles, corners: numbers.corners });
    }
    if (a.centres) this.known = new Known({ points: a.centres, scale: a.centreScale, corners: numbers.centreCorners, triangles: a.centreTriangles });
    if (a.exactStart) {
      this.exact = new Mdp({ states: numbers.worldStates, actions: numbers.actions, start: a.exactStart, column: a.exactColumn, share: a.exactValue });
      this.exactV = new Float64Array(numbers.worldStates);
    }
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
    const [x, y] = this.scene.axes.map((axis) => columns[axis.name]);
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
    const [index, share] = this.known.locate(Math.fround(at[0]), Math.fround(at[1]));
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
  act([x, y]) {
    if (!this.mdp) return this.network.act([x, y]);
    if (this.scene.kind === "maze") return null;
    const A = this.numbers.actions;
    const q = new Float64Array(A);
    const [index, share] = this.states.locate(Math.fround(x), Math.fround(y));
    index.forEach((i, k) => {
      for (let a = 0; a < A; a++) q[a] += share[k] * this.Q[i * A + a];
    });
    return argmax(q, 0, A);
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
    if (this.exact && functions) found.optimum = this.compare(task, answer);
    found.landmarks = this.landmarks(answer.z);
    const score = found.optimum ? found.optimum.normalised : null;
    const share = functions ? this.represented(task) : null;
    if (score !== null || share !== null) found.trust = inWords(score, share);
    return found;
  }

  worldColumns() {
    const { worldPlaces } = this.arrays;
    const n = worldPlaces.length / 2;
    return [namedColumns(this.scene.features, worldPlaces, n), n];
  }

  compare(task, answer) {
    const { exact, arrays } = this;
    const [columns, n] = this.worldColumns();
    const r = new Float64Array(n);
    for (const term of task.terms) {
      const values = term.kind === "goal" ? this.goalValues(term.at, columns, n) : this.values(term, columns, n);
      for (let i = 0; i < n; i++) r[i] += term.weight * values[i];
    }
    const choice = this.policyAt(answer);
    const V = exact.optimum(r, this.exactV);
    const Q = exact.q(r, V);
    const mean = (x) => x.reduce((a, b) => a + b, 0) / n;
    const [achieved, optimal, random] = [mean(exact.value(r, choice)), mean(V), mean(exact.randomValue(r))];
    const gain = optimal - random > GAIN * Math.max(Math.abs(optimal), Math.abs(random), 1e-300);
    const size = this.scene.grid.width * this.scene.grid.height;
    const value = new Float32Array(size).fill(NaN);
    const action = new Uint8Array(size).fill(NO_ACTION);
    arrays.worldGrid.forEach((s, i) => {
      if (s === 65535) return;
      value[i] = V[s];
      action[i] = argmax(Q, s * exact.actions, exact.actions);
    });
    return { achieved, optimal, random, normalised: gain ? (achieved - random) / (optimal - random) : null, value, action };
  }

  goalValues(at, columns, n) {
    const [x, y] = this.scene.axes.map((axis) => columns[axis.name]);
    return Float64Array.from({ length: n }, (_, i) => (x[i] === at[0] && y[i] === at[1] ? 1 : 0));
  }

  /** The greedy actions at the states of the exact world. */
  policyAt(answer) {
    const { worldPlaces, worldIndex, worldShare } = this.arrays;
    const A = this.numbers.actions;
    const n = worldPlaces.length / 2;
    if (this.scene.kind === "maze") {
      const width = this.scene.grid.width;
      return Int32Array.from({ length: n }, (_, s) => answer.action[worldPlaces[2 * s + 1] * width + worldPlaces[2 * s]]);
    }
    if (!this.mdp) return this.network.actions(worldPlaces, "world");
    const c = worldIndex.length / n;
    const q = new Float64Array(A);
    return Int32Array.from({ length: n }, (_, s) => {
      q.fill(0);
      for (let k = 0; k < c; k++) for (let a = 0; a < A; a++) q[a] += worldShare[s * c + k] * this.Q[worldIndex[s * c + k] * A + a];
      return argmax(q, 0, A);
    });
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
    const r = new Float64Array(n);
    for (const term of task.terms) {
      const values = term.kind === "goal" ? this.goalValues(term.at, this.columns, n) : this.values(term, this.columns, n);
      for (let i = 0; i < n; i++) r[i] += term.weight * values[i];
    }
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

function conjugateGradients(apply, b) {
  const x = new Float64Array(b.length);
  const r = Float64Array.from(b);
  let p = Float64Array.from(b);
  let rr = dotted(r, r);
  const enough = 1e-20 * rr;
  for (let k = 0; k < 2 * b.length + 50 && rr > enough; k++) {
    const Ap = apply(p);
    const alpha = rr / dotted(p, Ap);
    for (let i = 0; i < x.length; i++) {
      x[i] += alpha * p[i];
      r[i] -= alpha * Ap[i];
    }
    const next = dotted(r, r);
    p = p.map((v, i) => r[i] + (next / rr) * v);
    rr = next;
  }
  return x;
}

function dotted(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

function length(v) {
  return Math.sqrt(dotted(v, v));
}

/** The columns of features (n * k) by name, and by number as f0, f1, ... */
function namedColumns(names, features, n) {
  const k = names.length;
  const columns = {};
  names.forEach((name, j) => {
    columns[name] = Float64Array.from({ length: n }, (_, i) => features[i * k + j]);
  });
  names.forEach((name, j) => {
    columns[`f${j}`] ??= columns[name];
  });
  return columns;
}

/** Networks: z without the mean of the reward and at the length that F is evaluated at, then F . z. */
function networkOf(described, arrays, scene, numbers) {
  const parts = (prefix) => described[prefix].map((layers) => layers.map(({ kind, weight, bias }) => ({ kind, weight: arrays[weight], bias: arrays[bias] })));
  const F = new Forward({ parts: parts("forward"), width: described.width, actions: numbers.actions, dim: numbers.dim, byAction: described.byAction });
  const { width, height } = scene.grid;
  const [ax, ay] = scene.axes;
  const encode = (places) => {
    const n = places.length / 2;
    if (scene.kind === "maze") return { columns: Int32Array.from({ length: n }, (_, i) => places[2 * i + 1] * width + places[2 * i]) };
    if (described.rbf) return { dense: radialBasis(places), n };
    const dense = Float32Array.from(places, (x, i) => (described.low ? (x - described.low[i % 2]) / (described.high[i % 2] - described.low[i % 2]) : clamp((x - described.mean[i % 2]) / described.std[i % 2])));
    return { dense, n };
  };
  const placesOf = (rows) => {
    const places = new Float32Array(rows.length * 2);
    rows.forEach((at, r) => {
      places[2 * r] = ax.low + ((at % width) / (width - 1)) * (ax.high - ax.low);
      places[2 * r + 1] = ay.low + (Math.floor(at / width) / (height - 1)) * (ay.high - ay.low);
    });
    return places;
  };
  let asked = null;
  const q = (places, key) => {
    const Q = F.q(encode(places), asked.z, key);
    for (let i = 0; i < Q.length; i++) Q[i] = asked.scale * Q[i] + asked.constant;
    return Q;
  };
  return {
    grid(z_R, stride) {
      asked = taskOf(z_R, arrays, numbers);
      let rows = Array.from(arrays.gridAt);
      const coarse = stride > 1 && scene.kind !== "maze";
      if (coarse) rows = rows.filter((at) => (at % width) % stride === 0 && Math.floor(at / width) % stride === 0);
      const spread = (at) => {
        const cells = [];
        for (let j = 0; j < stride; j++) for (let i = 0; i < stride; i++) if ((at % width) + i < width && Math.floor(at / width) + j < height) cells.push(at + i + j * width);
        return cells;
      };
      return { Q: q(placesOf(rows), `grid${coarse ? stride : 1}`), rows, spread: coarse ? spread : null };
    },
    act(place) {
      return argmax(q(Float32Array.from(place), null), 0, numbers.actions);
    },
    actions(places, key) {
      const Q = q(places, key);
      return Int32Array.from({ length: places.length / 2 }, (_, s) => argmax(Q, s * numbers.actions, numbers.actions));
    },
    backward(place) {
      let x = encode(Float32Array.from(place)).dense;
      for (const layer of parts("backward")[0]) x = layerOf(layer, x);
      return x;
    },
  };
}

function layerOf({ kind, weight, bias }, x) {
  if (kind === "relu") return x.map((v) => Math.max(v, 0));
  if (kind === "norm") {
    const mean = x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
    return x.map((v, i) => ((v - mean) / Math.sqrt(variance + 1e-5)) * weight[i] + bias[i]);
  }
  return Float32Array.from(bias, (b, o) => {
    let total = b;
    for (let i = 0; i < x.length; i++) total += weight[o * x.length + i] * x[i];
    return total;
  });
}

function clamp(x) {
  return Math.min(Math.max(x, -5), 5);
}

function taskOf(z_R, { meanB, project, intoMean }, numbers) {
  const d = z_R.length;
  let mean = 0;
  if (numbers.centred) {
    mean = dotted(z_R, intoMean);
    const w = new Float64Array(d);
    for (let i = 0; i < d; i++) for (let j = 0; j < d; j++) w[i] += project[i * d + j] * z_R[j];
    const spread = Math.sqrt(Math.max(dotted(z_R, w) - mean * mean, 0));
    if (!(Math.abs(mean) > SMALL_MEAN * spread)) mean = 0;
  }
  const z = z_R.map((x, i) => x - mean * meanB[i]);
  if (!(length(z) > ROUNDING * length(z_R))) z.fill(0);
  const scale = length(z) / numbers.asked || 1;
  return { z: Float32Array.from(z, (x) => x / scale), scale, constant: mean / (1 - numbers.gamma) };
}
