// Colours, the colour scale and bars: readable for colour-blind people too.

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
export const ORANGE = "#e69f00";
export const VERMILION = "#d55e00";
export const PURPLE = "#cc79a7";
export const WALKERS = ["#e69f00", "#ffffff", "#cc79a7", "#56b4e9", "#f0e442", "#d55e00", "#009e73", "#999999"];

/** Red, green and blue of each of 256 steps of the scale. */
export const TABLE = (() => {
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
