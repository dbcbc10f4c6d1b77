// Operands: names, numbers, calls, and all that Python's grammar has in brackets.

import { Reader } from "./reader.js";

const TARGETS = new Set(["name", "attribute", "subscript", "list", "tuple"]);
const CONSTANTS = ["True", "False", "None"];
const STRINGS = [
  ["f-string", "f"],
  ["bytes", "b"],
  ["string", ""],
];
const NAMES = {
  call: "function call",
  joined: "expression",
  binary: "expression",
  unary: "expression",
  comprehension: "generator expression",
  compared: "comparison",
  conditional: "conditional expression",
  number: "literal",
};
export const EQUALS = "invalid syntax. Maybe you meant '==' or ':=' instead of '='?";

/** The rules for operands. Those for expressions are in the subclass. */
export class Operands extends Reader {
  primary() {
    const { start } = this.token;
    let node = this.atom();
    for (;;) {
      const longer = this.is(".", "(", "[") && this.attempt(() => this.trailer(node, start));
      if (!longer) return node;
      node = longer;
    }
  }

  /** What follows a primary: a name after a point, a subscript, or arguments. */
  trailer(first, start) {
    if (this.is("(")) return this.call(first, start);
    if (this.take("[")) {
      this.several(this.slice, "]");
      this.expect("]");
      return this.node("subscript", start, { first });
    }
    this.expect(".");
    const { type, text } = this.token;
    if (type !== "name") this.fail();
    this.at++;
    return this.node("attribute", start, { first, name: text.normalize("NFKC") });
  }

  slice() {
    const { start } = this.token;
    if (this.take("*")) {
      this.expression();
      return this.node("starred", start);
    }
    const first = this.is(":") ? null : this.named();
    if (!this.take(":")) return first;
    if (!this.is(":", ",", "]")) this.expression();
    if (this.take(":") && !this.is(",", "]")) this.expression();
    return this.node("slice", start);
  }

  // Calls.

  call(called, start) {
    const opened = this.expect("(").start;
    const [given, keywords] = [[], []];
    while (!this.is(")")) {
      this.argument(given, keywords, opened);
      if (!this.take(",")) break;
    }
    this.expect(")");
    return this.node("call", start, { called, given, keywords });
  }

  argument(given, keywords, opened) {
    const { start } = this.token;
    if (this.take("**")) {
      this.expression();
      keywords.push({ start, unpacked: true });
    } else if (this.is("*")) {
      if (keywords.some((keyword) => keyword.unpacked)) this.fail();
      this.at++;
      this.expression();
      given.push(this.node("starred", start));
    } else if (this.followed("=")) {
      this.at += 2;
      this.expression();
      if (this.careful && this.is("for", "async") && this.attempt(this.clauses)) this.mistake(start, EQUALS);
      keywords.push({ start });
    } else this.positional(given, keywords, opened);
  }

  positional(given, keywords, opened) {
    if (keywords.length && !this.careful) this.fail();
    const { start, text } = this.token;
    const node = this.assignment() ?? this.expression();
    if (this.careful && this.is("=")) {
      if (CONSTANTS.includes(text)) this.mistake(start, `cannot assign to ${text}`);
      this.mistake(node.start, 'expression cannot contain assignment, perhaps you meant "=="?');
    }
    if (this.is("=", ":=")) this.fail();
    if (keywords.length) this.late(keywords);
    given.push(node);
    if (!this.is("for", "async") || (given.length > 1 && !this.careful)) return;
    this.clauses();
    const alone = this.is(")") && given.length === 1;
    if (!alone && this.careful && (given.length > 1 || this.take(","))) {
      this.attempt(this.furtherArguments);
      this.mistake(node.start, "Generator expression must be parenthesized");
    }
    if (!alone) this.fail();
    given[0] = this.node("comprehension", opened);
  }

  /** Positional arguments after others, a mistake that is reported where they end. */
  late(keywords) {
    if (this.take(",")) this.furtherArguments();
    const unpacked = keywords.at(-1).unpacked ? " unpacking" : "";
    this.mistake(this.tokens[this.furthest].start, `positional argument follows keyword argument${unpacked}`);
  }

  furtherArguments() {
    do {
      if (this.is(")")) return;
      this.argument([], [], 0);
    } while (this.take(","));
  }

  // Atoms.

