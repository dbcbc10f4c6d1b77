// Answers of networks: a task is brought to the z that F is trained for, then F . z is evaluated at places.

import { dotted, length } from "./linear.js";
import { Forward, radialBasis } from "./network.js";
import { argmax } from "./solve.js";

const ROUNDING = 1e-6;
const SMALL_MEAN = 0.5;

/** Networks: z without the mean of the reward and at the length that F is evaluated at, then F . z. */
export function networkOf(described, arrays, scene, numbers) {
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
