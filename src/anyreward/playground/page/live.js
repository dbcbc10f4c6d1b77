// The real environment, stepped and rendered by the server; or the pendulum, stepped in the page.

import { alongAxis } from "./coordinates.js";
import { drawRod } from "./rod.js";

const TRAIL = 40;

export class Live {
  constructor(engine, view, { draw, say }) {
    Object.assign(this, { engine, view, draw, say });
    this.image = view.querySelector("img");
    this.rod = view.querySelector("#rod");
    this.text = view.querySelector("#live-text");
    this.run = view.querySelector("#live-run");
    this.again = view.querySelector("#live-restart");
    this.text.textContent = "not started";
    this.run.textContent = "Watch";
    this.again.disabled = true;
    this.image.removeAttribute("src");
    this.image.hidden = this.rod.hidden = true;
    this.trail = [];
    this.start = null;
    this.run.onclick = () => (this.socket ? this.pause() : this.open());
    this.again.onclick = () => this.restart(null);
    this.task = null;
    this.paused = false;
    this.dots = null;
    this.side = null;
    this.picture = null;
  }

  open() {
    this.paused = false;
    this.socket = this.engine.live();
    this.run.textContent = "Pause";
    this.text.textContent = "opening the environment ...";
    this.socket.onopen = () => {
      this.again.disabled = false;
      if (this.start) this.send({ restart: this.start });
      if (this.task?.terms.length) this.send({ task: this.task });
      else this.text.textContent = "waiting for a task: give a reward first";
    };
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.state(JSON.parse(data)) : this.frame(data));
    this.socket.onclose = ({ reason }) => {
      this.text.textContent = reason || "stopped";
      this.socket = null;
      this.run.textContent = "Watch";
      this.again.disabled = true;
    };
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** Play for a task; an empty one pauses. */
  ask(task) {
    this.task = task;
    if (task.terms.length) this.send({ task });
    if (this.socket && !this.paused) this.send({ pause: !task.terms.length });
  }

  pause() {
    this.paused = !this.paused;
    this.run.textContent = this.paused ? "Continue" : "Pause";
    this.send({ pause: this.paused });
  }

  restart(start) {
    this.start = start;
    if (!this.socket) this.open();
    this.send({ restart: start });
  }

  state(state) {
    if (state.error) {
      this.say(state.error, true);
      return;
    }
    if (state.live && !state.live.rendered) this.text.textContent = state.live.reason ?? "This world has no pictures.";
    if (!state.features) return;
    const { axes, kind, box } = this.engine.scene;
    const at = axes.map((axis) => alongAxis(axis, state.features));
    this.trail = state.action === undefined || state.steps <= 1 ? [at] : [...this.trail.slice(1 - TRAIL), at];
    this.dots = [{ at, trail: kind === "screen" ? [] : this.trail }];
    this.side = state.features.length > 2 ? [{ at: [state.features[0], state.features[2]] }] : null;
    const pushed = box?.map(({ name }, i) => `${name} ${state.action?.[i].toFixed(2)}`).join(", ");
    const action = state.action === undefined ? "" : `, ${pushed ?? `action ${state.action_name ?? state.action}`}`;
    this.text.textContent = `step ${state.steps}${action}${state.over ? ", episode over" : ""}${state.placed === false && this.start ? ", this world starts where it likes" : ""}`;
    if (state.placed === true) this.start = null;
    if (kind === "pendulum" && this.image.hidden) {
      this.rod.hidden = false;
      drawRod(this.rod, at[0], state.action ? state.action[0] / box[0].high : 0);
    }
    this.draw();
  }

  frame(bytes) {
    if (!bytes.byteLength) return;
    const address = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    if (this.address) URL.revokeObjectURL(this.address);
    this.address = address;
    this.image.hidden = false;
    this.rod.hidden = true;
    this.image.onload = () => {
      if (this.engine.scene.kind === "screen") {
        this.picture = this.image;
        this.draw();
      }
    };
    this.image.src = address;
  }

  tick() {
    return new Promise((resolve) => setTimeout(resolve, 130));
  }

  close() {
    const { socket } = this;
    this.socket = null;
    if (socket) {
      socket.onclose = socket.onmessage = null;
      socket.close();
    }
  }
}
