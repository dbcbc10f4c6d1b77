// Reading tokens by rules that may fail.

import { syntaxError } from "./tokens.js";

/** What is thrown where a rule cannot read the next token. */
export const FAILURE = new Error("The next token does not fit.");

/** Tokens, read from the first to the last. Rules are methods of subclasses; what they throw ends the reading. */
export class Reader {
  constructor(text, tokens, careful = false) {
    Object.assign(this, { text, tokens, careful, at: 0, furthest: 0, memory: new Map() });
  }

  /** The next token; the furthest one looked at is where a text cannot be read. */
  get token() {
    const token = this.tokens[this.at];
    this.furthest = Math.max(this.furthest, this.at);
    if (token.problem) throw token.problem;
    return token;
  }

  is(...texts) {
    return texts.includes(this.token.text);
  }

  take(...texts) {
    return this.is(...texts) ? this.tokens[this.at++] : null;
  }

  expect(text) {
    return this.take(text) ?? this.fail();
  }

  fail() {
    throw FAILURE;
  }

  mistake(at, what) {
    throw syntaxError(this.text, at, what);
  }

  node(type, start, fields = {}) {
    return { type, start, end: this.tokens[this.at - 1].end, ...fields };
  }

  /** What a rule reads here, or null; without a look at usual mistakes if not careful. */
  attempt(rule, careful = this.careful) {
    const before = { at: this.at, careful: this.careful };
    this.careful = careful;
    try {
      return rule.call(this);
    } catch (error) {
      if (error !== FAILURE) throw error;
      this.at = before.at;
      return null;
    } finally {
      this.careful = before.careful;
    }
  }

  /** What a rule reads here, which is read only once, so that the time does not grow exponentially with the depth. */
  once(rule) {
    const key = `${rule.name} ${this.at}`;
    if (!this.memory.has(key)) this.memory.set(key, { found: this.attempt(rule), at: this.at });
    const { found, at } = this.memory.get(key);
    this.at = at;
    return found ?? this.fail();
  }

  /** One expression, or several with commas: a tuple. */
  several(rule, ...ends) {
    const { start } = this.token;
    const first = rule.call(this);
    if (!this.is(",")) return first;
    while (this.take(",") && this.token.text && !this.is(...ends) && this.attempt(rule));
    return this.node("tuple", start);
  }

  /** Whether the next token is a name that is followed by this one. */
  followed(text) {
    if (this.token.type !== "name") return false;
    this.at++;
    const found = this.is(text);
    this.at--;
    return found;
  }
}
