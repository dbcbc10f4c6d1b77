// A task as a Python program and as a shell command. Each, run in a new process, gives the same z.

import { parse } from "./expression.js";
import { pythonNumber } from "./numerics.js";

const WIDEST = 100;
const NO_REWARD = "# There is no reward yet: set a goal, paint, or write an expression.\n";
const TOO_LONG = "# An expression is too long for the command line, where its weight is part of it. Use Python.\n";

/** A Python program that asks the agent of a scene for the sum of the terms, and prints what can be expected of it. */
export function asPython(scene, terms) {
  const program = new Program(scene);
  const reward = program.sum(terms.filter(counts));
  if (!reward) return NO_REWARD;
  return [
    ...(program.arrays ? ["import numpy as np"] : []),
    "import anyreward as ar",
    "",
    `agent = ar.Agent.load(${quoted(folder(scene))})`,
    ...program.lines,
    `reward = ${reward}`,
    "policy = agent.ask(reward)",
    "print(policy.trust)",
    "",
  ].join("\n");
}

/** A shell command that asks for the same; demonstrations are written to files first. */
export function asCommand(scene, terms) {
  const given = { goal: [], reward: [], painted: [], demonstration: [] };
  const files = [];
  for (const { kind, weight, ...term } of terms.filter(counts)) {
    const size = weight === 1 ? "" : `:${number(weight)}`;
    if (kind === "goal") given.goal.push(`${term.at.map(number).join(",")}${size}`);
    else if (kind === "expression") {
      const text = weighted(term.text.trim(), weight);
      if (!isAccepted(text)) return TOO_LONG;
      given.reward.push(argument(text));
    } else if (kind === "paint") given.painted.push(`${paintedJson(scene, term.runs)}${size}`);
    else {
      const file = `demonstration${files.length ? files.length + 1 : ""}.npz`;
      files.push(`import numpy as np; np.savez("${file}", observations=${observations(scene, term.states)})`);
      given.demonstration.push(`${file}${size}`);
    }
  }
  const options = Object.entries(given).filter(([, values]) => values.length);
  if (!options.length) return NO_REWARD;
  const asked = options.map(([name, values]) => ` --${name} ${values.map(shell).join(" ")}`).join("");
  const ask = `anyreward ask ${shell(folder(scene))}${asked}`;
  return `${[...files.map((code) => `python -c ${shell(code)}`), ask].join(" && \\\n")}\n`;
}

/** Where the agent is: a folder, or an agent that comes with the package. */
function folder({ run, shipped }) {
  return shipped ? `shipped:${shipped}` : run.replace(/^-/, "./-");
}

/** The lines before the reward, and the reward, of a program. */
class Program {
  constructor(scene) {
    Object.assign(this, { scene, lines: [], paints: 0, arrays: false });
  }

  sum(terms) {
    const parts = terms.map((term, i) => {
      const size = Math.abs(term.weight) === 1 ? "" : `${number(Math.abs(term.weight))} * `;
      const sign = i ? (term.weight < 0 ? "- " : "+ ") : term.weight < 0 ? "-" : "";
      return `${sign}${size}${this.term(term)}`;
    });
    const line = parts.join(" ");
    return parts.length < 2 || line.length <= WIDEST ? line : `(\n    ${parts.join("\n    ")}\n)`;
  }

  term(term) {
    if (term.kind === "goal") return `ar.goal(${term.at.map(number).join(", ")})`;
    if (term.kind === "expression") return `ar.reward(${quoted(term.text)})`;
    if (term.kind === "paint") return this.paint(term.runs);
    const states = observations(this.scene, term.states);
    this.arrays ||= states.startsWith("np.");
    return `ar.demonstration(${states})`;
  }

  /** Lines that make an array of painted values, and the reward of it. */
  paint(runs) {
    const { axes, grid } = this.scene;
    const name = `paint${this.paints++ ? this.paints : ""}`;
    this.arrays = true;
    this.lines.push(`${name} = np.zeros((${grid.height}, ${grid.width}))`);
    for (const { row, from, values } of rowRuns(runs, grid.width)) {
      const columns = values.length > 1 ? `${from}:${from + values.length}` : from;
      const same = values.every((value) => value === values[0]);
      this.lines.push(`${name}[${row}, ${columns}] = ${same ? number(values[0]) : listed(values)}`);
    }
    const [low, high] = ["low", "high"].map((end) => `(${axes.map((axis) => number(axis[end])).join(", ")})`);
    const features = `(${axes.map((axis) => quoted(axis.name)).join(", ")})`;
    return `ar.painted(${name}, low=${low}, high=${high}, features=${features})`;
  }
}

/** Whether a term has any reward. */
function counts({ kind, weight, runs, states }) {
  if (weight === 0) return false;
  if (kind === "paint") return runs.some(([, ...values]) => values.some((value) => value !== 0));
  return kind !== "demonstration" || states.length > 0;
}

/** Runs of values over a whole grid as pieces of single rows. */
function rowRuns(runs, width) {
  return runs.flatMap(([first, ...values]) => {
    const pieces = [];
    for (let i = 0; i < values.length; ) {
      const [row, from] = [Math.floor((first + i) / width), (first + i) % width];
      const piece = values.slice(i, i + width - from);
      pieces.push({ row, from, values: piece });
      i += piece.length;
    }
    return pieces;
  });
}

function paintedJson({ axes, grid }, runs) {
  const [low, high] = ["low", "high"].map((end) => listed(axes.map((axis) => axis[end])));
  const features = JSON.stringify(axes.map((axis) => axis.name)).replaceAll('","', '", "');
  const where = `"features": ${features}, "low": ${low}, "high": ${high}`;
  return `{${where}, "shape": [${grid.height}, ${grid.width}], "runs": [${runs.map(listed).join(", ")}]}`;
}

/** The observations of a demonstration: the numbers of cells in a maze, else an array. */
function observations(scene, states) {
  if (scene.kind !== "maze") return `np.array([${states.map(listed).join(", ")}], dtype=np.float32)`;
  return listed(states.map(([x, y]) => Math.round(y) * scene.grid.width + Math.round(x)));
}

/** An expression times a number; a remark at its end must not swallow the bracket. */
function weighted(text, weight) {
  const end = text.includes("#") ? "\n" : "";
  return weight === 1 ? text : `${number(weight)} * (${text}${end})`;
}

/** Whether an expression is accepted with its weight too: it may be at the limit of length or of depth. */
function isAccepted(text) {
  try {
    return Boolean(parse(text));
  } catch {
    return false;
  }
}

/** An argument that is not taken for an option: space before an expression does not matter. */
function argument(text) {
  return text.startsWith("-") ? ` ${text}` : text;
}

/** The shortest text of a number that both Python and JSON read as the same number. */
function number(value) {
  return Object.is(value, -0) ? "-0.0" : pythonNumber(value).replace(/\.0$/, "");
}

function listed(values) {
  return `[${values.map(number).join(", ")}]`;
}

/** A text as a literal of Python: the escapes of JSON are among those of Python. */
function quoted(text) {
  return JSON.stringify(text);
}

/** A text as one word of a shell. */
function shell(text) {
  return /^[\w@%+:,.\/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
