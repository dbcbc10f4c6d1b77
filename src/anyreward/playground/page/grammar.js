// The tree of an expression. This is Python's whole grammar of expressions, so that what a reward may not contain is
// named and pointed at as in Python, and mistakes are reported where Python reports them.

import { EQUALS, described, Operands } from "./operands.js";
import { FAILURE } from "./reader.js";
import { Problem, syntaxError, tokenize } from "./tokens.js";

const BINARY = new Map([
  ...["|", "^", "&"].map((sign, i) => [sign, i + 1]),
  ...["<<", ">>"].map((sign) => [sign, 4]),
  ...["+", "-"].map((sign) => [sign, 5]),
  ...["*", "/", "//", "%", "@"].map((sign) => [sign, 6]),
]);
const COMPARISONS = new Set(["<", "<=", ">", ">=", "==", "!=", "in", "is", "not"]);
const SOFT = /^(?:_|m|ma|mat|matc|match|c|ca|cas|case)$/; // Python takes the beginnings of its soft keywords for them
const COMMANDS = new Set(["print", "exec"]);
const COMMA = "invalid syntax. Perhaps you forgot a comma?";

/**
 * The tree of a text. Its nodes are {type, start, end, ...}: number {value}, name {id}, unary {operator, operand},
 * binary {operator, left, right}, compared {operators, operands}, joined {operator, operands}, and
 * call {called, given, keywords}; nodes of other types are not accepted.
 */
export function treeOf(text) {
  const tokens = tokenize(text);
  const parser = new Parser(text, tokens);
  try {
    return parser.whole();
  } catch (error) {
    throw error === FAILURE ? explained(text, tokens, parser.furthest) : error;
  }
}

/** The error for a text that cannot be read beyond the token of this index: read again, looking for usual mistakes. */
function explained(text, tokens, index) {
  const parser = new Parser(text, tokens, true);
  let found = null;
  try {
    parser.whole();
  } catch (error) {
    if (error instanceof Problem) found = error;
    else if (error !== FAILURE) throw error;
  }
  const { broken, unclosed, openLine } = tokens.at(-1);
  const reached = tokens[Math.max(index, parser.furthest)];
  const later = reached.line > openLine && !(found && reached.end === text.length);
  return broken ?? (later ? unclosed : null) ?? found ?? syntaxError(text, tokens[index].start, "invalid syntax");
}

class Parser extends Operands {
  // Expressions, from the loosest to the tightest.

  whole() {
    const found = this.several(this.expression);
    while (this.token.type === "newline") this.at++;
    return this.token.type === "end" ? found : this.fail();
  }

  expression() {
    if (this.careful) this.mistakes();
    const { start } = this.token;
    if (this.take("lambda")) return this.lambda(start);
    const first = this.once(this.disjunction);
    return this.is("if") && this.attempt(this.choice) ? this.node("conditional", start, { first }) : first;
  }

  choice() {
    this.expect("if");
    this.once(this.disjunction);
    this.expect("else");
    return this.expression();
  }

  lambda(start) {
    for (let first = true; !this.is(":"); first = false) {
      if (first || !this.take("/")) this.parameter();
      if (!this.take(",")) break;
    }
    this.expect(":");
    this.expression();
    return this.node("lambda", start);
  }

  parameter() {
    const starred = this.take("*", "**");
    if (starred?.text === "*" && this.is(",")) return;
    if (this.token.type !== "name") this.fail();
    this.at++;
    if (!starred && this.take("=")) this.expression();
  }

  disjunction() {
    return this.joined("or", this.conjunction);
  }

  conjunction() {
    return this.joined("and", this.inversion);
  }

  joined(operator, rule) {
    const { start } = this.token;
    const operands = [rule.call(this)];
    while (this.is(operator)) {
      const next = this.attempt(() => this.expect(operator) && rule.call(this));
      if (!next) break;
      operands.push(next);
    }
    return operands.length > 1 ? this.node("joined", start, { operator, operands }) : operands[0];
  }

  inversion() {
    const { start } = this.token;
    if (!this.take("not")) return this.comparison();
    return this.node("unary", start, { operand: this.inversion(), operator: "not" });
  }

  comparison() {
    const { start } = this.token;
    const [operators, operands] = [[], [this.arithmetic()]];
    while (COMPARISONS.has(this.token.text)) {
      const next = this.attempt(() => ({ operator: this.compared(), operand: this.arithmetic() }));
      if (!next) break;
      operators.push(next.operator);
      operands.push(next.operand);
    }
    return operators.length ? this.node("compared", start, { operators, operands }) : operands[0];
  }

