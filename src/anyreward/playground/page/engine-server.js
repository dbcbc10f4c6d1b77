// Answers from the server of `anyreward play`, with the library behind it.

import { decode } from "./arrays.js";

const PATIENCE = 60_000;

/** A refusal of the server, in its words; at: the position in an expression, if it is about one. */
export class Refused extends Error {
  constructor(message, at = null) {
    super(message);
    this.at = at;
  }
}

async function request(path, body, stop = null) {
  const patience = AbortSignal.timeout(PATIENCE);
  const options = { signal: stop ? AbortSignal.any([patience, stop]) : patience };
  if (body !== undefined) Object.assign(options, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (stop?.aborted) throw error;
    if (patience.aborted) throw new Refused("The server took longer than a minute.");
    throw new Refused("The server does not answer. Is `anyreward play` still running?");
  }
  const data = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(data.error ?? `The server refused this (${response.status}).`, data.at ?? null);
  return data;
}

/** The agents that the server offers. */
export async function listAgents() {
  return (await request("/api/agents")).agents;
}

function decoded({ z, notes = [], ...drawn }) {
  return { z: decode(z), notes, ...onGrid(drawn) };
}

/** Values on the grid, and actions by number or what they push. */
function onGrid({ value, action, push, ...rest }) {
  return { ...rest, value: decode(value), ...(action ? { action: decode(action, "u1") } : { push: decode(push) }) };
}

export class ServerEngine {
  /** The engine of one agent, by its id. */
  static async open(id) {
    const engine = new ServerEngine();
    engine.path = `/api/agents/${encodeURIComponent(id)}`;
    engine.scene = await request(engine.path);
    return engine;
  }

  /** z_R, values and actions on the grid; quick: near enough, for a stroke that goes on. */
  async answer(task, quick = false) {
    return decoded(await request(`${this.path}/answer`, quick ? { ...task, quick } : task));
  }

  /** What takes longer; stop: a signal that it is not needed any more. */
  async explain(task, _, stop = null) {
    const found = await request(`${this.path}/explain`, task, stop);
    if (found.optimum) found.optimum = onGrid(found.optimum);
    if (found.landmarks) found.landmarks.leads = decode(found.landmarks.leads, "i2");
    if (found.answer) found.answer = decoded(found.answer);
    return found;
  }

  /** The actions of the policy at places, for agents that walk in the page; quick: those at the nearest drawn points. */
  async acts(task, places, answer, quick = false) {
    const { kind, grid, axes } = this.scene;
    const nearest = (at, axis, n) => Math.round(((at - axis.low) / (axis.high - axis.low)) * (n - 1));
    if (kind === "maze" || quick) {
      return places.map(([x, y]) => answer.action[nearest(y, axes[1], grid.height) * grid.width + nearest(x, axes[0], grid.width)]);
    }
    return (await request(`${this.path}/act`, { ...task, at: places })).actions;
  }

  /** A socket that sends states and pictures of the real environment. */
  live() {
    const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${this.path}/live`);
    socket.binaryType = "arraybuffer";
    return socket;
  }
}
