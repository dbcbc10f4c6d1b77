// The pendulum, stepped in the page: what the socket of a server is for a real environment.

import { MOST_TORQUE, observed, pendulumStep } from "./pendulum.js";

const EVERY = 50;
const LONGEST = 200;
const RESTING = 20;

export class Swing {
  constructor(engine) {
    Object.assign(this, { engine, asked: false, paused: false, steps: 0, rests: 0, readyState: WebSocket.CONNECTING });
    this.timer = setInterval(() => document.hidden || this.tick(), EVERY);
    setTimeout(() => this.begin(), 0);
  }

  begin() {
    if (this.readyState !== WebSocket.CONNECTING) return;
    this.readyState = WebSocket.OPEN;
    this.restart(null);
    this.onopen?.();
  }

  /** A message of the page: task, restart, pause. */
  send(text) {
    const { task, restart, pause } = JSON.parse(text);
    if (task) this.asked = task.terms.length > 0;
    if (restart !== undefined) this.restart(restart);
    if (pause !== undefined) this.paused = pause;
  }

  /** A new episode, from an angle and a speed, or from where the environment begins. */
  restart(start) {
    this.state = start ?? [(2 * Math.random() - 1) * Math.PI, 2 * Math.random() - 1];
    this.steps = this.rests = 0;
    this.say({ placed: Boolean(start) });
  }

  /** One step of the policy that answers the present task; after the last step of an episode, a rest. */
  tick() {
    if (this.readyState !== WebSocket.OPEN || this.paused || !this.asked) return;
    if (this.steps >= LONGEST) {
      if (this.rests++ >= RESTING) this.restart(null);
      return;
    }
    const torque = MOST_TORQUE * this.engine.push(this.state)[0];
    this.state = pendulumStep(this.state, torque);
    this.steps++;
    this.say({ action: [torque] });
  }

  say(more) {
    const { steps } = this;
    this.onmessage?.({ data: JSON.stringify({ features: observed(this.state), steps, over: steps >= LONGEST, ...more }) });
  }

  close() {
    clearInterval(this.timer);
    this.readyState = WebSocket.CLOSED;
  }
}
