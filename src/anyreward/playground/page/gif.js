// Films: an encoder of animated GIFs (GIF89a), which every browser and chat shows.

const MOST_COLOURS = 256;
const MOST_CODES = 4096;
const SHADES = 32; // of each channel, in the histogram of colours
const FULL = SHADES ** 3;
const HASH = 8192;

/**
 * An endless film of frames, Uint8ClampedArrays of width * height pixels with red, green, blue and alpha each, with a
 * delay between them. All frames share 256 colours; after the first, a frame holds only the part that has changed.
 */
export function encodeGif(frames, width, height, delayMs) {
  const { colours, indexOf } = paletteOf(frames);
  const out = new Bytes();
  out.text("GIF89a");
  out.shorts(width, height);
  out.bytes(0xf7, 0, 0); // a table of 256 colours for all frames
  for (let i = 0; i < MOST_COLOURS; i++) out.bytes(...(colours[i] ?? [0, 0, 0]));
  out.bytes(0x21, 0xff, 11);
  out.text("NETSCAPE2.0"); // endless
  out.bytes(3, 1, 0, 0, 0);
  let before = null;
  for (const frame of frames) {
    const pixels = Uint8Array.from({ length: width * height }, (_, i) => indexOf[shadeOf(frame, 4 * i)]);
    const box = before ? changed(before, pixels, width, height) : { left: 0, top: 0, right: width, bottom: height };
    out.bytes(0x21, 0xf9, 4, 0x04); // what was drawn before stays
    out.shorts(Math.max(2, Math.round(delayMs / 10)));
    out.bytes(0, 0, 0x2c);
    out.shorts(box.left, box.top, box.right - box.left, box.bottom - box.top);
    out.bytes(0, 8);
    out.blocks(compressed(cropped(pixels, width, box)));
    before = pixels;
  }
  out.bytes(0x3b);
  return out.all();
}

class Bytes {
  constructor() {
    this.size = 0;
    this.held = new Uint8Array(1 << 16);
  }

  bytes(...values) {
    if (this.size + values.length > this.held.length) {
      const larger = new Uint8Array(2 * (this.size + values.length));
      larger.set(this.held.subarray(0, this.size));
      this.held = larger;
    }
    for (const value of values) this.held[this.size++] = value;
  }

  shorts(...values) {
    for (const value of values) this.bytes(value & 255, value >> 8);
  }

  text(text) {
    this.bytes(...[...text].map((c) => c.charCodeAt(0)));
  }

  /** Data in blocks of at most 255 bytes. */
  blocks(data) {
    for (let i = 0; i < data.length; i += 255) {
      const block = data.subarray(i, i + 255);
      this.bytes(block.length, ...block);
    }
    this.bytes(0);
  }

  all() {
    return this.held.slice(0, this.size);
  }
}

/** The place of a pixel's colour in the histogram. */
function shadeOf(frame, i) {
  return ((frame[i] >> 3) * SHADES + (frame[i + 1] >> 3)) * SHADES + (frame[i + 2] >> 3);
}

/** At most 256 colours [red, green, blue], and for each place in the histogram the index of its colour: median cut. */
function paletteOf(frames) {
  const counts = new Float64Array(FULL);
  const sums = [0, 1, 2].map(() => new Float64Array(FULL));
  for (const frame of frames) {
    for (let i = 0; i < frame.length; i += 4) {
      const shade = shadeOf(frame, i);
      counts[shade]++;
      for (let c = 0; c < 3; c++) sums[c][shade] += frame[i + c];
    }
  }
  const used = [...counts.keys()].filter((shade) => counts[shade] > 0);
  const indexOf = new Uint8Array(FULL);
  const colours = boxesOf(used, counts).map((box, index) => {
    for (const shade of box) indexOf[shade] = index;
    const total = box.reduce((sum, shade) => sum + counts[shade], 0);
    return sums.map((sum) => Math.round(box.reduce((s, shade) => s + sum[shade], 0) / total));
  });
  return { colours, indexOf };
}

