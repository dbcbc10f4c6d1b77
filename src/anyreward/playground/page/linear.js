// Vectors, and a linear system.

/** x with A x = b, for apply(v) = A v of a positive definite A. */
export function conjugateGradients(apply, b) {
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

export function dotted(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

export function length(v) {
  return Math.sqrt(dotted(v, v));
}
