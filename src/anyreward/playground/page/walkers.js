// Agents that follow the policy in a maze or the continuous maze, from where the user put them.

import { path, worldOf } from "./world.js";

const EVERY = 130;
const MOST = 8;
const TRAIL = 14;
const LONGEST = 80;
const RESTING = 12;

export class Walkers {
  constructor(engine, page, draw) {
    Object.assign(this, { engine, page, draw });
    this.world = worldOf(engine.scene);
    this.all = [];
    this.add(this.first());
    this.untouched = true;
    this.timer = setInterval(() => document.hidden || this.tick(), EVERY);
  }

  stop() {
    clearInterval(this.timer);
  }

  first() {
    const { scene } = this.engine;
    if (scene.kind === "square") return [0.1, 0.9];
    for (let i = 0; ; i++) {
      const at = [i % scene.grid.width, Math.floor(i / scene.grid.width)];
      if (this.world.free(...at)) return at;
    }
  }

  /** A new agent; the first one of the user replaces the one at the beginning, and the oldest of too many goes. */
  add(place) {
    const at = this.world.state(...place);
    if (!at) return;
    if (this.untouched) this.all = [];
    this.untouched = false;
    this.all.push({ start: at, at, trail: [at], steps: 0, rested: 0 });
    if (this.all.length > MOST) this.all.shift();
  }

  /** One step of every agent. */
  async tick() {
    const { engine, page } = this;
    if (this.stepping || !page.answer || !this.all.length || page.engine !== engine) return;
    this.stepping = true;
    const { task, answer, all } = { ...page, all: this.all };
    try {
      const actions = await engine.acts(task, all.map(({ at }) => at), answer, page.drawing);
      all.forEach((walker, k) => this.step(walker, actions[k]));
      this.draw();
    } catch {
      // the next answer says what is wrong
    }
    this.stepping = false;
  }

  step(walker, action) {
    const done = walker.steps >= LONGEST || walker.rested >= RESTING;
    if (done) {
      Object.assign(walker, { at: walker.start, trail: [walker.start], steps: 0, rested: 0 });
      return;
    }
    const known = action !== 255 && action !== null && action !== undefined;
    const next = this.world.step(walker.at, known ? action : Math.floor(Math.random() * 5));
    const apart = Math.hypot(next[0] - walker.at[0], next[1] - walker.at[1]);
    walker.rested = apart < 0.045 ? walker.rested + 1 : 0;
    walker.at = next;
    walker.steps++;
    walker.trail.push(next);
    if (walker.trail.length > TRAIL) walker.trail.shift();
  }

  /** The way of the last agent from its start, by the actions on the grid and without noise. */
  path(actions) {
    const walker = this.all[this.all.length - 1];
    if (!walker || !actions) return null;
    const { width, height } = this.engine.scene.grid;
    const [ax, ay] = this.engine.scene.axes;
    const act = ([x, y]) => {
      const i = Math.round(((x - ax.low) / (ax.high - ax.low)) * (width - 1));
      const j = Math.round(((y - ay.low) / (ay.high - ay.low)) * (height - 1));
      const a = actions[j * width + i];
      return a === 255 ? null : a;
    };
    return path(this.world, walker.start, act, LONGEST);
  }
}
