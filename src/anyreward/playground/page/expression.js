// The expression language of rewards, as in rewards/expression.py: read, checked and evaluated without eval.

import { guess } from "./guess.js";
import { treeOf } from "./grammar.js";
import { checkExponent, compute, FUNCTIONS, partsOf, pythonNumber } from "./numerics.js";
import { Problem } from "./tokens.js";

const MOST_CHARACTERS = 1000;
const DEEPEST = 40;
const LARGEST = 1e30;
const CONSTANTS = new Map([
  ["pi", Math.PI],
  ["e", Math.E],
]);
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+"; // Python's
const SPACE_BEFORE = new RegExp(`^${SPACE}`);
const SPACE_AFTER = new RegExp(`${SPACE}$`);
const ACCEPTED =
  "Accepted: numbers, names of features, pi, e, brackets, + - * / // % **, < <= > >= == !=, and, or, not, and the " +
  `functions ${[...FUNCTIONS.keys()].join(", ")}.`;
const OPERATIONS = new Set(["unary", "binary", "joined", "compared"]);
const REFUSED = new Map(Object.entries({
  comprehension: "a comprehension",
  conditional: "if/else: write where(condition, a, b)",
  assignment: "an assignment (:=)",
  subscript: "a subscript ([...])",
  starred: "a starred argument (*)",
  tuple: "a tuple (values with a comma between them)",
  "f-string": "an f-string",
  bytes: "a string of bytes",
  complex: "a complex number",
  "...": "an ellipsis (...)",
  None: "None",
  await: "await",
  yield: "yield",
}));
const REFUSED_OPERATORS = new Map(Object.entries({
  ...Object.fromEntries(["&", "|", "~"].map((sign) => [sign, "& | ~ : write and, or, not"])),
  ...Object.fromEntries(["<<", ">>"].map((sign) => [sign, "a bit shift (<< >>)"])),
  ...Object.fromEntries(["is", "is not"].map((sign) => [sign, "is: write == or !="])),
  ...Object.fromEntries(["in", "not in"].map((sign) => [sign, "in: write comparisons, joined by and or or"])),
  "^": "^ : write ** for a power",
  "@": "matrix multiplication (@): write * for a product",
}));

/**
 * An expression that is not accepted: a message, `what` it is about, the position `at`, and what is `accepted`. As in
 * Python, white space before the expression does not count in positions; if there is no position, it is null.
 */
export class ExpressionError extends Error {
  constructor(what, at = null, accepted = "") {
    super(at === null ? what : `Not accepted in a reward expression: ${what}.`);
    Object.assign(this, { name: "ExpressionError", what, at, accepted });
  }
}

/** A checked expression; positions in its tree are those in `text`, which has no white space around it. */
class Expression {
  constructor(text, tree) {
    Object.assign(this, { text, tree });
  }

  /** The names used, without the functions called, in the order of the text. */
  get names() {
    return [...new Set(namesIn(this.tree).map((node) => node.id))];
  }

  toString() {
    return this.text;
  }
}

/** Read and check an expression; an ExpressionError points at the first part that is not accepted. */
export function parse(given) {
  const text = given.replace(SPACE_BEFORE, "").replace(SPACE_AFTER, "").replace(/\r\n?/g, "\n");
  const example = "Write one such as '(x > 0.6) * exp(-y)'.";
  if (!text) throw new ExpressionError(`The reward expression is empty. ${example}`, null, ACCEPTED);
  const { length } = [...text];
  if (length > MOST_CHARACTERS) {
    const most = `at most ${MOST_CHARACTERS} are accepted`;
    throw new ExpressionError(`The reward expression has ${length} characters; ${most}.`);
  }
  return located(ACCEPTED, () => {
    const unreadable = /[\0\p{Cs}]/u.exec(text);
    if (unreadable) throw new Problem(unreadable.index, `the character ${escaped(unreadable[0])}`);
    const tree = treeOf(text);
    check(tree, 0, text);
    return new Expression(text, tree);
  });
}

/** Raise an ExpressionError that points at the first name which is neither one of these names nor pi or e. */
export function checkNames(expression, names) {
  const known = new Map([...names, ...CONSTANTS.keys()].map((name) => [name.normalize("NFKC"), name]));
  const accepted = `Names accepted: ${[...known.values()].join(", ")}.`;
  located(accepted, () => {
    for (const { id, start } of namesIn(expression.tree)) {
      if (known.has(id)) continue;
      const hint = FUNCTIONS.has(id) ? " (it is a function, to be called)" : guess(id, known.values());
      throw new Problem(start, `the name '${id}' is not known${hint}`);
    }
  });
}

/** The values (n) of an expression for columns {name: Float64Array(n)}; an ExpressionError if one is not finite. */
export function evaluate(expression, columns, n) {
  const values = valuesOf(expression, columns, n);
  for (let i = 0; i < n; i++) {
    if (Math.abs(values[i]) <= LARGEST) continue;
    const used = expression.names.filter((name) => Object.hasOwn(columns, name));
    const place = used.map((name) => `${name} = ${pythonNumber(columns[name][i])}`).join(", ");
    const where = `in row ${i}${place && `, for ${place}`}; rewards must be finite, and at most 1e+30.`;
    throw new ExpressionError(`The reward ${expression.text} is ${pythonNumber(values[i])} ${where}`);
  }
  return values;
}

