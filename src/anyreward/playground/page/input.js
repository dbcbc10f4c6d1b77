// The input for expressions: errors under the character, and completion of names.

import { checkNames, complete, parse } from "./expression.js";

const $ = (id) => document.getElementById(id);

export class ExpressionInput {
  constructor(form, add) {
    this.names = [];
    this.box = $("expression");
    this.list = $("completions");
    this.options = [];
    this.chosen = -1;
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.check(true)) {
        add(this.box.value.trim());
        this.box.value = "";
        this.close();
      }
    });
    this.box.addEventListener("input", () => {
      this.check(false);
      this.suggest();
    });
    this.box.addEventListener("keydown", (e) => this.key(e));
    this.box.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.box.addEventListener("scroll", () => this.check(false));
  }

  /** Show what is wrong, if anything; strict: also that nothing was written. */
  check(strict) {
    const text = this.box.value;
    this.error(null);
    if (!text.trim() && !strict) return false;
    try {
      checkNames(parse(text), this.names);
      return true;
    } catch (error) {
      const before = text.length - text.trimStart().length;
      const more = /^the name/.test(error.what ?? "") ? ` ${error.accepted ?? ""}` : "";
      this.error(error.message.split("\n")[0] + more, typeof error.at === "number" ? error.at + before : null);
      return false;
    }
  }

  error(message, at = null) {
    $("expression-error").textContent = message ?? "";
    this.box.setAttribute("aria-invalid", String(message !== null));
    $("caret").textContent = at === null ? "" : `${" ".repeat(at)}^`;
    $("caret").scrollLeft = this.box.scrollLeft;
  }

  suggest() {
    const caret = this.box.selectionStart;
    const { from, options } = complete(this.box.value, caret, this.names);
    this.from = from;
    this.options = caret > from ? options.slice(0, 12) : [];
    if (this.options.length === 1 && this.options[0].label === this.box.value.slice(from, caret)) this.options = [];
    this.chosen = -1;
    this.list.replaceChildren(
      ...this.options.map(({ label, kind }, k) => {
        const li = Object.assign(document.createElement("li"), { id: `completion-${k}` });
        li.setAttribute("role", "option");
        li.setAttribute("aria-selected", "false");
        li.append(Object.assign(document.createElement("span"), { textContent: label, className: "code" }), Object.assign(document.createElement("span"), { textContent: kind }));
        li.addEventListener("pointerdown", (e) => {
          e.preventDefault();
          this.take(k);
        });
        return li;
      }),
    );
    this.list.hidden = !this.options.length;
    this.box.setAttribute("aria-expanded", String(!this.list.hidden));
    this.box.removeAttribute("aria-activedescendant");
  }

  key(e) {
    if (this.list.hidden) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      const n = this.options.length;
      this.chosen = (this.chosen + (e.key === "ArrowDown" ? 1 : n - 1) + (this.chosen < 0 && e.key === "ArrowUp" ? 1 : 0)) % n;
      Array.from(this.list.children).forEach((li, k) => li.setAttribute("aria-selected", String(k === this.chosen)));
      this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
      this.box.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    } else if (e.key === "Tab" || (e.key === "Enter" && this.chosen >= 0)) this.take(Math.max(this.chosen, 0));
    else if (e.key === "Escape") this.close();
    else return;
    e.preventDefault();
  }

  take(k) {
    const { label, kind } = this.options[k];
    const caret = this.box.selectionStart;
    const call = kind === "function" && this.box.value[caret] !== "(" ? "(" : "";
    this.box.setRangeText(label + call, this.from, caret, "end");
    this.close();
    this.box.focus();
    this.check(false);
  }

  close() {
    this.list.hidden = true;
    this.box.setAttribute("aria-expanded", "false");
  }
}
