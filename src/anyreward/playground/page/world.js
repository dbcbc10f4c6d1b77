// Mazes and the continuous maze, stepped in the page.

const MOVES = [[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]];
const STEP = 0.1;
const NOISE = 0.01;

/** The world of a scene that agents can walk in; null for other worlds. */
export function worldOf(scene) {
  if (scene.kind === "maze") return new MazeWorld(scene);
  if (scene.kind === "square") return new SquareWorld(scene);
  return null;
}

class MazeWorld {
  constructor(scene) {
    this.lines = scene.drawing.split("\n");
    this.width = scene.grid.width;
    this.height = scene.grid.height;
  }

  free(x, y) {
    return x >= 0 && y >= 0 && x < this.width && y < this.height && this.lines[y][x] !== "#";
  }

  /** The nearest state to a place, or null where there is none. */
  state(x, y) {
    const at = [Math.round(x), Math.round(y)];
    return this.free(...at) ? at : null;
  }

  step([x, y], action) {
    const next = [x + MOVES[action][0], y + MOVES[action][1]];
    return this.free(...next) ? next : [x, y];
  }

  /** The same without noise. */
  expected(at, action) {
    return this.step(at, action);
  }

  random() {
    for (;;) {
      const at = [Math.floor(Math.random() * this.width), Math.floor(Math.random() * this.height)];
      if (this.free(...at)) return at;
    }
  }
}

class SquareWorld {
  constructor(scene) {
    this.walls = scene.walls;
  }

  state(x, y) {
    return x >= 0 && y >= 0 && x <= 1 && y <= 1 ? [x, y] : null;
  }

  step(at, action) {
    return this.moved(at, action, normal() * NOISE, normal() * NOISE);
  }

  /** A typical move: where a wall is in the way of the middle one, noise may lead past it. */
  expected(at, action) {
    for (const [dx, dy] of [[0, 0], [0, -NOISE], [0, NOISE], [-NOISE, 0], [NOISE, 0]]) {
      const next = this.moved(at, action, dx, dy);
      if (next[0] !== at[0] || next[1] !== at[1]) return next;
    }
    return at;
  }

  moved([x, y], action, dx, dy) {
    const clip = (v) => Math.min(Math.max(v, 0), 1);
    const next = [clip(x + STEP * MOVES[action][0] + dx), clip(y - STEP * MOVES[action][1] + dy)];
    return this.walls.some((wall) => crosses([x, y], next, wall)) ? [x, y] : next;
  }

  random() {
    return [Math.random(), Math.random()];
  }
}

function crosses([x, y], [nx, ny], [x0, y0, x1, y1]) {
  const path = [nx - x, ny - y];
  const wall = [x1 - x0, y1 - y0];
  const offset = [x0 - x, y0 - y];
  const cross = (a, b) => a[0] * b[1] - a[1] * b[0];
  const size = cross(path, wall);
  if (size === 0) return false;
  const t = cross(offset, wall) / size;
  const u = cross(offset, path) / size;
  return t > 0 && t <= 1 && u >= 0 && u <= 1;
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

/** The greedy path from a place: follows actions, given by act(place), without noise. */
export function path(world, start, act, steps) {
  const way = [start];
  for (let i = 0; i < steps; i++) {
    const at = way[way.length - 1];
    const action = act(at);
    if (action === null || action === undefined) break;
    const next = world.expected(at, action);
    if (next[0] === at[0] && next[1] === at[1]) break;
    way.push(next);
  }
  return way;
}
