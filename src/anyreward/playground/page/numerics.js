// The values of expressions: as NumPy computes them in float64. Constants stay numbers, features are Float64Arrays.

import { Problem } from "./tokens.js";

const LARGEST_EXPONENT = 100;
const WHOLE = 2 ** 52; // numbers from here on have no fraction

const OPERATORS = new Map([
  ["+", (a, b) => a + b],
  ["-", (a, b) => a - b],
  ["*", (a, b) => a * b],
  ["/", (a, b) => a / b],
  ["//", floorDivide],
  ["%", remainder],
  ["**", (a, b) => (a === 1 ? 1 : a ** b)], // 1 ** NaN is 1
  ["<", (a, b) => (a < b ? 1 : 0)],
  ["<=", (a, b) => (a <= b ? 1 : 0)],
  [">", (a, b) => (a > b ? 1 : 0)],
  [">=", (a, b) => (a >= b ? 1 : 0)],
  ["==", (a, b) => (a === b ? 1 : 0)],
  ["!=", (a, b) => (a !== b ? 1 : 0)],
  ["and", (a, b) => (a !== 0 && b !== 0 ? 1 : 0)],
  ["or", (a, b) => (a !== 0 || b !== 0 ? 1 : 0)],
]);
const PREFIXES = new Map([
  ["+", (a) => a],
  ["-", (a) => -a],
  ["not", (a) => (a === 0 ? 1 : 0)],
]);
const ONE_ARGUMENT = {
  abs: Math.abs,
  sqrt: Math.sqrt,
  exp: Math.exp,
  log: Math.log,
  log1p: Math.log1p,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  tanh: Math.tanh,
  sign: (a) => (a > 0 ? 1 : a < 0 ? -1 : a === 0 ? 0 : NaN),
  floor: Math.floor,
  ceil: Math.ceil,
  round,
};

/** The functions by name: {of, least, most}, with the smallest and largest number of arguments. */
export const FUNCTIONS = new Map([
  ...Object.entries(ONE_ARGUMENT).map(([name, of]) => [name, { of: (a) => each(of, a), least: 1, most: 1 }]),
  ["arctan2", { of: (a, b) => pairs(Math.atan2, a, b), least: 2, most: 2 }],
  ["hypot", { of: (a, b) => pairs(Math.hypot, a, b), least: 2, most: 2 }],
  ["min", { of: (...values) => values.reduce((a, b) => pairs(smaller, a, b)), least: 2, most: Infinity }],
  ["max", { of: (...values) => values.reduce((a, b) => pairs(larger, a, b)), least: 2, most: Infinity }],
  ["clip", { of: (a, low, high) => pairs(smaller, pairs(larger, a, low), high), least: 3, most: 3 }],
  ["where", { of: where, least: 3, most: 3 }],
]);

/** The value of a checked node for columns by name: a number, or an array, which may be a column itself. */
export function compute(node, columns) {
  const of = (part) => compute(part, columns);
  if (node.type === "number") return node.value;
  if (node.type === "name") return columns.get(node.id);
  if (node.type === "call") return FUNCTIONS.get(node.called.id).of(...node.given.map(of));
  const { operators, operands } = partsOf(node);
  if (node.type === "unary") return each(PREFIXES.get(operators[0]), of(operands[0]));
  if (node.type === "joined") return operands.map(of).reduce((a, b) => pairs(OPERATORS.get(operators[0]), a, b));
  if (node.type === "compared") return compared(operators, operands.map(of));
  return operators.reduce((left, operator, i) => {
    const right = of(operands[i + 1]);
    if (operator === "**") return power(left, right, operands[i + 1]);
    return pairs(OPERATORS.get(operator), left, right);
  }, of(operands[0]));
}

