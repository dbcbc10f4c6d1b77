// Gymnasium's pendulum: its steps, and the same on a grid of angle and speed, whose optimum is computed in the page.

import { Mdp } from "./solve.js";

export const MOST_SPEED = 8;
export const MOST_TORQUE = 2;
const GRAVITY = 10;
const STEP = 0.05;

const clip = (x, most) => Math.min(Math.max(x, -most), most);

/** The angle and speed after a step with a torque; upright is 0, and angles grow anticlockwise. */
export function pendulumStep([angle, speed], torque) {
  const faster = clip(speed + (1.5 * GRAVITY * Math.sin(angle) + 3 * clip(torque, MOST_TORQUE)) * STEP, MOST_SPEED);
  return [angle + faster * STEP, faster];
}

/** What an agent observes of an angle and a speed. */
export function observed([angle, speed]) {
  return [Math.cos(angle), Math.sin(angle), speed];
}

/** The pendulum with angles * speeds states and some torques, as anyreward's theory/pendulum.py. */
export class PendulumGrid {
  constructor({ angles, speeds, torques, gamma }) {
    Object.assign(this, { angles, speeds, gamma });
    this.torques = Array.from({ length: torques }, (_, a) => MOST_TORQUE * ((2 * a) / (torques - 1) - 1));
    this.states = Array.from({ length: angles * speeds }, (_, s) => [
      -Math.PI + (2 * Math.PI * Math.floor(s / speeds)) / angles,
      MOST_SPEED * ((2 * (s % speeds)) / (speeds - 1) - 1),
    ]);
    this.mdp = this.made(torques, (s, a) => [[this.torques[a], 1]]);
  }

  /** The points around a place, and their shares: [[index, share], ...]. */
  around([angle, speed]) {
    const { angles, speeds } = this;
    const u = ((angle + Math.PI) / (2 * Math.PI)) * angles;
    const v = Math.min(Math.max(((speed + MOST_SPEED) / (2 * MOST_SPEED)) * (speeds - 1), 0), speeds - 1);
    const [i, j] = [Math.floor(u), Math.min(Math.floor(v), speeds - 2)];
    const at = (k, m) => ((((i + k) % angles) + angles) % angles) * speeds + j + m;
    const [right, above] = [u - i, v - j];
    return [[at(0, 0), (1 - right) * (1 - above)], [at(0, 1), (1 - right) * above], [at(1, 0), right * (1 - above)], [at(1, 1), right * above]];
  }

  /** The MDP of some actions; torques(s, a): [[torque, probability], ...]. */
  made(actions, torques) {
    const [start, column, share] = [[0], [], []];
    this.states.forEach((state, s) => {
      for (let a = 0; a < actions; a++) {
        for (const [torque, likely] of torques(s, a)) {
          for (const [index, part] of this.around(pendulumStep(state, torque))) {
            column.push(index);
            share.push(this.gamma * likely * part);
          }
        }
        start.push(column.length);
      }
    });
    return new Mdp({ states: this.states.length, actions, start: Uint32Array.from(start), column: Uint16Array.from(column), share: Float64Array.from(share) });
  }

  /** The values (states) of a policy that has a torque at each state; those between two of the grid's are split. */
  value(r, torques) {
    const least = this.torques[0];
    const step = this.torques[1] - least;
    const split = (s) => {
      const at = (torques[s] - least) / step;
      const low = Math.min(Math.max(Math.floor(at), 0), this.torques.length - 2);
      return [[this.torques[low], 1 - (at - low)], [this.torques[low + 1], at - low]].filter(([, likely]) => likely > 0);
    };
    return this.made(1, split).value(r, new Int32Array(this.states.length));
  }
}
