// The optimum that an answer is compared with: mazes exactly, the continuous maze and the pendulum on a grid.

import { namedColumns } from "./features.js";
import { MOST_TORQUE, PendulumGrid, observed } from "./pendulum.js";
import { Mdp, argmax } from "./solve.js";

const GAIN = 1e-9;
const NO_ACTION = 255;
const NO_STATE = 65535;

/** The world of a page's engine, to be solved; null if the page does not hold it. */
export function optimumOf(engine) {
  if (engine.arrays.worldRandom) return new PendulumOptimum(engine);
  return engine.arrays.exactStart ? new MazeOptimum(engine) : null;
}

const mean = (x) => x.reduce((a, b) => a + b, 0) / x.length;

function compared(achieved, optimal, random) {
  const gain = optimal - random > GAIN * Math.max(Math.abs(optimal), Math.abs(random), 1e-300);
  return { achieved, optimal, random, normalised: gain ? (achieved - random) / (optimal - random) : null };
}

class MazeOptimum {
  constructor(engine) {
    const { arrays: a, numbers, scene } = engine;
    this.engine = engine;
    this.mdp = new Mdp({ states: numbers.worldStates, actions: numbers.actions, start: a.exactStart, column: a.exactColumn, share: a.exactValue });
    this.V = new Float64Array(numbers.worldStates);
    this.size = a.worldPlaces.length / 2;
    this.columns = namedColumns(scene.features, a.worldPlaces, this.size);
  }

  /** The optimal values and actions on the drawn grid for rewards of the states (n), and the score of an answer. */
  compare(r, answer) {
    const { mdp } = this;
    const choice = this.policy(answer);
    const V = mdp.optimum(r, this.V);
    const Q = mdp.q(r, V);
    const value = new Float32Array(answer.value.length).fill(NaN);
    const action = new Uint8Array(answer.value.length).fill(NO_ACTION);
    this.engine.arrays.worldGrid.forEach((s, i) => {
      if (s === NO_STATE) return;
      value[i] = V[s];
      action[i] = argmax(Q, s * mdp.actions, mdp.actions);
    });
    return { ...compared(mean(mdp.value(r, choice)), mean(V), mean(mdp.randomValue(r))), value, action };
  }

  /** The greedy actions at the states. */
  policy(answer) {
    const { engine, size } = this;
    const { worldPlaces } = engine.arrays;
    if (engine.scene.kind === "maze") {
      const width = engine.scene.grid.width;
      return Int32Array.from({ length: size }, (_, s) => answer.action[worldPlaces[2 * s + 1] * width + worldPlaces[2 * s]]);
    }
    return engine.mdp ? engine.actionsAtWorld(size) : engine.network.actions(worldPlaces, "world");
  }
}

class PendulumOptimum {
  constructor(engine) {
    const { worldAngles: angles, worldSpeeds: speeds, worldTorques: torques, gamma } = engine.numbers;
    this.engine = engine;
    this.grid = new PendulumGrid({ angles, speeds, torques, gamma });
    this.size = this.grid.states.length;
    this.V = new Float64Array(this.size);
    const { features } = engine.scene;
    const rows = Float32Array.from(this.grid.states.flatMap((state) => [...observed(state), 0].slice(0, features.length)));
    this.columns = namedColumns(features, rows, this.size);
  }

  /** The same as for mazes; actions are torques, as shares of the largest. */
  compare(r, answer) {
    const { engine, grid, size } = this;
    const { mdp, torques } = grid;
    const chosen = Array.from(engine.actionsAtWorld(size), (a) => MOST_TORQUE * engine.scene.listed[a][0]);
    const V = mdp.optimum(r, this.V);
    const Q = mdp.q(r, V);
    const value = new Float32Array(answer.value.length);
    const push = new Float32Array(answer.value.length);
    const [across, up] = engine.scene.axes;
    const q = new Float64Array(torques.length);
    for (let k = 0; k < value.length; k++) {
      const [i, j] = [k % across.points, Math.floor(k / across.points)];
      const place = [across.low + (i / (across.points - 1)) * (across.high - across.low), up.low + (j / (up.points - 1)) * (up.high - up.low)];
      q.fill(0);
      for (const [s, share] of grid.around(place)) {
        value[k] += share * V[s];
        for (let a = 0; a < q.length; a++) q[a] += share * Q[s * q.length + a];
      }
      push[k] = torques[argmax(q, 0, q.length)] / MOST_TORQUE;
    }
    const random = engine.arrays.worldRandom.reduce((total, w, s) => total + w * r[s], 0);
    return { ...compared(mean(grid.value(r, chosen)), mean(V), random), value, push };
  }
}