/** The colours in at most 256 boxes. Again and again, the box with the largest spread is cut at its median. */
function boxesOf(used, counts) {
  const boxes = [measured(used, counts)];
  while (boxes.length < MOST_COLOURS) {
    const widest = boxes.reduce((best, box, i) => (box.spread > boxes[best].spread ? i : best), 0);
    const { shades, channel, spread } = boxes[widest];
    if (!(spread > 0)) break;
    shades.sort((a, b) => channelOf(a, channel) - channelOf(b, channel));
    const half = shades.reduce((sum, shade) => sum + counts[shade], 0) / 2;
    let [cut, below] = [0, 0];
    while (cut < shades.length - 1 && below < half) below += counts[shades[cut++]];
    boxes.splice(widest, 1, measured(shades.slice(0, cut), counts), measured(shades.slice(cut), counts));
  }
  return boxes.map(({ shades }) => shades);
}

function channelOf(shade, channel) {
  return (shade >> (10 - 5 * channel)) & 31;
}

/** A box with the channel along which its colours differ most, and how much: their squared deviations. */
function measured(shades, counts) {
  const spreads = [0, 1, 2].map((channel) => {
    let [n, sum, squares] = [0, 0, 0];
    for (const shade of shades) {
      const value = channelOf(shade, channel);
      n += counts[shade];
      sum += counts[shade] * value;
      squares += counts[shade] * value * value;
    }
    return shades.length > 1 ? squares - (sum * sum) / n : 0;
  });
  const spread = Math.max(...spreads);
  return { shades, spread, channel: spreads.indexOf(spread) };
}

/** The smallest box with all pixels that differ; one pixel if none do. */
function changed(before, pixels, width, height) {
  const box = { left: width, top: height, right: 0, bottom: 0 };
  for (let i = 0; i < pixels.length; i++) {
    if (pixels[i] === before[i]) continue;
    const [x, y] = [i % width, Math.floor(i / width)];
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x + 1);
    box.top = Math.min(box.top, y);
    box.bottom = y + 1;
  }
  return box.right ? box : { left: 0, top: 0, right: 1, bottom: 1 };
}

function cropped(pixels, width, { left, top, right, bottom }) {
  const part = new Uint8Array((right - left) * (bottom - top));
  for (let y = top; y < bottom; y++) {
    part.set(pixels.subarray(y * width + left, y * width + right), (y - top) * (right - left));
  }
  return part;
}

/** Pixels by Lempel-Ziv-Welch: codes of 9 to 12 bits; 256 begins a new dictionary, 257 ends. */
function compressed(pixels) {
  const bits = new Bits();
  const dictionary = new Dictionary();
  bits.push(256, 9);
  let code = pixels[0];
  for (let i = 1; i < pixels.length; i++) {
    const place = dictionary.find(code, pixels[i]);
    if (dictionary.codes[place]) {
      code = dictionary.codes[place];
      continue;
    }
    bits.push(code, dictionary.width);
    if (dictionary.next < MOST_CODES) dictionary.add(place, code, pixels[i]);
    else {
      bits.push(256, dictionary.width);
      dictionary.clear();
    }
    code = pixels[i];
  }
  bits.push(code, dictionary.width);
  bits.push(257, dictionary.endWidth);
  return bits.all();
}

/** Codes of sequences of pixels, by the code of all but the last pixel, and the last pixel. */
class Dictionary {
  constructor() {
    this.keys = new Int32Array(HASH);
    this.codes = new Uint16Array(HASH);
    this.clear();
  }

  clear() {
    this.codes.fill(0);
    this.next = 258;
    this.width = 9;
  }

  /** Where the code of a sequence is, or a free place for it. */
  find(code, pixel) {
    const key = (code << 8) | pixel;
    let place = (key * 2654435761) >>> 19;
    while (this.codes[place] && this.keys[place] !== key) place = (place + 1) % HASH;
    return place;
  }

  /** The reader of the film learns a code one step later, so that codes become wider once the last one was used. */
  add(place, code, pixel) {
    this.keys[place] = (code << 8) | pixel;
    this.codes[place] = this.next;
    if (this.next === 1 << this.width && this.width < 12) this.width++;
    this.next++;
  }

  /** The width of the code after the last one of the pixels. */
  get endWidth() {
    return this.next === 1 << this.width && this.width < 12 ? this.width + 1 : this.width;
  }
}

class Bits {
  constructor() {
    Object.assign(this, { out: new Bytes(), held: 0, count: 0 });
  }

  push(code, width) {
    this.held |= code << this.count;
    this.count += width;
    for (; this.count >= 8; this.count -= 8) {
      this.out.bytes(this.held & 255);
      this.held >>>= 8;
    }
  }

  all() {
    if (this.count) this.out.bytes(this.held & 255);
    return this.out.all();
  }
}