/** Raise a Problem at the node of an exponent if a value is too large. */
export function checkExponent(value, node) {
  const large = (typeof value === "number" ? [value] : value).find((number) => Math.abs(number) > LARGEST_EXPONENT);
  if (large === undefined) return;
  const limits = `exponents are from -${LARGEST_EXPONENT} to ${LARGEST_EXPONENT}`;
  throw new Problem(node.start, `the exponent ${pythonNumber(large)}; ${limits}`);
}

/** The operators and operands of a node; a + b - c counts as one node, so that long sums are not nested deeply. */
export function partsOf(node) {
  if (node.type === "unary") return { operators: [node.operator], operands: [node.operand] };
  if (node.type === "joined") return { operators: [node.operator], operands: node.operands };
  if (node.type === "compared") return node;
  const [operators, operands] = [[], []];
  let first = node;
  for (; first.type === "binary"; first = first.left) {
    operators.push(first.operator);
    operands.push(first.right);
  }
  return { operators: operators.reverse(), operands: [...operands, first].reverse() };
}

/** A number as Python writes it. */
export function pythonNumber(number) {
  if (Number.isNaN(number)) return "nan";
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  if (!Number.isFinite(number)) return `${sign}inf`;
  const [fraction, exponent] = Math.abs(number).toExponential().split("e"); // the shortest digits, as in Python
  const [digits, power] = [fraction.replace(".", ""), Number(exponent)];
  if (power < -4 || power >= 16) return `${sign}${fraction}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${digits}`;
  return `${sign}${digits.slice(0, power + 1).padEnd(power + 1, "0")}.${digits.slice(power + 1) || "0"}`;
}

function each(of, a) {
  if (typeof a === "number") return of(a);
  const result = new Float64Array(a.length);
  for (let i = 0; i < a.length; i++) result[i] = of(a[i]);
  return result;
}

function pairs(of, a, b) {
  if (typeof b === "number") return each((x) => of(x, b), a);
  if (typeof a === "number") return each((x) => of(a, x), b);
  const result = new Float64Array(a.length);
  for (let i = 0; i < a.length; i++) result[i] = of(a[i], b[i]);
  return result;
}

function where(condition, a, b) {
  if (typeof condition === "number" && typeof a === "number" && typeof b === "number") return condition !== 0 ? a : b;
  const { length } = [condition, a, b].find((value) => typeof value !== "number");
  const result = new Float64Array(length);
  for (let i = 0; i < length; i++) {
    const chosen = (typeof condition === "number" ? condition : condition[i]) !== 0 ? a : b;
    result[i] = typeof chosen === "number" ? chosen : chosen[i];
  }
  return result;
}

/** 1 where all of a < b < c hold, else 0. */
function compared(operators, sides) {
  const held = operators.map((operator, i) => pairs(OPERATORS.get(operator), sides[i], sides[i + 1]));
  return held.reduce((a, b) => pairs((x, y) => x * y, a, b));
}

function power(left, right, node) {
  checkExponent(right, node);
  return right === 2 ? each((x) => x * x, left) : pairs(OPERATORS.get("**"), left, right);
}

/** The smaller number, or NaN; of two zeros the second. */
function smaller(a, b) {
  return a < b || a !== a ? a : b;
}

function larger(a, b) {
  return a > b || a !== a ? a : b;
}

/** The nearest whole number; of two the even one. */
function round(a) {
  if (!(Math.abs(a) < WHOLE)) return a;
  const whole = a < 0 ? -WHOLE : WHOLE; // the sum is rounded, halves to even
  return a + whole - whole || a * 0; // -0 of small negative numbers
}

function remainder(a, b) {
  const rest = a % b;
  if (rest === 0) return b < 0 ? -0 : 0;
  return b !== 0 && (rest < 0) !== (b < 0) ? rest + b : rest;
}

function floorDivide(a, b) {
  if (b === 0) return a / b;
  const rest = a % b;
  const quotient = (a - rest) / b - (rest !== 0 && (rest < 0) !== (b < 0) ? 1 : 0);
  if (quotient === 0) return (a / b) * 0;
  const whole = Math.floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}
