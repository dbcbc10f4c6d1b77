// Points among known points: the shares of the known points that a point is interpolated from.

import { LOOKED_AT, onSurface } from "./surface.js";

const RIDGE = 1e-3;

/**
 * Known points (m * width), as anyreward's KnownRows: rows near each other but apart in effect, such as on two sides of a
 * wall, are told apart by examples. Points on a surface have the axes of its plane at each of them (m * 2 * width).
 */
export class Known {
  constructor({ points, scale, corners, examples = null, exampleOf = null, alike = null, triangles = null, planes = null }) {
    Object.assign(this, { corners, exampleOf, triangles, planes, scale });
    this.width = scale.length;
    this.points = this.scaled(points);
    this.examples = examples?.length ? this.scaled(examples) : null;
    this.alike = alike?.length ? alike : null;
    this.choices = this.alike ? alike.length / (points.length / this.width) : 0;
  }

  /** [indices, shares] of the known points around a place. */
  locate(place) {
    const p = Array.from(place, (x, i) => x / this.scale[i]);
    if (this.planes) return this.inPlane(p);
    if (this.triangles) return this.inTriangle(p) ?? [this.nearest(this.points, p, 1), [1]];
    const index = this.examples ? this.nearestAlike(p) : this.nearest(this.points, p, this.corners);
    return [index, simplexShares(index.map((i) => this.from(p, i)))];
  }

  scaled(points) {
    return Float64Array.from(points, (x, i) => x / this.scale[i % this.width]);
  }

  /** The way from a place to a point. */
  from(p, i) {
    return p.map((x, j) => this.points[this.width * i + j] - x);
  }

  nearestAlike(p) {
    const own = this.exampleOf[this.nearest(this.examples, p, 1)[0]];
    const squared = (i) => this.from(p, i).reduce((total, x) => total + x * x, 0);
    return Array.from(this.alike.subarray(own * this.choices, (own + 1) * this.choices), (i) => [squared(i), i])
      .sort((a, b) => a[0] - b[0])
      .slice(0, this.corners)
      .map(([, i]) => i);
  }

  inPlane(p) {
    const near = this.nearest(this.points, p, LOOKED_AT);
    const at = 2 * this.width * near[0];
    const axes = [0, this.width].map((from) => this.planes.subarray(at + from, at + from + this.width));
    return onSurface(near, near.map((i) => this.from(p, i)), axes);
  }

  inTriangle(p) {
    const { triangles, points } = this;
    for (let t = 0; t < triangles.length; t += 3) {
      const [a, b, c] = [triangles[t], triangles[t + 1], triangles[t + 2]];
      const [ax, ay] = [points[2 * a], points[2 * a + 1]];
      const [bx, by] = [points[2 * b] - ax, points[2 * b + 1] - ay];
      const [cx, cy] = [points[2 * c] - ax, points[2 * c + 1] - ay];
      const size = bx * cy - by * cx;
      if (size === 0) continue;
      const u = ((p[0] - ax) * cy - (p[1] - ay) * cx) / size;
      const v = (bx * (p[1] - ay) - by * (p[0] - ax)) / size;
      if (u >= -1e-12 && v >= -1e-12 && u + v <= 1 + 1e-12) return [[a, b, c], [1 - u - v, u, v]];
    }
    return null;
  }

  /** The indices of the k points that are nearest to p. */
  nearest(points, p, k) {
    const { width } = this;
    const best = [];
    for (let i = 0; i < points.length / width; i++) {
      let d = 0;
      for (let j = 0; j < width; j++) d += (points[width * i + j] - p[j]) ** 2;
      if (best.length === k && d >= best[k - 1][0]) continue;
      let at = best.length;
      while (at > 0 && best[at - 1][0] > d) at--;
      best.splice(at, 0, [d, i]);
      if (best.length > k) best.pop();
    }
    return best.map(([, i]) => i);
  }
}

/** Nonnegative shares with a sum of one whose mixture of corners, given relative to the point, is near the point. */
export function simplexShares(apart) {
  const k = apart.length;
  const gram = apart.map((u) => apart.map((v) => u.reduce((total, x, i) => total + x * v[i], 0)));
  const size = gram.reduce((total, row, i) => total + row[i], 0) / k;
  for (let i = 0; i < k; i++) gram[i][i] += RIDGE * size + 1e-18;
  const share = solved(gram, new Array(k).fill(1)).map((x) => Math.max(x, 0));
  const total = share.reduce((a, b) => a + b, 0);
  return share.map((x) => x / total);
}

/** The solution of a small linear system, by elimination with pivots. */
function solved(A, b) {
  const n = b.length;
  const rows = A.map((row, i) => [...row, b[i]]);
  for (let i = 0; i < n; i++) {
    let pivot = i;
    for (let j = i + 1; j < n; j++) if (Math.abs(rows[j][i]) > Math.abs(rows[pivot][i])) pivot = j;
    [rows[i], rows[pivot]] = [rows[pivot], rows[i]];
    for (let j = i + 1; j < n; j++) {
      const f = rows[j][i] / rows[i][i];
      for (let k = i; k <= n; k++) rows[j][k] -= f * rows[i][k];
    }
  }
  const x = new Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) {
    let total = rows[i][n];
    for (let j = i + 1; j < n; j++) total -= rows[i][j] * x[j];
    x[i] = total / rows[i][i];
  }
  return x;
}
