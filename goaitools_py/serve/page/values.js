"use strict";
// Values as text and as elements: JSON as it is written, figures, and elements with text nodes. Nothing is parsed
// as HTML. It knows no conversation and no server.
const Values = (() => {
  const { plain } = Markdown;

  const freshId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16).padStart(2, "0")).join("");

  // Makes an element. Properties are set as such, or as attributes where the name has a dash or is a role.
  function h(tag, props, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
      if (value === undefined || value === null) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name.includes("-") || name === "role") made.setAttribute(name, value);
      else made[name] = value;
    }
    for (const one of children.flat()) if (one !== null && one !== undefined) made.append(typeof one === "string" ? plain(one) : one);
    return made;
  }

  // JSON that is sent as it is written: JSON.parse would make another number of 12345678901234567891.
  class Written {
    constructor(text) { this.text = text; }
    toString() { return this.text; }
  }

  // A value as JSON, in which each `Written` stands as it is.
  function json(value) {
    if (value instanceof Written) return value.text;
    if (Array.isArray(value)) return `[${value.map((one) => json(one ?? null)).join()}]`;
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const members = Object.entries(value).filter(([, one]) => one !== undefined);
    return `{${members.map(([name, one]) => `${JSON.stringify(name)}:${json(one)}`).join()}}`;
  }

  const isJson = (text) => { try { JSON.parse(text); return true; } catch { return false; } };
  const TOKEN = /[{}[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}[\],:"]+/g;
  const tokensOf = (text) => (isJson(text) ? text.match(TOKEN) : null);

  // Reads JSON. A number that JavaScript would change is a `Written`.
  function readJson(text) {
    JSON.parse(text);
    const mark = freshId(); // nobody who wrote the text knows it
    const exact = text.match(TOKEN).map((one) => (/^[-\d]/.test(one) && String(Number(one)) !== one ? `{"${mark}":"${one}"}` : one)).join("");
    return JSON.parse(exact, (_, value) => (value && typeof value[mark] === "string" ? new Written(value[mark]) : value));
  }

  // Characters that are not seen, or that turn other text around, as escapes.
  const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
  const visible = (text) => text.replace(UNSEEN, (one) => one.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
  const stringOf = (token) => visible(JSON.stringify(JSON.parse(token)));

  // JSON in lines, as nodes: numbers, repeated names and their order are those of the text, and no string moves
  // what stands beside it. Any other text as it is.
  function pretty(text) {
    const tokens = text.length > 200_000 ? null : tokensOf(text);
    if (!tokens) return [visible(text)];
    const made = [];
    let depth = 0, before = "";
    const line = () => `\n${"  ".repeat(depth)}`;
    for (const token of tokens) {
      const isOpening = "{[".includes(token), isClosing = "}]".includes(token), isFirst = before && "{[".includes(before);
      if (isClosing) depth--;
      if (isFirst ? !isClosing : isClosing) made.push(line());
      made.push(token[0] === '"' ? h("bdi", {}, stringOf(token)) : token === ":" ? ": " : token);
      if (isOpening) depth++;
      if (token === ",") made.push(line());
      before = token;
    }
    return made;
  }

  // A string without its quotation marks, if it cannot be taken for a number, or for more than one value.
  const bare = (text) => (/^[\p{L}_](?:[\p{L}\p{N}_ .'/@!?-]*[\p{L}\p{N}_.!?])?$/u.test(text) && !["true", "false", "null"].includes(text) && visible(text) === text
    ? text : visible(JSON.stringify(text)));

  // The beginning of the members of an object, in a line.
  function brief(text) {
    const tokens = text.length > 200_000 ? null : tokensOf(text);
    if (!tokens || tokens[0] !== "{") return "";
    let depth = 0, made = "";
    for (const token of tokens) {
      if ("}]".includes(token)) depth--;
      if (depth && made.length < 80) made += token[0] === '"' ? (depth === 1 ? bare(JSON.parse(token)) : stringOf(token)) : ":,".includes(token) ? `${token} ` : token;
      if ("{[".includes(token)) depth++;
    }
    return made.slice(0, 80);
  }

  // Figures for people.
  const dollars = (value) => (value === null || value === undefined ? null : value === 0 ? "$0" : value < 0.01 ? `$${value.toFixed(5)}` : `$${value.toFixed(2)}`);
  const counted = (value) => Number(value).toLocaleString("en");
  const sized = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1048576).toFixed(1)} MB`);
  const lasted = (seconds) => (seconds === null ? "" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

  return { Written, brief, counted, dollars, freshId, h, isJson, json, lasted, pretty, readJson, sized, visible };
})();
