// What is drawn of a state: features, and angles that are observed as a cosine and a sine.

/** The value of an axis at the features of a state. */
export function alongAxis({ columns: [first, second], turns }, features) {
  return turns ? Math.atan2(features[second], features[first]) : features[first];
}

/** The values of an axis at n rows of features, given as columns by name. */
export function columnAlong({ name, columns: [first, second], turns }, columns) {
  if (!turns) return columns[name];
  const [cosine, sine] = [columns[`f${first}`], columns[`f${second}`]];
  return Float64Array.from(cosine, (x, i) => Math.atan2(sine[i], x));
}

/** A difference of two places on an axis, in units of which the axis has a number; angles take the short way round. */
export function shortest(axis, difference, units) {
  return axis.turns ? difference - units * Math.round(difference / units) : difference;
}

/** A way as pieces that do not cross the ends of an angle: lists of places. */
export function pieces(way, axes) {
  const parts = [];
  way.forEach((at, i) => {
    const jumps = i > 0 && axes.some((axis, k) => axis.turns && Math.abs(at[k] - way[i - 1][k]) > (axis.high - axis.low) / 2);
    if (i === 0 || jumps) parts.push([]);
    parts[parts.length - 1].push(at);
  });
  return parts;
}

/** The action of a box at point k of an answer's grid, from -1 to 1 for each of its numbers; null if there is none. */
export function pushAt({ box, listed }, { action, push }, k) {
  if (push) {
    const found = Array.from(push.subarray(k * box.length, (k + 1) * box.length));
    return found.some(Number.isNaN) ? null : found;
  }
  return listed?.[action[k]] ?? null;
}
