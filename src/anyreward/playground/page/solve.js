// Finite MDPs with transitions as a sparse matrix: values of policies, and the optimum by modified policy iteration.

import { range } from "./arrays.js";

const PRECISE = 1e-7;
const ROUNDING = 1e-13;
const EVALUATIONS = 30;
const MOST_SWEEPS = 2000;
const UNSEEN = 1e-3;

/**
 * A finite MDP. P is given by rows: row s * actions + a has the columns column[start[row]] to column[start[row + 1] - 1]
 * with the shares share[...], which include the discount. seen (S * A) says which actions may be taken.
 */
export class Mdp {
  constructor({ states, actions, start, column, share, seen = null }) {
    Object.assign(this, { states, actions, start, column, seen });
    this.share = share instanceof Float64Array ? share : Float64Array.from(share);
  }

  ahead(row, V) {
    let total = 0;
    for (let j = this.start[row]; j < this.start[row + 1]; j++) total += this.share[j] * V[this.column[j]];
    return total;
  }

  /** The optimal values for rewards r (S) or (S * A), from V, which is changed: modified policy iteration. */
  optimum(r, V = new Float64Array(this.states)) {
    const { states, actions, seen, start, column, share } = this;
    const wide = r.length === states * actions;
    const choice = new Int32Array(states);
    for (let sweep = 0; sweep < MOST_SWEEPS; sweep++) {
      let [change, low, high] = [0, Infinity, -Infinity];
      for (let s = 0; s < states; s++) {
        let best = -Infinity;
        let chosen = -1;
        for (let row = s * actions, a = 0; a < actions; row++, a++) {
          if (seen !== null && seen[row] === 0) continue;
          let q = wide ? r[row] : r[s];
          for (let j = start[row]; j < start[row + 1]; j++) q += share[j] * V[column[j]];
          if (q > best) {
            best = q;
            chosen = a;
          }
        }
        if (chosen < 0) best = -UNSEEN;
        choice[s] = chosen;
        const apart = Math.abs(best - V[s]);
        if (apart > change) change = apart;
        if (best < low) low = best;
        if (best > high) high = best;
        V[s] = best;
      }
      const enough = PRECISE * (high - low) + ROUNDING * Math.max(Math.abs(low), Math.abs(high));
      if (change <= enough) break;
      this.follow(r, V, choice, EVALUATIONS, enough);
    }
    return V;
  }

  /**
   * Sweeps that follow the actions choice (S), in place, until no value changes by more than enough: each state sees the
   * newest values, and what a state gets from itself is solved for.
   */
  follow(r, V, choice, sweeps, enough) {
    const { states, actions, start, column, share } = this;
    const wide = r.length === states * actions;
    const from = new Int32Array(states + 1);
    const own = new Float64Array(states).fill(1);
    const paid = new Float64Array(states);
    for (let s = 0, n = 0; s < states; s++) {
      const row = s * actions + choice[s];
      if (choice[s] >= 0) {
        n += start[row + 1] - start[row];
        paid[s] = wide ? r[row] : r[s];
      } else {
        paid[s] = V[s];
      }
      from[s + 1] = n;
    }
    const to = new Int32Array(from[states]);
    const likely = new Float64Array(from[states]);
    for (let s = 0; s < states; s++) {
      if (choice[s] < 0) continue;
      for (let j = start[s * actions + choice[s]], i = from[s]; i < from[s + 1]; i++, j++) {
        to[i] = column[j];
        if (column[j] === s) own[s] -= share[j];
        else likely[i] = share[j];
      }
    }
    for (let k = 0; k < sweeps; k++) {
      let change = 0;
      for (let i = 0; i < states; i++) {
        const s = k & 1 ? i : states - 1 - i;
        let v = paid[s];
        for (let j = from[s]; j < from[s + 1]; j++) v += likely[j] * V[to[j]];
        v /= own[s];
        const apart = Math.abs(v - V[s]);
        if (apart > change) change = apart;
        V[s] = v;
      }
      if (change <= enough) break;
    }
  }

  /** Q (S * A) of values V for rewards r; actions that may not be taken are below all others. */
  q(r, V) {
    const { states, actions, seen } = this;
    const wide = r.length === states * actions;
    const Q = new Float64Array(states * actions);
    for (let s = 0; s < states; s++) {
      let worst = Infinity;
      for (let a = 0; a < actions; a++) {
        const row = s * actions + a;
        Q[row] = (wide ? r[row] : r[s]) + this.ahead(row, V);
        if (!seen || seen[row]) worst = Math.min(worst, Q[row]);
      }
      if (!seen) continue;
      if (worst === Infinity) worst = 0;
      for (let a = 0; a < actions; a++) {
        if (!seen[s * actions + a]) Q[s * actions + a] = worst - UNSEEN * (1 + Math.abs(worst));
      }
    }
    return Q;
  }

  /** The values (S) of a policy, given by its actions (S). */
  value(r, choice) {
    const V = new Float64Array(this.states);
    const [low, high] = range(r);
    this.follow(r, V, choice, 20 * MOST_SWEEPS, 1e-9 * Math.max(high - low, ROUNDING * Math.abs(high), 1e-300));
    return V;
  }

  /** The values (S) of the uniformly random policy. */
  randomValue(r) {
    const { states, actions } = this;
    const V = new Float64Array(states);
    const [low, high] = range(r);
    for (let k = 0; k < 20 * MOST_SWEEPS; k++) {
      let change = 0;
      for (let i = 0; i < states; i++) {
        const s = k & 1 ? i : states - 1 - i;
        let v = 0;
        for (let a = 0; a < actions; a++) v += this.ahead(s * actions + a, V);
        v = r[s] + v / actions;
        change = Math.max(change, Math.abs(v - V[s]));
        V[s] = v;
      }
      if (change <= 1e-8 * Math.max(high - low, 1e-300)) break;
    }
    return V;
  }
}

/** The index of the largest number among n from an offset on; the first of equal ones. */
export function argmax(values, offset, n) {
  let best = 0;
  for (let a = 1; a < n; a++) if (values[offset + a] > values[offset + best]) best = a;
  return best;
}
