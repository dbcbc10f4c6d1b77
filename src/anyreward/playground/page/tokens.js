// The tokens of an expression, and the errors in them, as Python's tokenizer finds them.

const KEYWORDS = new Set(
  ("False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda nonlocal not or pass raise return try while with yield").split(" "),
);
const OPERATOR = /\*\*=|\/\/=|>>=|<<=|\.\.\.|[-+*/%&|^@=<>!:]=|\*\*|\/\/|->|<<|>>|<>|[^]/y;
const STRING = /(?:[rR][bBfF]?|[bBfF][rR]?|[uU])?(?="|')/y;
const NAME = /[A-Za-z0-9_\u0080-\uffff]+/y;
const FIRST = /[\p{XID_Start}_]/u;
const LATER = /\p{XID_Continue}/u;
const UNPRINTABLE = /[\p{C}\p{Z}]/u;
const MAY_TOUCH = /^(?:(?:and|else|for|not|or)(?![A-Za-z0-9_\u0080-\uffff])|i[fns])/; // a number, as in 1or x
const CLOSES = { "(": ")", "[": "]", "{": "}" };
const MOST_OPEN = 200;

/** What is wrong in a text, and where. */
export class Problem extends Error {
  constructor(at, what) {
    super(what);
    this.at = at;
  }
}

/** A problem that Python's parser reports as a syntax error. */
export function syntaxError(text, at, what) {
  const several = text.includes("\n") ? "; write an expression of several lines in brackets" : "";
  return new Problem(at, `a syntax error (${what})${several}`);
}

/**
 * The tokens of a text: {type, text, start, end, line, level}, where level is the number of brackets open after it, and
 * type is name, keyword, number, string, operator, newline, indent or end. A token with a problem cannot be read; the
 * end has one if the text is not tokens to its end, or has an open bracket.
 */
export function tokenize(text) {
  const scanner = new Scanner(text);
  let broken = null;
  try {
    while (scanner.at < text.length && !scanner.stray) scanner.next();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    broken = error;
  }
  const open = scanner.open.at(-1);
  const unclosed = open ? syntaxError(text, open.start, `'${open.c}' was never closed`) : null;
  const problem = broken ?? scanner.stray ?? unclosed;
  if (!problem && scanner.tokens.length) scanner.push("newline", text.length);
  scanner.push("end", text.length);
  Object.assign(scanner.tokens.at(-1), { problem, broken, unclosed, openLine: open?.line });
  return scanner.tokens;
}

class Scanner {
  constructor(text) {
    Object.assign(this, { text, at: 0, line: 1, tokens: [], open: [], fresh: true, stray: null });
  }

  fail(at, what) {
    throw syntaxError(this.text, at, what);
  }

  push(type, end) {
    const { at: start, line } = this;
    const text = type === "newline" ? "" : this.text.slice(start, end);
    this.tokens.push({ type, text, start, end, line, level: this.open.length });
    this.at = end;
  }

  /** Read white space, a comment, the end of a line, or one token. */
  next() {
    const c = this.text[this.at];
    if (" \t\f".includes(c)) this.at++;
    else if (c === "#") this.comment();
    else if (c === "\n") this.lineEnd(this.at);
    else if (c === "\\") this.continuation();
    else {
      this.indentation();
      this.token(c);
    }
  }

  comment() {
    const end = this.text.indexOf("\n", this.at);
    if (end < 0) this.at = this.text.length;
    else this.lineEnd(end);
  }

  lineEnd(end) {
    if (!this.open.length && !this.fresh) {
      this.push("newline", end);
      this.fresh = true;
    }
    this.at = end + 1;
    this.line++;
  }

  continuation() {
    if (this.text[this.at + 1] !== "\n") {
      const place = Math.min(this.at + 1, this.text.length - 1);
      this.stray = syntaxError(this.text, place, "unexpected character after line continuation character");
      return;
    }
    this.at += 2;
    this.line++;
  }

  /** A token for white space before the first token of a line; the first line has none. */
  indentation() {
    const { at: end, line } = this;
    if (this.fresh && line > 1 && " \t".includes(this.text[end - 1])) {
      const problem = syntaxError(this.text, end - 1, "unexpected indent");
      this.tokens.push({ type: "indent", text: "", start: end - 1, end, line, level: 0, problem });
    }
    this.fresh = false;
  }

  token(c) {
    const { text, at } = this;
    STRING.lastIndex = NAME.lastIndex = OPERATOR.lastIndex = at;
    if (/[0-9]/.test(c) || (c === "." && /[0-9]/.test(text[at + 1] ?? ""))) this.push("number", this.numberEnd());
    else if (STRING.test(text)) this.string(STRING.lastIndex);
    else if (NAME.test(text)) this.name(NAME.lastIndex);
    else {
      OPERATOR.test(text);
      this.operator(c, OPERATOR.lastIndex);
    }
  }

  name(end) {
    const word = this.text.slice(this.at, end);
    let place = this.at;
    for (const c of word) {
      if (!(place === this.at ? FIRST : LATER).test(c)) this.strange(c, place);
      place += c.length;
    }
    this.push(KEYWORDS.has(word) ? "keyword" : "name", end);
  }

  strange(c, place) {
    const code = `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    const hidden = UNPRINTABLE.test(c);
    this.fail(place, hidden ? `invalid non-printable character ${code}` : `invalid character '${c}' (${code})`);
  }

  operator(c, end) {
    if (UNPRINTABLE.test(c)) this.strange(c, this.at);
    if (CLOSES[c]) {
      if (this.open.length >= MOST_OPEN) this.fail(this.at, "too many nested parentheses");
      this.open.push({ c, start: this.at, line: this.line });
    } else if (")]}".includes(c)) this.close(c);
    this.push("operator", end);
  }

  close(c) {
    const opened = this.open.pop();
    if (!opened) this.fail(this.at, `unmatched '${c}'`);
    if (CLOSES[opened.c] === c) return;
    const where = opened.line === this.line ? "" : ` on line ${opened.line}`;
    this.fail(this.at, `closing parenthesis '${c}' does not match opening parenthesis '${opened.c}'${where}`);
  }

  /** A string, whose quotes begin at the given place. It is never accepted, so what it says does not matter. */
  string(place) {
    const { text } = this;
    const quote = text[place];
    const triple = text.startsWith(quote.repeat(3), place);
    let end = place + (triple ? 3 : 1);
    while (!text.startsWith(triple ? quote.repeat(3) : quote, end)) {
      if (end >= text.length || (text[end] === "\n" && !triple)) {
        const kind = triple ? "triple-quoted string literal" : "string literal";
        const line = this.line + text.slice(this.at, end).split("\n").length - 1;
        this.fail(this.at, `unterminated ${kind} (detected at line ${line})`);
      }
      end += text[end] === "\\" ? 2 : 1;
    }
    end += triple ? 3 : 1;
    this.push("string", end);
    this.line += this.tokens.at(-1).text.split("\n").length - 1;
  }

  /** The end of the number that begins here; numbers are written as in Python. */
  numberEnd() {
    const { text, at } = this;
    const base = { x: ["hexadecimal", /[0-9a-f]/i], o: ["octal", /[0-7]/], b: ["binary", /[01]/] };
    const kind = text[at] === "0" ? base[text[at + 1]?.toLowerCase()] : undefined;
    if (kind) return this.verified(this.digits(at + 2, kind[1], kind[0], true), kind[0]);
    let end = at;
    if (text[at] !== ".") end = this.digits(at, /[0-9]/, "decimal");
    const whole = text.slice(at, end);
    if (text[end] === ".") end = this.isDigit(end + 1) ? this.digits(end + 1, /[0-9]/, "decimal") : end + 1;
    end = this.exponentEnd(end);
    if (/[jJ]/.test(text[end] ?? "")) return this.verified(end + 1, "imaginary");
    if (at + whole.length === end && /^0[0_]*[1-9]/.test(whole) && !/[eE]/.test(text[end] ?? "")) {
      this.fail(at, "leading zeros in decimal integer literals are not permitted; use an 0o prefix for octal integers");
    }
    return this.verified(end, "decimal");
  }

  isDigit(place) {
    return /[0-9]/.test(this.text[place] ?? "");
  }

  exponentEnd(end) {
    if (!/[eE]/.test(this.text[end] ?? "")) return end;
    if (this.isDigit(end + 1)) return this.digits(end + 1, /[0-9]/, "decimal");
    if (!/[-+]/.test(this.text[end + 1] ?? "")) return end; // not an exponent, perhaps the word else
    if (!this.isDigit(end + 2)) this.fail(end + 1, "invalid decimal literal");
    return this.digits(end + 2, /[0-9]/, "decimal");
  }

  /** The end of digits with single underscores between them; those of a base may begin with one. */
  digits(place, digit, kind, based = false) {
    const { text } = this;
    let end = place;
    do {
      if (text[end] === "_" && (based || end > place)) end++;
      if (!digit.test(text[end] ?? "")) {
        if (based && this.isDigit(end)) this.fail(end, `invalid digit '${text[end]}' in ${kind} literal`);
        this.fail(end - 1, `invalid ${kind} literal`);
      }
      while (digit.test(text[end] ?? "")) end++;
    } while (text[end] === "_");
    if (based && this.isDigit(end)) this.fail(end, `invalid digit '${text[end]}' in ${kind} literal`);
    return end;
  }

  /** The same end, unless something touches the number there. */
  verified(end, kind) {
    const rest = this.text.slice(end, end + 6);
    if (/^\w/.test(rest) && !MAY_TOUCH.test(rest)) {
      this.fail(end - 1, `invalid ${kind} literal`);
    }
    return end;
  }
}