  compared() {
    const { text } = this.token;
    this.at++;
    if (text === "not") return `not ${this.expect("in").text}`;
    return text === "is" && this.take("not") ? "is not" : text;
  }

  /** Operators that bind at least as tightly as this level. */
  arithmetic(least = 1) {
    const { start } = this.token;
    let left = this.unary();
    for (;;) {
      const operator = this.token.text;
      const level = BINARY.get(operator) ?? 0;
      const right = level >= least && this.attempt(() => this.expect(operator) && this.arithmetic(level + 1));
      if (!right) return left;
      left = this.node("binary", start, { operator, left, right });
    }
  }

  unary() {
    const { start } = this.token;
    const operator = this.take("+", "-", "~")?.text;
    return operator ? this.node("unary", start, { operand: this.unary(), operator }) : this.power();
  }

  power() {
    const { start } = this.token;
    const waits = this.take("await");
    const operand = this.once(this.primary);
    const left = waits ? this.node("await", start) : operand;
    const right = this.is("**") && this.attempt(() => this.expect("**") && this.unary());
    return right ? this.node("binary", start, { operator: "**", left, right }) : left;
  }

  // Parts of brackets.

  starNamed() {
    return this.starred() ?? this.named();
  }

  starExpression() {
    return this.starred() ?? this.expression();
  }

  starred() {
    const star = this.take("*");
    if (!star) return null;
    this.arithmetic();
    return this.node("starred", star.start);
  }

  named() {
    const assignment = this.assignment();
    if (assignment) return assignment;
    if (this.careful) this.mistakenEquals();
    const found = this.expression();
    return this.is(":=") ? this.fail() : found;
  }

  assignment() {
    if (!this.followed(":=")) return null;
    const { start } = this.token;
    this.at += 2;
    this.expression();
    return this.node("assignment", start);
  }

  // Usual mistakes, in the order in which Python looks for them.

  /** Two expressions without a comma, or a condition without else. */
  mistakes() {
    const from = this.at;
    const { type, text, start } = this.token;
    const left = this.attempt(() => this.once(this.disjunction));
    if (!left) return;
    const behind = this.at;
    if (type !== "name" || !(SOFT.test(text) || this.tokens[from + 1].type === "string")) {
      const right = this.attempt(this.expression, false);
      const inside = right && this.tokens[this.at - 1].level > 0;
      if (inside && !COMMANDS.has(left.id)) this.mistake(left.start, COMMA);
    }
    this.at = behind;
    if (this.take("if") && this.attempt(() => this.once(this.disjunction)) && !this.is("else", ":")) {
      this.mistake(left.start, "expected 'else' after 'if' expression");
    }
    this.at = from;
    if (type === "name") {
      this.at++;
      const more = !this.is("(") && this.attempt(() => this.several(this.starExpression));
      const meant = `Missing parentheses in call to '${text}'. Did you mean ${text}(...)?`;
      if (more && COMMANDS.has(text)) this.mistake(start, meant);
      this.at = from;
    }
  }

  /** Brackets around a starred expression alone. */
  loneStar(...stars) {
    const from = this.at;
    const star = this.take(...stars);
    if (star && this.attempt(this.expression) && this.is(")")) {
      this.mistake(star.start, `cannot use ${star.text === "*" ? "" : "double "}starred expression here`);
    }
    this.at = from;
  }

  /** A single = where there is no assignment. */
  mistakenEquals() {
    const from = this.at;
    const { start, text } = this.token;
    const single = () => this.attempt(() => this.arithmetic()) && !this.is("=", ":=");
    const before = this.attempt(this.expression);
    if (before && this.take(":=") && this.attempt(this.expression)) {
      this.mistake(before.start, `cannot use assignment expressions with ${described(before)}`);
    }
    this.at = from;
    if (this.followed("=")) {
      this.at += 2;
      if (single()) this.mistake(start, EQUALS);
      this.at = from;
    }
    const target = this.attempt(() => this.arithmetic());
    const equals = target && !["True", "False", "None"].includes(text) && this.take("=") && single();
    this.at = from;
    if (!equals || ["list", "tuple", "comprehension"].includes(this.atom().type)) {
      this.at = from;
      return;
    }
    this.mistake(target.start, `cannot assign to ${described(target)} here. Maybe you meant '==' instead of '='?`);
  }
}

