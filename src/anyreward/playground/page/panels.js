// The list of terms and the answer in words.

import { tidy } from "./task.js";

const MOST_WEIGHT = 1_000_000;
const $ = (id) => document.getElementById(id);

function element(tag, text = "", more = {}) {
  return Object.assign(document.createElement(tag), { textContent: text }, more);
}

/** The terms of the task that is edited: what each is, its weight, and a button to remove it. */
export function showTerms(list, store, scene) {
  const { task } = store;
  const rows = [];
  const count = Object.keys(task.paint).length;
  if (count) rows.push(row(`painted: ${count} ${scene.kind === "maze" ? "cells" : "points"}`, null, () => store.change(() => (task.paint = {}))));
  const weighted = (kind, one, text, k) => {
    const weigh = (weight) => store.change((d) => (d.tasks[d.active][kind][k].weight = weight));
    rows.push(row(text, [one.weight, weigh], () => store.change((d) => d.tasks[d.active][kind].splice(k, 1))));
  };
  task.goals.forEach((goal, k) => weighted("goals", goal, `${goal.weight < 0 ? "forbidden" : "goal"} (${goal.at.map((x) => tidy(x, 3)).join(", ")})`, k));
  task.expressions.forEach((one, k) => weighted("expressions", one, one.text, k));
  task.demonstrations.forEach((one, k) => weighted("demonstrations", one, `demonstration of ${one.states.length} states`, k));
  if (list.contains(document.activeElement)) {
    const [i, j] = focusAt(list);
    list.replaceChildren(...rows);
    list.children[i]?.querySelectorAll("input, button")[j]?.focus();
  } else list.replaceChildren(...rows);
}

function focusAt(list) {
  const i = Array.from(list.children).findIndex((one) => one.contains(document.activeElement));
  return [i, Array.from(list.children[i].querySelectorAll("input, button")).indexOf(document.activeElement)];
}

function row(text, weight, remove) {
  const li = element("li");
  li.append(element("span", text, { className: "what" }));
  if (weight) {
    const input = element("input", "", { type: "number", step: "0.1", value: String(weight[0]), ariaLabel: `Weight of ${text}` });
    input.addEventListener("change", () => {
      const value = Number(input.value);
      const fits = input.value !== "" && Math.abs(value) <= MOST_WEIGHT;
      input.setCustomValidity(fits ? "" : `A weight is a number from -${MOST_WEIGHT} to ${MOST_WEIGHT}.`);
      if (fits) weight[1](value);
      else input.reportValidity();
    });
    li.append(input);
  }
  const button = element("button", "×", { title: "Remove", ariaLabel: `Remove ${text}` });
  button.addEventListener("click", remove);
  li.append(button);
  return li;
}

/** Score, trust and reasons; or, without an answer, why there is none. */
export function showAnswer(scene, answer, explanation, none = "No reward yet.") {
  const { optimum, trust, planned } = explanation ?? {};
  const score = $("score");
  if (!answer) score.textContent = none;
  else if (explanation && answer.z.every((x) => x === 0)) score.textContent = "Nothing to gain: every policy is equally good.";
  else if (optimum) {
    const share = optimum.normalised;
    const ratio = optimum.optimal > 0 ? ` Its value is ${percent(optimum.achieved / optimum.optimal)} of the optimal value.` : "";
    score.textContent = share === null ? "Nothing to gain: the random policy is optimal." : `${share.toFixed(3)} of what is possible (0 = random, 1 = optimal).${ratio}`;
  } else score.textContent = explanation ? (scene.exact ? "The optimum of this reward is not computed here." : "The optimum of this world is not known.") : "…";
  $("trust").textContent = trust ? `Trust: ${trust.verdict}` : "";
  const reasons = [...(trust?.reasons ?? [])];
  if (planned) reasons.push("planned on kept transitions, which was better than F . z alone");
  $("reasons").replaceChildren(...reasons.map((reason) => element("li", reason)));
}

function percent(x) {
  return `${(100 * x).toFixed(1)}%`;
}
