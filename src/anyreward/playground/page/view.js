// Drawing of a world on a canvas: values, actions, rewards, agents.

import { range } from "./arrays.js";
import { ORANGE, PURPLE, TABLE, VERMILION, WALKERS } from "./colours.js";
import { pieces, pushAt } from "./coordinates.js";
import { arrow, cross, dot, outlined, star } from "./shapes.js";

const WALL = [59, 59, 59];
const DIRECTIONS = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1], "+x": [1, 0], "-x": [-1, 0], "+y": [0, -1], "-y": [0, 1] };
const MARGIN = 34;
const STILL = 0.02;

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.heat = document.createElement("canvas");
  }

  /** Show another scene; axes: the two features across and up, if not the scene's own. */
  show(scene, { axes = scene.axes, grid = scene.grid } = {}) {
    Object.assign(this, { scene, axes, grid, cells: scene.kind === "maze" });
    this.heat.width = grid.width;
    this.heat.height = grid.height;
    this.resize();
  }

  /** Fit the canvas to its place on the page. */
  resize() {
    if (!this.scene) return;
    const wide = Math.max(this.canvas.clientWidth, 100);
    const ratio = this.cells ? this.grid.height / this.grid.width : this.scene.kind === "screen" ? 210 / 160 : 1;
    const tall = Math.round(wide * Math.min(Math.max(ratio, 0.3), 1.4));
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    this.canvas.style.height = `${tall}px`;
    this.canvas.width = Math.round(wide * dense);
    this.canvas.height = Math.round(tall * dense);
    Object.assign(this, { wide, tall, dense });
    const pad = this.cells ? 0 : MARGIN;
    this.box = { left: pad, top: this.cells ? 0 : 8, width: wide - pad - (this.cells ? 0 : 10), height: tall - pad - (this.cells ? 0 : 8) };
  }

  /** Pixels of a place in grid units (column, row). */
  pixel([column, row]) {
    const { left, top, width, height } = this.box;
    const { width: w, height: h, up } = this.grid;
    if (this.cells) return [left + ((column + 0.5) * width) / w, top + ((row + 0.5) * height) / h];
    const v = row / (h - 1);
    return [left + (column / (w - 1)) * width, top + (up ? 1 - v : v) * height];
  }

  /** The place in grid units of pixels, within the grid. */
  place(px, py) {
    const { left, top, width, height } = this.box;
    const { width: w, height: h, up } = this.grid;
    const clip = (x, most) => Math.min(Math.max(x, 0), most);
    if (this.cells) return [clip(Math.floor(((px - left) / width) * w), w - 1), clip(Math.floor(((py - top) / height) * h), h - 1)];
    const v = (py - top) / height;
    return [clip(((px - left) / width) * (w - 1), w - 1), clip((up ? 1 - v : v) * (h - 1), h - 1)];
  }

  /** The values of the drawn features at a place in grid units, and back. */
  features([column, row]) {
    return [column, row].map((at, k) => {
      const axis = this.axes[k];
      const last = (k === 0 ? this.grid.width : this.grid.height) - 1;
      return axis.low + (at / Math.max(last, 1)) * (axis.high - axis.low);
    });
  }

  gridOf(features) {
    return this.axes.map((axis, k) => ((features[k] - axis.low) / (axis.high - axis.low)) * ((k === 0 ? this.grid.width : this.grid.height) - 1));
  }

  /** The size of a grid step in pixels. */
  get step() {
    const n = this.cells ? this.grid.width : this.grid.width - 1;
    return this.box.width / n;
  }

  draw(parts) {
    const { context, dense, wide, tall, box } = this;
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.clearRect(0, 0, wide, tall);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    if (parts.image) context.drawImage(parts.image, box.left, box.top, box.width, box.height);
    this.values(parts);
    this.walls();
    this.actions(parts);
    this.rewards(parts);
    for (const demonstration of parts.demonstrations ?? []) this.line(demonstration.map((at) => this.gridOf(at)), "#56b4e9", [5, 4]);
    if (parts.path) this.line(parts.path.map((at) => this.gridOf(at)), ORANGE);
    this.marks(parts);
    this.agents(parts);
    context.restore();
    if (!this.cells) this.frame();
  }

  values({ value, image }) {
    const { grid, heat, box } = this;
    const context = heat.getContext("2d");
    const picture = context.createImageData(grid.width, grid.height);
    const [low, high] = value ? range(value) : [0, 0];
    const span = high - low || 1;
    for (let j = 0; j < grid.height; j++) {
      for (let i = 0; i < grid.width; i++) {
        const v = value ? value[j * grid.width + i] : NaN;
        const at = 4 * ((grid.up ? grid.height - 1 - j : j) * grid.width + i);
        if (Number.isNaN(v)) {
          if (this.cells) picture.data.set([...(this.wall(i, j) ? WALL : [222, 226, 230]), 255], at);
          continue;
        }
        const c = 3 * Math.round(((v - low) / span) * 255);
        picture.data.set([TABLE[c], TABLE[c + 1], TABLE[c + 2], image ? 90 : 255], at);
      }
    }
    context.putImageData(picture, 0, 0);
    this.context.imageSmoothingEnabled = !this.cells && !this.axes.some((axis) => axis.whole);
    const [dx, dy] = this.cells ? [0, 0] : [box.width / (grid.width - 1) / 2, box.height / (grid.height - 1) / 2];
    this.context.drawImage(heat, box.left - dx, box.top - dy, box.width + 2 * dx, box.height + 2 * dy);
  }

  wall(i, j) {
    this.lines = this.linesOf === this.scene ? this.lines : this.scene.drawing.split("\n");
    this.linesOf = this.scene;
    return this.lines[j]?.[i] === "#";
  }

  walls() {
    const { context } = this;
    context.strokeStyle = "#3b3b3b";
    context.lineWidth = 5;
    context.lineCap = "round";
    for (const [x0, y0, x1, y1] of this.scene.walls ?? []) {
      context.beginPath();
      context.moveTo(...this.pixel(this.gridOf([x0, y0])));
      context.lineTo(...this.pixel(this.gridOf([x1, y1])));
      context.stroke();
    }
  }

  actions({ action, push, image }) {
    if (!(action || push) || image) return;
    const { grid, scene } = this;
    const stride = this.cells ? 1 : Math.max(1, Math.ceil(21 / this.step));
    const size = Math.min(this.step * stride * 0.3, 11) * (scene.kind === "plane" ? 0.8 : 1);
    const names = scene.actions.map((name) => name.toLowerCase());
    const tall = this.cells ? 1 : Math.max(1, Math.ceil(21 / (this.box.height / (grid.height - 1))));
    const steps = [this.step, this.box.height / (grid.height - 1)];
    // none is cut off at the edge
    const [left, top] = [stride, tall].map((each, k) => (this.cells ? 0 : Math.max(Math.floor(each / 2), Math.ceil((size + 2) / steps[k]))));
    for (let j = top; j < grid.height - top; j += tall) {
      for (let i = left; i < grid.width - left; i += stride) {
        const k = j * grid.width + i;
        const [x, y] = this.pixel([i, j]);
        if (scene.box) this.push(x, y, pushAt(scene, { action, push }, k), size);
        else if (action[k] !== 255) this.action(x, y, names[action[k]], action[k], size);
      }
    }
  }

  /** An action of a list: an arrow, if its name is a direction; a dot for staying; else its name or number. */
  action(x, y, name, number, size) {
    const { context } = this;
    const way = Object.entries(DIRECTIONS).find(([word]) => name.startsWith(word))?.[1];
    if (way) arrow(this.context, x, y, way, size);
    else if (/^(stay|coast|no|idle)/.test(name)) dot(this.context, x, y, Math.max(size * 0.3, 2), "#ffffff");
    else {
      context.font = `${Math.max(9, size)}px system-ui`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      outlined(this.context, name.length <= 2 ? name : String(number), x, y);
    }
  }

  /** An action of a box of one or two numbers, from -1 to 1: an arrow as long as it is large, a dot for none. */
  push(x, y, push, size) {
    if (!push || push.length > 2) return;
    const [u, v] = push.length === 2 ? [push[0], -push[1]] : this.scene.kind === "pendulum" ? [0, -push[0]] : [push[0], 0];
    const strength = Math.min(Math.hypot(u, v), 1);
    if (strength < STILL) dot(this.context, x, y, Math.max(size * 0.25, 2), "#ffffff");
    else arrow(this.context, x, y, [u, v].map((side) => side / Math.hypot(u, v)), size * (0.3 + 0.7 * strength));
  }

  rewards({ paint = {} }) {
    const { context, grid } = this;
    const most = Math.min(this.step * (this.cells ? 0.42 : 0.5), 16);
    for (const [index, value] of Object.entries(paint)) {
      const [x, y] = this.pixel([index % grid.width, Math.floor(index / grid.width)]);
      const size = Math.max(most * Math.sqrt(Math.abs(value)), 1.5);
      if (value > 0) {
        context.beginPath();
        context.arc(x, y, size, 0, 2 * Math.PI);
        [context.strokeStyle, context.lineWidth] = ["rgba(0,0,0,0.6)", this.cells ? 4 : 2.4];
        context.stroke();
        [context.strokeStyle, context.lineWidth] = ["#ffffff", this.cells ? 2.2 : 1.2];
        context.stroke();
      } else {
        for (const [colour, width] of [["rgba(0,0,0,0.7)", this.cells ? 4.5 : 2.6], [VERMILION, this.cells ? 2.6 : 1.5]]) {
          [context.strokeStyle, context.lineWidth] = [colour, width];
          context.beginPath();
          context.moveTo(x - size * 0.8, y - size * 0.8);
          context.lineTo(x + size * 0.8, y + size * 0.8);
          context.moveTo(x + size * 0.8, y - size * 0.8);
          context.lineTo(x - size * 0.8, y + size * 0.8);
          context.stroke();
        }
      }
    }
  }

  line(places, colour, dash = []) {
    if (places.length < 2) return;
    const { context } = this;
    for (const [style, width] of [["rgba(0,0,0,0.55)", 5], [colour, 2.8]]) {
      context.beginPath();
      places.forEach((at, i) => (i ? context.lineTo(...this.pixel(at)) : context.moveTo(...this.pixel(at))));
      context.setLineDash(dash);
      [context.strokeStyle, context.lineWidth, context.lineJoin] = [style, width, "round"];
      context.stroke();
      context.setLineDash([]);
    }
  }

  marks({ goals = [], landmark = null, cursor = null }) {
    const { context } = this;
    for (const { at, weight } of goals) {
      const [x, y] = this.pixel(this.gridOf(at));
      if (weight >= 0) star(this.context, x, y, 11);
      else cross(this.context, x, y, 8);
    }
    if (landmark) {
      const [x, y] = this.pixel(this.gridOf(landmark));
      context.beginPath();
      context.arc(x, y, 13, 0, 2 * Math.PI);
      [context.strokeStyle, context.lineWidth] = [PURPLE, 3.5];
      context.stroke();
    }
    if (cursor) {
      const [x, y] = this.pixel(cursor);
      const r = this.cells ? this.step / 2 - 1.5 : 8;
      [context.strokeStyle, context.lineWidth] = ["#ffffff", 2];
      context.setLineDash([4, 3]);
      context.strokeRect(x - r, y - r, 2 * r, 2 * r);
      context.setLineDash([]);
    }
  }

  agents({ walkers }) {
    (walkers ?? []).forEach((walker, k) => {
      const colour = WALKERS[k % WALKERS.length];
      if (walker.trail?.length > 1) {
        const { context } = this;
        context.beginPath();
        for (const piece of pieces(walker.trail, this.axes)) {
          piece.forEach((at, i) => (i ? context.lineTo(...this.pixel(this.gridOf(at))) : context.moveTo(...this.pixel(this.gridOf(at)))));
        }
        for (const [style, width] of [["rgba(0,0,0,0.45)", 3.2], [colour, 1.8]]) {
          [context.strokeStyle, context.lineWidth] = [style, width];
          context.stroke();
        }
      }
      const [x, y] = this.pixel(this.gridOf(walker.at));
      dot(this.context, x, y, this.cells ? Math.min(this.step * 0.28, 10) : 7, colour, "#000000");
    });
  }

  /** The axes of worlds of numbers, with their names and ends. */
  frame() {
    const { context, box, axes, grid } = this;
    context.strokeStyle = context.fillStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 1;
    context.strokeRect(box.left, box.top, box.width, box.height);
    context.font = "12px system-ui, sans-serif";
    const [across, along] = axes;
    const shown = ({ turns }, x) => (turns ? `${x < 0 ? "-" : ""}π` : String(Number(x.toPrecision(3))));
    const name = ({ label, name }) => label ?? name;
    const below = box.top + box.height + 5;
    context.textBaseline = "top";
    [[shown(across, across.low), 0, "left"], [name(across), 0.5, "center"], [shown(across, across.high), 1, "right"]].forEach(([text, at, align]) => {
      context.textAlign = align;
      context.fillText(text, box.left + at * box.width, below);
    });
    context.save();
    context.translate(box.left - 6, box.top + box.height);
    context.rotate(-Math.PI / 2);
    context.textBaseline = "bottom";
    const ends = grid.up ? [along.low, along.high] : [along.high, along.low];
    [[shown(along, ends[0]), 0, "left"], [name(along), 0.5, "center"], [shown(along, ends[1]), 1, "right"]].forEach(([text, at, align]) => {
      context.textAlign = align;
      context.fillText(text, at * box.height, 0);
    });
    context.restore();
  }
}
