// Arrays as they come from Python: base64 of little-endian numbers.

const TYPES = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array };

/** The bytes of base64 text. */
export function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** A typed array from base64 text; type f2 (half precision) becomes a Float32Array. */
export function decode(text, type = "f4") {
  const bytes = bytesOf(text);
  if (type === "f2") return fromHalf(new Uint16Array(bytes.buffer));
  return new TYPES[type](bytes.buffer);
}

/** The arrays of a bundle, {name: {type, data}}, decoded. */
export function decodeAll(packed) {
  const arrays = {};
  for (const [name, { type, data }] of Object.entries(packed)) arrays[name] = decode(data, type);
  return arrays;
}

function fromHalf(halves) {
  const numbers = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    const h = halves[i];
    const exponent = (h >> 10) & 31;
    const fraction = h & 1023;
    const size =
      exponent === 31 ? (fraction ? NaN : Infinity)
      : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024)
      : 2 ** -14 * (fraction / 1024);
    numbers[i] = h & 0x8000 ? -size : size;
  }
  return numbers;
}

/** The smallest and largest finite number; [0, 0] if there is none. */
export function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 0];
}
