// The forward network F(s, ., z) . z for one z at many states.

/**
 * parts: each a list of layers {kind: "linear", weight (out * in), bias} | {kind: "norm", weight, bias} | {kind: "relu"},
 * whose first layer takes the encoded state and then z. With byAction, each action has its own weights for the state.
 */
export class Forward {
  constructor({ parts, width, actions, dim, byAction }) {
    Object.assign(this, { parts, width, actions, dim, byAction });
    this.cache = new Map();
  }

  /** Q (n * A) for z (d) at encoded states: {columns: Int32Array (n)} of one-hot rows, or {dense, n}; key names them. */
  q(states, z, key) {
    const { actions, dim } = this;
    const n = states.columns ? states.columns.length : states.n;
    const Q = new Float64Array(n * actions);
    const norm2 = z.reduce((total, x) => total + x * x, 0);
    const seen = Float64Array.from(z, (x) => x / Math.sqrt(1 + norm2 / dim));
    for (const part of this.parts) {
      const last = part[part.length - 1];
      const hidden = part[0].bias.length;
      const first = this.ofStates(part[0], states, key, n);
      const ofZ = new Float64Array(hidden);
      const inputs = part[0].weight.length / hidden;
      for (let h = 0; h < hidden; h++) {
        let total = part[0].bias[h];
        for (let i = 0; i < dim; i++) total += part[0].weight[(h + 1) * inputs - dim + i] * seen[i];
        ofZ[h] = total;
      }
      const heads = this.byAction ? 1 : actions;
      const width = last.weight.length / last.bias.length;
      const head = new Float32Array(heads * width);
      const offset = new Float64Array(heads);
      for (let a = 0; a < heads; a++) {
        for (let i = 0; i < dim; i++) {
          const row = (a * dim + i) * width;
          offset[a] += last.bias[a * dim + i] * z[i];
          for (let h = 0; h < width; h++) head[a * width + h] += last.weight[row + h] * z[i];
        }
      }
      const rows = this.byAction ? n * actions : n;
      const y = new Float32Array(hidden);
      for (let r = 0; r < rows; r++) {
        for (let h = 0; h < hidden; h++) y[h] = first[r * hidden + h] + ofZ[h];
        let x = y;
        for (const layer of part.slice(1, -1)) x = run(layer, x);
        for (let a = 0; a < heads; a++) {
          let total = offset[a];
          for (let h = 0; h < width; h++) total += head[a * width + h] * x[h];
          Q[this.byAction ? r : r * actions + a] += total;
        }
      }
    }
    return Q;
  }

  /** The part of the first layer that depends on the states, (rows * hidden), kept under a key. */
  ofStates(layer, states, key, n) {
    const known = key && this.cache.get(key)?.get(layer);
    if (known) return known;
    const hidden = layer.bias.length;
    const inputs = layer.weight.length / hidden;
    const { width, actions } = this;
    const blocks = this.byAction ? actions : 1;
    const out = new Float32Array(n * blocks * hidden);
    for (let r = 0; r < n; r++) {
      for (let a = 0; a < blocks; a++) {
        for (let h = 0; h < hidden; h++) {
          const base = h * inputs + a * width;
          let total = 0;
          if (states.columns) total = layer.weight[base + states.columns[r]];
          else for (let i = 0; i < width; i++) total += layer.weight[base + i] * states.dense[r * width + i];
          out[(r * blocks + a) * hidden + h] = total;
        }
      }
    }
    if (key) {
      if (!this.cache.has(key)) this.cache.set(key, new Map());
      this.cache.get(key).set(layer, out);
    }
    return out;
  }
}

function run(layer, x) {
  const n = x.length;
  if (layer.kind === "relu") {
    for (let i = 0; i < n; i++) if (x[i] < 0) x[i] = 0;
    return x;
  }
  if (layer.kind === "norm") {
    let mean = 0;
    for (let i = 0; i < n; i++) mean += x[i];
    mean /= n;
    let variance = 0;
    for (let i = 0; i < n; i++) variance += (x[i] - mean) ** 2;
    const size = 1 / Math.sqrt(variance / n + 1e-5);
    for (let i = 0; i < n; i++) x[i] = (x[i] - mean) * size * layer.weight[i] + layer.bias[i];
    return x;
  }
  const out = layer.bias.length;
  const y = new Float32Array(out);
  const { weight, bias } = layer;
  for (let o = 0; o < out; o++) {
    let [a, b, c, d] = [bias[o], 0, 0, 0];
    const row = o * n;
    let i = 0;
    for (; i + 3 < n; i += 4) {
      a += weight[row + i] * x[i];
      b += weight[row + i + 1] * x[i + 1];
      c += weight[row + i + 2] * x[i + 2];
      d += weight[row + i + 3] * x[i + 3];
    }
    for (; i < n; i++) a += weight[row + i] * x[i];
    y[o] = a + b + c + d;
  }
  return y;
}

const CENTRES = 21;
const SIGMA = 0.05;

/** The activations (n * 441) of a grid of Gaussians at points (n * 2) of the unit square. */
export function radialBasis(points) {
  const n = points.length / 2;
  const out = new Float32Array(n * CENTRES * CENTRES);
  const along = [new Float64Array(CENTRES), new Float64Array(CENTRES)];
  for (let r = 0; r < n; r++) {
    for (let k = 0; k < 2; k++) {
      let total = 0;
      for (let c = 0; c < CENTRES; c++) {
        along[k][c] = Math.exp(-((points[2 * r + k] - c / (CENTRES - 1)) ** 2) / (2 * SIGMA * SIGMA));
        total += along[k][c];
      }
      for (let c = 0; c < CENTRES; c++) along[k][c] /= total;
    }
    for (let i = 0; i < CENTRES; i++) {
      for (let j = 0; j < CENTRES; j++) out[(r * CENTRES + i) * CENTRES + j] = along[0][i] * along[1][j];
    }
  }
  return out;
}
