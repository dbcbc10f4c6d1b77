// Features as columns, as expressions of rewards read them.

/** The columns of features (n * k) by name, and by number as f0, f1, ... */
export function namedColumns(names, features, n) {
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
