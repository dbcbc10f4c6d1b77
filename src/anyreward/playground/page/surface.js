// Points on a surface of two dimensions: the triangle around a place, in the plane of the nearest point.

const NEAR = 7;
const CLOSE = 0.1;
const SLACK = 1e-9;

const cross = (a, b) => a[0] * b[1] - a[1] * b[0];
const dot = (a, b) => a.reduce((total, x, i) => total + x * b[i], 0);

/** [indices, shares] of points around a place; near: the indices of the nearest, axes: the plane of the first of them. */
export function onSurface(near, apart, axes) {
  const flat = apart.map((way) => axes.map((axis) => dot(way, axis)));
  const [corners, shares] = aroundZero(flat) ?? besideZero(flat);
  return [corners.map((i) => near[i]), shares];
}

/** The number of nearest points that are looked at. */
export const LOOKED_AT = NEAR;

/** Of all triangles around zero the one of the Delaunay triangulation: the least mean square of its corners. */
function aroundZero(points) {
  let best = null;
  for (let i = 0; i < points.length; i++) {
    for (let j = i + 1; j < points.length; j++) {
      for (let k = j + 1; k < points.length; k++) {
        const [a, b, c] = [points[i], points[j], points[k]];
        const parts = [cross(b, c), cross(c, a), cross(a, b)];
        const total = parts[0] + parts[1] + parts[2];
        const shares = parts.map((part) => part / total);
        const spread = shares[0] * dot(a, a) + shares[1] * dot(b, b) + shares[2] * dot(c, c);
        if (!Number.isFinite(spread) || shares.some((share) => !(share >= -SLACK))) continue;
        if (!best || spread < best.spread) best = { spread, corners: [i, j, k], shares };
      }
    }
  }
  if (!best) return null;
  const positive = best.shares.map((share) => Math.max(share, 0));
  const total = positive.reduce((a, b) => a + b, 0);
  return [best.corners, positive.map((share) => share / total)];
}

/** Two points whose mixture is nearest to zero; of those about as near, the mixture of near points. */
function besideZero(points) {
  let best = null;
  for (let i = 0; i < points.length; i++) {
    for (let j = i + 1; j < points.length; j++) {
      const [a, b] = [points[i], points[j]];
      const way = [b[0] - a[0], b[1] - a[1]];
      const share = Math.min(Math.max(-dot(a, way) / Math.max(dot(way, way), 1e-300), 0), 1);
      const at = [a[0] + share * way[0], a[1] + share * way[1]];
      const size = dot(at, at) + CLOSE * ((1 - share) * dot(a, a) + share * dot(b, b));
      if (!best || size < best.size) best = { size, corners: [i, j], shares: [1 - share, share] };
    }
  }
  return [best.corners, best.shares];
}
