// Pictures, films and the clipboard.

import { encodeGif } from "./gif.js";

const FRAMES = 30;
const LARGEST = 360;

/** Copy text; false if the browser does not allow it. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Save canvases side by side as one PNG, with a caption below. */
export function savePng(canvases, caption) {
  const tall = Math.max(...canvases.map((one) => one.height));
  const picture = Object.assign(document.createElement("canvas"), {
    width: canvases.reduce((total, one) => total + one.width + 16, 16),
    height: tall + 56,
  });
  const context = picture.getContext("2d");
  const style = getComputedStyle(document.body);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, picture.width, picture.height);
  let left = 16;
  for (const one of canvases) {
    context.drawImage(one, left, 16);
    left += one.width + 16;
  }
  context.fillStyle = style.color;
  context.font = "16px system-ui, sans-serif";
  context.fillText(caption, 16, tall + 40);
  return new Promise((resolve) =>
    picture.toBlob((blob) => {
      save(blob, "anyreward.png");
      resolve();
    }),
  );
}

/** Save a film of the canvas: step is called before each frame. */
export async function saveGif(canvas, step, draw) {
  const scale = Math.min(1, LARGEST / canvas.width);
  const [width, height] = [Math.round(canvas.width * scale), Math.round(canvas.height * scale)];
  const small = Object.assign(document.createElement("canvas"), { width, height });
  const context = small.getContext("2d", { willReadFrequently: true });
  const frames = [];
  for (let k = 0; k < FRAMES; k++) {
    await step();
    draw();
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, width, height);
    context.drawImage(canvas, 0, 0, width, height);
    frames.push(context.getImageData(0, 0, width, height).data);
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
  save(new Blob([encodeGif(frames, width, height, 130)], { type: "image/gif" }), "anyreward.gif");
}
