// The pendulum as a picture: a rod that is upright at the angle 0, and an arrow for the torque.

import { ORANGE } from "./colours.js";
import { dot } from "./shapes.js";

const ROD = "#0072b2";
const RIM = "rgba(0,0,0,0.65)";

/** Draw the rod at an angle, anticlockwise from upright, and the torque's share of the largest, from -1 to 1. */
export function drawRod(canvas, angle, push = 0) {
  const dense = Math.min(window.devicePixelRatio || 1, 2);
  const size = Math.max(canvas.clientWidth, 100);
  canvas.style.height = `${size}px`;
  canvas.width = canvas.height = Math.round(size * dense);
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, size * dense * 0.5, size * dense * 0.5);
  const length = size * 0.38;
  const ink = getComputedStyle(canvas).color;
  context.setLineDash([3, 4]);
  stroke(context, ink, 1, () => context.arc(0, 0, length, 0, 2 * Math.PI));
  context.setLineDash([]);
  stroke(context, ink, 1, () => {
    context.moveTo(0, -length - 5);
    context.lineTo(0, -length - 12);
  });
  const end = [-Math.sin(angle) * length, -Math.cos(angle) * length];
  context.lineCap = "round";
  for (const [style, width] of [[RIM, size * 0.062], [ROD, size * 0.05]]) {
    stroke(context, style, width, () => {
      context.moveTo(0, 0);
      context.lineTo(...end);
    });
  }
  dot(context, ...end, size * 0.045, ROD, RIM);
  dot(context, 0, 0, size * 0.015, "#ffffff", RIM);
  if (Math.abs(push) > 0.01) torque(context, size * 0.17, push);
}

function stroke(context, style, width, way) {
  context.beginPath();
  way();
  [context.strokeStyle, context.lineWidth] = [style, width];
  context.stroke();
}

/** An arrow around the axle, from the top, anticlockwise for a positive torque; its length is the torque's size. */
function torque(context, radius, push) {
  const sweep = -push * 0.6 * Math.PI;
  const end = -Math.PI / 2 + sweep;
  const way = Math.sign(sweep);
  const tip = [Math.cos(end) * radius, Math.sin(end) * radius];
  const side = (turn) => {
    const heading = end + way * (Math.PI / 2) + Math.PI + turn;
    return [tip[0] + Math.cos(heading) * radius * 0.4, tip[1] + Math.sin(heading) * radius * 0.4];
  };
  for (const [style, width] of [[RIM, 6], [ORANGE, 3.5]]) {
    stroke(context, style, width, () => {
      context.arc(0, 0, radius, -Math.PI / 2, end, sweep < 0);
      context.moveTo(...side(0.5));
      context.lineTo(...tip);
      context.lineTo(...side(-0.5));
    });
  }
}
