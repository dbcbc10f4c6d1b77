// The name that was probably meant, by the similarity of difflib.get_close_matches.

const CLOSE = 0.6;

/** " (did you mean 'name'?)" with the name most similar to a word, or an empty text if none is. */
export function guess(word, names) {
  const byLower = new Map([...names].map((name) => [name.toLowerCase(), name]));
  let best = null;
  for (const lower of byLower.keys()) {
    const ratio = similarity([...lower], [...word.toLowerCase()]);
    const better = !best || ratio > best.ratio || (ratio === best.ratio && lower > best.lower);
    if (ratio >= CLOSE && better) best = { ratio, lower };
  }
  return best ? ` (did you mean '${byLower.get(best.lower)}'?)` : "";
}

/** The share of characters in common parts of the same order. */
function similarity(a, b) {
  return (2 * inCommon(a, b)) / (a.length + b.length);
}

/** The length of the longest common part, and of the common parts to its left and to its right. */
function inCommon(a, b) {
  let [size, endA, endB] = [0, 0, 0];
  let before = new Array(b.length + 1).fill(0);
  for (let i = 0; i < a.length; i++) {
    const lengths = new Array(b.length + 1).fill(0);
    for (let j = 0; j < b.length; j++) {
      if (a[i] !== b[j]) continue;
      lengths[j + 1] = before[j] + 1;
      if (lengths[j + 1] > size) [size, endA, endB] = [lengths[j + 1], i + 1, j + 1];
    }
    before = lengths;
  }
  if (!size) return 0;
  const left = inCommon(a.slice(0, endA - size), b.slice(0, endB - size));
  return left + size + inCommon(a.slice(endA), b.slice(endB));
}
