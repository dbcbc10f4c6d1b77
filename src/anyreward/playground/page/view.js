// Drawing of a world on a canvas: values, actions, rewards, agents.

import { range } from "./arrays.js";
import { pieces, pushAt } from "./coordinates.js";

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const WALL = [59, 59, 59];
export const ORANGE = "#e69f00";
const VERMILION = "#d55e00";
const PURPLE = "#cc79a7";
export const WALKERS = ["#e69f00", "#ffffff", "#cc79a7", "#56b4e9", "#f0e442", "#d55e00", "#009e73", "#999999"];
const DIRECTIONS = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1], "+x": [1, 0], "-x": [-1, 0], "+y": [0, -1], "-y": [0, 1] };
const MARGIN = 34;
const STILL = 0.02;

const TABLE = (() => {
  const colours = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (VIRIDIS.length - 1);
    const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
    for (let c = 0; c < 3; c++) {
      const [a, b] = [low, low + 1].map((k) => parseInt(VIRIDIS[k].slice(1 + 2 * c, 3 + 2 * c), 16));
      colours[3 * i + c] = a + (at - low) * (b - a);
    }
  }
  return colours;
})();

/** The colour scale, drawn into a small canvas. */
export function drawScale(canvas) {
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    const i = Math.round((x / (canvas.width - 1)) * 255) * 3;
    context.fillStyle = `rgb(${TABLE[i]},${TABLE[i + 1]},${TABLE[i + 2]})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
}

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
    const [left, top] = [stride, tall].map((each) => (this.cells ? 0 : Math.floor(each / 2))); // none is cut off at the edge
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
    if (way) this.arrow(x, y, way, size);
    else if (/^(stay|coast|no|idle)/.test(name)) this.dot(x, y, Math.max(size * 0.3, 2), "#ffffff");
    else {
      context.font = `${Math.max(9, size)}px system-ui`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      this.outlined(name.length <= 2 ? name : String(number), x, y);
    }
  }

  /** An action of a box of one or two numbers, from -1 to 1: an arrow as long as it is large, a dot for none. */
  push(x, y, push, size) {
    if (!push || push.length > 2) return;
    const [u, v] = push.length === 2 ? [push[0], -push[1]] : this.scene.kind === "pendulum" ? [0, -push[0]] : [push[0], 0];
    const strength = Math.min(Math.hypot(u, v), 1);
    if (strength < STILL) this.dot(x, y, Math.max(size * 0.25, 2), "#ffffff");
    else this.arrow(x, y, [u, v].map((side) => side / Math.hypot(u, v)), size * (0.3 + 0.7 * strength));
  }

  /** An arrow around (x, y) in a direction of length 1. */
  arrow(x, y, [dx, dy], size) {
    const { context } = this;
    const tip = [x + dx * size, y + dy * size];
    const side = (turn) => [tip[0] - (dx - turn * dy) * size * 0.6, tip[1] - (dy + turn * dx) * size * 0.6];
    const path = () => {
      context.beginPath();
      context.moveTo(x - dx * size, y - dy * size);
      context.lineTo(...tip);
      context.moveTo(...side(-1));
      context.lineTo(...tip);
      context.lineTo(...side(1));
      context.stroke();
    };
    context.lineCap = "round";
    [context.strokeStyle, context.lineWidth] = ["rgba(0,0,0,0.55)", 3.4];
    path();
    [context.strokeStyle, context.lineWidth] = ["#ffffff", 1.5];
    path();
  }

  dot(x, y, radius, fill, line = "rgba(0,0,0,0.7)") {
    const { context } = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = fill;
    context.fill();
    [context.strokeStyle, context.lineWidth] = [line, 1.2];
    context.stroke();
  }

  outlined(text, x, y) {
    const { context } = this;
    [context.strokeStyle, context.lineWidth, context.fillStyle] = ["rgba(0,0,0,0.7)", 3, "#ffffff"];
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
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
      if (weight >= 0) this.star(x, y, 11);
      else this.cross(x, y, 8);
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

  star(x, y, size) {
    const { context } = this;
    context.beginPath();
    for (let k = 0; k < 10; k++) {
      const angle = (k * Math.PI) / 5 - Math.PI / 2;
      const r = k % 2 ? size * 0.45 : size;
      context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
    }
    context.closePath();
    [context.fillStyle, context.strokeStyle, context.lineWidth] = ["#ffffff", "#000000", 1.4];
    context.fill();
    context.stroke();
  }

  cross(x, y, size) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    context.rotate(Math.PI / 4);
    [context.fillStyle, context.strokeStyle, context.lineWidth] = [VERMILION, "#000000", 1.4];
    context.beginPath();
    const [a, b] = [size * 0.4, size * 1.2];
    [[-a, -b], [a, -b], [a, -a], [b, -a], [b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a], [-b, -a], [-a, -a]].forEach(([u, v]) => context.lineTo(u, v));
    context.closePath();
    context.fill();
    context.stroke();
    context.restore();
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
      this.dot(x, y, this.cells ? Math.min(this.step * 0.28, 10) : 7, colour, "#000000");
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

/** The numbers of z as bars around zero. */
export function drawBars(canvas, z) {
  const dense = Math.min(window.devicePixelRatio || 1, 2);
  const [wide, tall] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = wide * dense;
  canvas.height = tall * dense;
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  if (!z || !z.length) return;
  const most = Math.max(...Array.from(z, Math.abs)) || 1;
  const each = wide / z.length;
  z.forEach((v, i) => {
    context.fillStyle = v >= 0 ? "#0072b2" : VERMILION;
    const size = (v / most) * (tall / 2 - 1);
    context.fillRect(i * each, size >= 0 ? tall / 2 - size : tall / 2, Math.max(each * 0.85, 0.6), Math.abs(size));
  });
  context.fillStyle = "rgba(128,128,128,0.8)";
  context.fillRect(0, tall / 2 - 0.5, wide, 1);
}