/** The values (n) of an expression, which may be NaN or infinite. */
export function valuesOf(expression, columns, n) {
  checkNames(expression, Object.keys(columns));
  const known = new Map(CONSTANTS);
  for (const [name, column] of Object.entries(columns)) {
    if (column.length !== n) throw new RangeError(`The column ${name} has ${column.length} values, not ${n}.`);
    known.set(name.normalize("NFKC"), column);
  }
  return located(ACCEPTED, () => {
    const value = compute(expression.tree, known);
    return typeof value === "number" ? new Float64Array(n).fill(value) : value.slice();
  });
}

/**
 * What the name before the caret may become: {from, options: [{label, kind}]}, with its beginning, and a kind of
 * feature, function or constant. Where no name has begun, but may, these are all names.
 */
export function complete(text, caret, names) {
  const [before] = /[\p{XID_Continue}.]*$/u.exec(text.slice(0, caret));
  const from = caret - before.length;
  const fits = before === "" ? mayBegin(text.slice(0, from)) : /^[\p{XID_Start}_][^.]*$/u.test(before);
  if (!fits || text.slice(0, from).split("\n").at(-1).includes("#")) return { from, options: [] };
  const kinds = new Map(names.map((label) => [label, "feature"]));
  for (const label of FUNCTIONS.keys()) if (!kinds.has(label)) kinds.set(label, "function");
  for (const label of CONSTANTS.keys()) if (!kinds.has(label)) kinds.set(label, "constant");
  const options = [...kinds].map(([label, kind]) => ({ label, kind }));
  return { from, options: options.filter(({ label }) => label.toLowerCase().startsWith(before.toLowerCase())) };
}

/** Whether an operand may follow this text. */
function mayBegin(text) {
  return /(?:^|[-+*\/%<>=(,]|\b(?:and|or|not))\s*$/.test(text);
}

/** What a function returns; a Problem becomes an ExpressionError. */
function located(accepted, of) {
  try {
    return of();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    throw new ExpressionError(error.message, error.at, accepted);
  }
}

/** Raise a Problem unless a node and all its descendants are accepted. */
function check(node, depth, text) {
  if (depth > DEEPEST) throw new Problem(node.start, `nesting deeper than ${DEEPEST} levels`);
  if (node.type === "call") checkCall(node, depth, text);
  else if (OPERATIONS.has(node.type)) checkOperation(node, depth, text);
  else if (node.type === "number") {
    if (node.value === Infinity) throw new Problem(node.start, "a number too large for floating point");
  } else if (node.type !== "name") throw new Problem(node.first ? after(text, node.first) : node.start, words(node));
}

function checkOperation(node, depth, text) {
  const { operators, operands } = partsOf(node);
  operators.forEach((operator, i) => {
    const refused = REFUSED_OPERATORS.get(operator);
    if (refused) throw new Problem(node.type === "unary" ? node.start : after(text, operands[i]), refused);
  });
  for (const operand of operands) check(operand, depth + 1, text);
  operators.forEach((operator, i) => {
    const exponent = operands[i + 1];
    if (operator === "**" && !namesIn(exponent).length) checkExponent(compute(exponent, new Map()), exponent);
  });
}

function checkCall(node, depth, text) {
  const { called, given, keywords, start } = node;
  if (called.type !== "name") {
    check(called, depth + 1, text); // the error may be in the called expression, as in x.sum()
    throw new Problem(start, "a call of something that is not a function: write * for a product");
  }
  const name = called.id;
  const hint = guess(name, FUNCTIONS.keys());
  if (!FUNCTIONS.has(name)) throw new Problem(start, `the function '${name}' is not known${hint}`);
  const inOrder = "a function called with a keyword: give its arguments in order";
  if (keywords.length) throw new Problem(keywords[0].start, inOrder);
  for (const argument of given) check(argument, depth + 1, text);
  const { least, most } = FUNCTIONS.get(name);
  if (given.length >= least && given.length <= most) return;
  const takes = least === most ? `${least}` : `${least} or more`;
  throw new Problem(start, `${name} called with ${given.length} arguments; it takes ${takes}`);
}

/** The names in the order of the text, without called functions. */
function namesIn(node) {
  if (node.type === "name") return [node];
  if (node.type === "call") return node.given.flatMap(namesIn);
  return node.type === "number" ? [] : partsOf(node).operands.flatMap(namesIn);
}

/** The position of the next token after a node and its closing brackets. */
function after(text, node) {
  return node.end + /^[ \t\f\n\\)]*/.exec(text.slice(node.end))[0].length;
}

/** A description of a node that is not accepted. */
function words({ type, name }) {
  if (type !== "attribute") return REFUSED.get(type) ?? `a ${type}`;
  const alone = FUNCTIONS.has(name) || CONSTANTS.has(name);
  return `attribute access (.${name})${alone ? `: write ${name} alone` : ""}`;
}

/** A character that cannot be shown, as Python's ascii() writes it. */
function escaped(character) {
  const code = character.charCodeAt(0).toString(16);
  return code.length > 2 ? `'\\u${code}'` : `'\\x${code.padStart(2, "0")}'`;
}
