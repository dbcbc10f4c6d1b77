// Tasks to begin with, made for the world at hand, and a few that fail.

import { forbidding, minus, rounded } from "./task.js";
import { worldOf } from "./world.js";

/** [{name, fails, make() -> a task}] for a scene; an empty list where nothing is known of the world. */
export function presetsOf(scene) {
  if (scene.kind === "maze") return mazePresets(scene);
  if (scene.kind === "square") return squarePresets();
  if (scene.kind === "pendulum") return pendulumPresets();
  if (scene.kind === "plane") return planePresets(scene);
  return [];
}

function task({ goals = [], expressions = [] }) {
  return {
    paint: {},
    goals: goals.map(([at, weight]) => ({ at, weight })),
    expressions: expressions.map((text) => ({ text, weight: 1 })),
    demonstrations: [],
  };
}

/** Free cells of a maze far apart from each other, and the steps between all of them and the first. */
function corners(scene) {
  const world = worldOf(scene);
  const cells = [];
  for (let y = 0; y < scene.grid.height; y++) for (let x = 0; x < scene.grid.width; x++) if (world.free(x, y)) cells.push([x, y]);
  const far = [cells[0]];
  let apart = steps(world, cells[0]);
  while (far.length < 4 && far.length < cells.length) {
    const next = cells.reduce((a, b) => ((apart.get(String(b)) ?? -1) > (apart.get(String(a)) ?? -1) ? b : a));
    far.push(next);
    const others = steps(world, next);
    for (const [key, n] of apart) apart.set(key, Math.min(n, others.get(key) ?? Infinity));
  }
  return { world, cells, far };
}

function steps(world, start) {
  const found = new Map([[String(start), 0]]);
  const queue = [start];
  for (let at = queue.shift(); at; at = queue.shift()) {
    for (let a = 0; a < 4; a++) {
      const next = world.step(at, a);
      if (!found.has(String(next))) {
        found.set(String(next), found.get(String(at)) + 1);
        queue.push(next);
      }
    }
  }
  return found;
}

/** Free cells on shortest ways between two cells, without both ends. */
function between(world, a, b) {
  const [fromA, fromB] = [steps(world, a), steps(world, b)];
  const total = fromA.get(String(b));
  return [...fromA.keys()].filter((key) => fromA.get(key) + fromB.get(key) === total && fromA.get(key) > 0 && fromB.get(key) > 0).map((key) => key.split(",").map(Number));
}

function mazePresets(scene) {
  const { world, far } = corners(scene);
  const [a, b, c] = [far[0], far[1 % far.length], far[2 % far.length]];
  const onWay = between(world, a, b);
  const middle = onWay[Math.floor(onWay.length / 2)] ?? a;
  const around = [0, 1, 2, 3].map((move) => world.step(middle, move)).filter((at) => String(at) !== String(middle));
  const forbidden = [middle, ...around].filter((at) => String(at) !== String(b));
  const near = between(world, middle, c)[1] ?? middle;
  return [
    { name: "a goal", make: () => task({ goals: [[b, 1]] }) },
    { name: "a goal and a forbidden region", make: () => task({ goals: [[b, 1], ...forbidden.map((at) => [at, forbidding(scene)])] }) },
    { name: "the nearest of two goals", make: () => task({ goals: [[b, 1], [c, 1]] }) },
    { name: "a small reward near, a large one far", make: () => task({ goals: [[near, 0.3], [b, 1]] }) },
    { name: "-distance to a goal", make: () => task({ expressions: [`-hypot(x - ${b[0]}, y - ${b[1]})`] }) },
    { name: "checkerboard (fails where d is small)", fails: true, make: () => task({ expressions: ["1 - 2 * ((x + y) % 2)"] }) },
    { name: "first one goal, then the other (stays at one: a reward of states cannot say 'then')", fails: true, make: () => task({ goals: [[c, 1], [b, 1]] }) },
    { name: "a reward inside of the walls (never visited: zero)", fails: true, make: () => task({ expressions: ["(x < 0) * 5"] }) },
  ];
}

function squarePresets() {
  return [
    { name: "a goal", make: () => task({ goals: [[[0.9, 0.1], 1]] }) },
    { name: "a goal and a forbidden region", make: () => task({ goals: [[[0.9, 0.1], 1]], expressions: ["-2 * (hypot(x - 0.5, y - 0.35) < 0.15)"] }) },
    { name: "the nearest of two goals", make: () => task({ goals: [[[0.1, 0.1], 1], [[0.9, 0.9], 1]] }) },
    { name: "a small reward near, a large one far", make: () => task({ goals: [[[0.4, 0.8], 0.3], [[0.9, 0.1], 1]] }) },
    { name: "-distance to a goal", make: () => task({ expressions: ["-hypot(x - 0.85, y - 0.85)"] }) },
    { name: "a ring", make: () => task({ expressions: ["exp(-((hypot(x - 0.5, y - 0.5) - 0.3) / 0.05)**2)"] }) },
    { name: "stripes (fails: finer than B can tell apart)", fails: true, make: () => task({ expressions: ["sin(120 * x) * sin(120 * y)"] }) },
    { name: "first one goal, then the other (stays at one: a reward of states cannot say 'then')", fails: true, make: () => task({ goals: [[[0.1, 0.1], 1], [[0.9, 0.9], 1]] }) },
    { name: "a reward outside of the square (never visited: zero)", fails: true, make: () => task({ expressions: ["(x > 2) * 5"] }) },
  ];
}

function pendulumPresets() {
  return [
    { name: "swing up and stand", make: () => task({ expressions: ["-(arctan2(f1, f0)**2 + 0.1 * f2**2)"] }) },
    { name: "a goal: upright, at rest", make: () => task({ goals: [[[0, 0], 1]] }) },
    { name: "turn as fast as possible, anticlockwise", make: () => task({ expressions: ["f2"] }) },
    { name: "turn clockwise at a speed of 5", make: () => task({ expressions: ["-(f2 + 5)**2"] }) },
    { name: "swing, but never above the axle", make: () => task({ expressions: ["abs(f1) - 5 * (f0 > 0)"] }) },
    { name: "stay horizontal (fails: the motor is too weak to hold the rod there)", fails: true, make: () => task({ goals: [[[1.57, 0], 1]] }) },
    { name: "faster than it can turn (never visited: zero)", fails: true, make: () => task({ expressions: ["(f2 > 20) * 5"] }) },
  ];
}

function planePresets(scene) {
  const [u, v] = scene.axes;
  const at = (axis, share) => rounded(axis.low + share * (axis.high - axis.low), axis);
  const middle = `(${minus(u.name, at(u, 0.5))} / ${rounded(0.1 * (u.high - u.low), u) || 1})**2`;
  return [
    { name: "a goal", make: () => task({ goals: [[[at(u, 0.8), at(v, 0.5)], 1]] }) },
    { name: "stay in the middle", make: () => task({ expressions: [`exp(-${middle})`] }) },
    { name: `large ${v.name}`, make: () => task({ expressions: [v.name] }) },
    { name: `small ${u.name}`, make: () => task({ expressions: [`-${u.name}`] }) },
    { name: "far outside of what was visited (zero)", fails: true, make: () => task({ expressions: [`(${u.name} > ${at(u, 20)}) * 5`] }) },
  ];
}
