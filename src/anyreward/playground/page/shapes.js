// Arrows, dots, stars and crosses on a canvas.

import { VERMILION } from "./colours.js";

/** An arrow around (x, y) in a direction of length 1. */
export function arrow(context, x, y, [dx, dy], size) {
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

/** A filled circle with a rim. */
export function dot(context, x, y, radius, fill, line = "rgba(0,0,0,0.7)") {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
  [context.strokeStyle, context.lineWidth] = [line, 1.2];
  context.stroke();
}

/** White text with a dark rim, that can be read on any colour. */
export function outlined(context, text, x, y) {
  [context.strokeStyle, context.lineWidth, context.fillStyle] = ["rgba(0,0,0,0.7)", 3, "#ffffff"];
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}

/** A star, for a goal. */
export function star(context, x, y, size) {
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

/** A cross, for a forbidden place. */
export function cross(context, x, y, size) {
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