  atom() {
    const { type, text, start } = this.token;
    if (type === "string") return this.strings(start);
    if (text === "(") return this.bracketed(start);
    if (text === "[") return this.list(start);
    if (text === "{") return this.braced(start);
    if (type !== "name" && type !== "number" && text !== "..." && !CONSTANTS.includes(text)) this.fail();
    this.at++;
    if (type === "name") return this.node("name", start, { id: text.normalize("NFKC") });
    if (type === "number" && /j$/i.test(text)) return this.node("complex", start);
    if (type === "number") return this.node("number", start, { value: valueOf(text) });
    if (text === "True") return this.node("number", start, { value: 1 });
    return text === "False" ? this.node("number", start, { value: 0 }) : this.node(text, start);
  }

  /** Strings beside each other. They are never accepted, so that what they say is not looked at. */
  strings(start) {
    const prefixes = [];
    while (this.token.type === "string") prefixes.push(/^[a-z]*/i.exec(this.tokens[this.at++].text)[0].toLowerCase());
    const [type] = STRINGS.find(([, mark]) => prefixes.some((prefix) => prefix.includes(mark)));
    return this.node(type, start);
  }

  bracketed(start) {
    this.at++;
    if (this.take(")")) return this.node("tuple", start);
    if (this.is("yield")) return this.yielded();
    if (this.careful) this.loneStar("*", "**");
    const first = this.starNamed();
    if (this.is("for", "async")) return this.comprehension(start, ")");
    if (this.is(",")) {
      while (this.take(",") && !this.is(")")) this.starNamed();
      this.expect(")");
      return this.node("tuple", start);
    }
    this.expect(")");
    return first.type === "starred" ? this.fail() : first;
  }

  yielded() {
    const { start } = this.expect("yield");
    if (this.take("from")) this.expression();
    else if (!this.is(")")) this.several(this.starExpression, ")");
    const node = this.node("yield", start);
    this.expect(")");
    return node;
  }

  list(start) {
    this.at++;
    if (this.take("]")) return this.node("list", start);
    if (this.careful) this.loneStar("*");
    this.starNamed();
    if (this.is("for", "async")) return this.comprehension(start, "]");
    while (this.take(",") && !this.is("]")) this.starNamed();
    this.expect("]");
    return this.node("list", start);
  }

  braced(start) {
    this.at++;
    let type = this.is("}") ? "dict" : null;
    while (!this.is("}")) {
      const found = this.item(type);
      if (!type && this.is("for", "async")) return this.comprehension(start, "}");
      type = found;
      if (!this.take(",")) break;
    }
    this.expect("}");
    return this.node(type, start);
  }

  /** An item of a dict or set; the first item decides which it is. */
  item(type) {
    if (type !== "set" && this.take("**")) {
      this.arithmetic();
      return "dict";
    }
    const key = this.starNamed();
    if (type === "set" || (!type && !this.is(":"))) return "set";
    if (this.careful && !this.is(":")) this.mistake(key.end - 1, "':' expected after dictionary key");
    const { start } = this.expect(":");
    if (this.careful && this.is("}", ",")) this.mistake(start, "expression expected after dictionary key and ':'");
    this.expression();
    return "dict";
  }

  comprehension(start, close) {
    this.clauses();
    this.expect(close);
    return this.node("comprehension", start);
  }

  clauses() {
    do {
      this.take("async");
      this.expect("for");
      this.several(this.target, "in");
      this.expect("in");
      this.once(this.disjunction);
      while (this.take("if")) this.once(this.disjunction);
    } while (this.is("for", "async"));
    return true;
  }

  target() {
    const { start } = this.token;
    this.take("*");
    const node = this.arithmetic();
    const fits = TARGETS.has(node.type);
    if (!fits && this.careful) this.mistake(node.start, `cannot assign to ${described(node)}`);
    if (!fits) this.fail();
    return this.node("target", start);
  }
}

/** What Python calls a node that nothing can be assigned to. */
export function described({ type }) {
  return NAMES[type] ?? type;
}

/** The value of a number; infinite if floating point cannot hold it. */
function valueOf(text) {
  const digits = text.replaceAll("_", "");
  if (/[.e]/i.test(digits) && !/^0x/i.test(digits)) return Number(digits);
  const whole = BigInt(digits);
  return whole > BigInt(Number.MAX_VALUE) ? Infinity : Number(whole);
}
