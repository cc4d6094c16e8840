"use strict";
// Markdown as nodes. Each text becomes a text node, and HTML stays text. No address is loaded: a picture becomes a
// link, and a link of another scheme than http, https and mailto stays as it was written.
//
// The time is linear in the length of the text. Each line is read once for each level of quotes and lists, which are
// at most DEEPEST; a mark looks for its opener among the newest OPENERS. A text of more than LARGEST characters is
// shown as it was written.
const Markdown = (() => {
  const LARGEST = 100_000, DEEPEST = 12, OPENERS = 32;

  // Controls, and characters that turn other text around, as escapes. The marks \u200e, \u200f and \u061c stay:
  // texts of right-to-left scripts have them, and they turn nothing beyond their own block.
  const TURNING = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;
  const plain = (text) => text.replace(TURNING, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

  // Not by `append(...children)`: a call has room for some 100,000 arguments.
  function filled(made, children) {
    for (const one of children) made.append(one);
    return made;
  }
  const node = (tag, children = []) => filled(document.createElement(tag), children);
  const spoken = (tag, children) => Object.assign(node(tag, children), { dir: "auto" });

  // ------------------------------------------------------------------------------------------ a line of text

  const MARK = /[\\`*_~[\]<]|!\[|\bhttps?:\/\//g;
  const PUNCTUATION = /[\p{P}\p{S}]/u, WITHOUT_SPACES = /[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff]/, ESCAPABLE = /[!-/:-@[-`{-~]/;
  const TARGET = /\([ \n]?<?([^\s()<>\\]*(?:\([^\s()<>\\]*\)[^\s()<>\\]*)*)>?(?:[ \n](?:"[^"]*"|'[^']*'))?[ \n]?\)/y;
  const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>\\]+)>/y;
  const BARE = /https?:\/\/[^\s<>"`\\^{}|*\u2000-\u206f\u3000-\u303f\uff00-\uffef]+/y;

  function addressOf(text) {
    if (!/^(?:https?:\/\/[^/?#]|mailto:.)/i.test(text)) return null; // an exception costs much more
    try {
      const found = new URL(text);
      return ["http:", "https:", "mailto:"].includes(found.protocol) ? found.href : null;
    } catch { return null; }
  }

  const at = (pattern, text, place) => { pattern.lastIndex = place; return pattern.exec(text); };

  // A bare address ends before the signs that end a sentence, and before a bracket that it has not opened.
  function bareOf(found) {
    let end = found.length, open = 0;
    for (const one of found) open += one === "(" ? 1 : one === ")" ? -1 : 0;
    for (; end > "https://".length; end--) {
      const last = found[end - 1];
      if (last === ")" && open < 0) open++;
      else if (!".,:;!?'_~]".includes(last)) break;
    }
    return found.slice(0, end);
  }

  // The marks that wait for their end, as a stack. The first is the whole text, and has no mark.
  class Openers {
    constructor() { this.all = [{ mark: "", count: 0, children: [] }]; }

    get top() { return this.all[this.all.length - 1]; }

    add(...children) { this.addAll(children); }

    addAll(children) {
      const list = this.top.children;
      for (const one of children) {
        if (typeof one === "string" && typeof list[list.length - 1] === "string") list[list.length - 1] += one;
        else list.push(one);
      }
    }

    open(opener) {
      if (this.all.length > OPENERS) { // the oldest has no end within reach, and is text
        const [oldest] = this.all.splice(1, 1), { all } = this;
        this.all = [all[0]];
        this.add(written(oldest));
        this.addAll(oldest.children);
        this.all = all;
      }
      this.all.push({ children: [], ...opener });
    }

    // Makes text of the marks above this one: they have no end.
    keep(place) {
      for (const one of this.all.splice(place + 1)) {
        this.add(written(one));
        this.addAll(one.children);
      }
    }

    pop() { return this.all.pop(); }

    // The newest bracket, or a mark above it that this run of marks may end.
    find(fits) {
      for (let place = this.all.length - 1; place > 0; place--) {
        if (fits(this.all[place])) return place;
        if (this.all[place].mark === "[") return 0;
      }
      return 0;
    }
  }

  const written = ({ mark, count }) => (mark === "[" ? (count === 2 ? "![" : "[") : mark.repeat(count));

  // Text with marks, as a tree: strings, and {tag, children, href}.
  function treeOf(text) {
    const open = new Openers();
    let lastRun = null, place = 0;
    while (place < text.length) {
      const found = at(MARK, text, place);
      if (!found) break;
      open.add(text.slice(place, found.index));
      place = found.index;
      const mark = found[0];
      if (mark === "\\") {
        const isEscape = ESCAPABLE.test(text[place + 1] || "");
        open.add(isEscape ? text[place + 1] : mark);
        place += isEscape ? 2 : 1;
      } else if (mark === "`") {
        lastRun = lastRun || new Map([...text.matchAll(/`+/g)].map((one) => [one[0].length, one.index]));
        place = code(open, text, place, lastRun);
      } else if (mark === "[" || mark === "![") {
        open.open({ mark: "[", count: mark.length });
        place += mark.length;
      } else if (mark === "]") {
        place = link(open, text, place);
      } else if (mark === "<") {
        const href = at(ANGLED, text, place), address = href && addressOf(href[1]);
        open.add(address ? { tag: "a", href: address, children: [href[1]] } : mark);
        place += address ? href[0].length : 1;
      } else if (mark.startsWith("http")) {
        const bare = bareOf((at(BARE, text, place) || [mark])[0]), address = addressOf(bare);
        open.add(address ? { tag: "a", href: address, children: [bare] } : bare); // either way it is read once
        place += bare.length;
      } else place = emphasis(open, text, place);
    }
    open.add(text.slice(place));
    open.keep(0);
    return open.top.children;
  }

  function code(open, text, place, lastRun) {
    const runs = /`+/g;
    const { length } = at(runs, text, place)[0];
    if (lastRun.get(length) <= place) { open.add("`".repeat(length)); return place + length; }
    let end;
    do { end = runs.exec(text); } while (end[0].length !== length);
    let inside = text.slice(place + length, end.index).replace(/\n/g, " ");
    if (inside.startsWith(" ") && inside.endsWith(" ") && inside.trim()) inside = inside.slice(1, -1);
    open.add({ tag: "code", children: [inside] });
    return end.index + length;
  }

  function link(open, text, place) {
    const from = open.find((one) => one.mark === "[");
    if (!from) { open.add("]"); return place + 1; }
    open.keep(from);
    const bracket = open.pop(), target = at(TARGET, text, place + 1), href = target && addressOf(target[1]);
    if (!href) {
      open.addAll([written(bracket), ...bracket.children, "]"]);
      return place + 1;
    }
    const children = bracket.count === 2 ? ["Picture: ", ...bracket.children] : bracket.children.length ? bracket.children : [href];
    open.add({ tag: "a", href, children });
    return place + 1 + target[0].length;
  }

  function emphasis(open, text, place) {
    const mark = text[place];
    let end = place + 1;
    while (text[end] === mark) end++;
    let left = end - place;
    if (left > 3 || (mark === "~" && left !== 2)) { open.add(text.slice(place, end)); return end; }
    const before = text[place - 1] || " ", after = text[end] || " ";
    const [isBefore, isAfter] = [before, after].map((one) => PUNCTUATION.test(one));
    const isEdge = (one) => !one.trim() || PUNCTUATION.test(one) || WITHOUT_SPACES.test(one);
    const opens = after.trim() && (!isAfter || isEdge(before)), closes = before.trim() && (!isBefore || isEdge(after));
    const isOpener = opens && (mark !== "_" || !closes || isBefore), isCloser = closes && (mark !== "_" || !opens || isAfter);
    const isBoth = isOpener && isCloser, whole = left;
    const fits = (one) => one.mark === mark && !((isBoth || one.isBoth) && (one.whole + whole) % 3 === 0 && whole % 3);
    for (let from; isCloser && left && (from = open.find(fits));) {
      open.keep(from);
      const opener = open.top, used = Math.min(2, left, opener.count);
      const made = { tag: mark === "~" ? "s" : used === 2 ? "strong" : "em", children: opener.children };
      left -= used;
      opener.count -= used;
      if (opener.count) opener.children = [made];
      else { open.pop(); open.add(made); }
    }
    if (left && isOpener) open.open({ mark, count: left, whole, isBoth });
    else open.add(mark.repeat(left));
    return end;
  }

  function nodesOf(tree, isInLink = false) {
    return tree.flatMap((one) => {
      if (typeof one === "string") return one;
      const inside = nodesOf(one.children, isInLink || one.tag === "a");
      if (one.tag !== "a") return node(one.tag, inside);
      if (isInLink) return inside;
      const made = node("a", inside);
      Object.assign(made, { href: one.href, title: plain(one.href), target: "_blank", rel: "noopener noreferrer" });
      return made;
    });
  }

  const inline = (text) => nodesOf(treeOf(text));

  // -------------------------------------------------------------------------------------------------- blocks

  const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/, HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/, QUOTE = /^ {0,3}> ?/;
  const ITEM = /^[ \t]*(?:([-*+])|(\d{1,9})([.)]))(?:[ \t]+|$)/, DASHES = /^[ \t]*:?-+:?[ \t]*$/;
  const isBlank = (line) => !line.trim();

  // The columns of the white space that a line begins with.
  function indentOf(line) {
    let columns = 0;
    for (const one of line) {
      if (one === " ") columns++;
      else if (one === "\t") columns += 4 - (columns % 4);
      else break;
    }
    return columns;
  }

  function without(line, columns) {
    let place = 0;
    for (let gone = 0; gone < columns && (line[place] === " " || line[place] === "\t"); place++) gone += line[place] === "\t" ? 4 - (gone % 4) : 1;
    return line.slice(place);
  }

  function isRule(line) {
    const signs = /^ {0,3}[-*_]/.test(line) ? line.replace(/[ \t]/g, "") : "";
    return signs.length > 2 && signs === signs[0].repeat(signs.length);
  }

  function itemOf(line) {
    const found = isRule(line) ? null : ITEM.exec(line);
    if (!found) return null;
    const [whole, bullet, number, sign] = found, indent = indentOf(line);
    const marked = whole.trimEnd().length, spaces = whole.length - marked;
    return { indent, kind: bullet || sign, number, text: line.slice(marked + (spaces > 4 ? 1 : spaces)), inside: indent + whole.trim().length + (spaces > 4 ? 1 : Math.max(1, spaces)) };
  }

  const cellsOf = (line) => line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));

  // The alignments of a table that begins here, or null.
  function tableAt(lines, place) {
    const under = lines[place + 1];
    if (under === undefined || !lines[place].includes("|") || !under.includes("-") || !/^[ \t|:-]+$/.test(under)) return null;
    const cells = cellsOf(under);
    if (!cells.every((cell) => DASHES.test(cell)) || cells.length !== cellsOf(lines[place]).length) return null;
    return cells.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : ""));
  }

  // True if another block than a paragraph begins in this line, also within a paragraph.
  function begins(lines, place) {
    const line = lines[place];
    if (FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line) || tableAt(lines, place)) return true;
    const item = itemOf(line);
    return Boolean(item && item.text && (!item.number || Number(item.number) === 1));
  }

  // Each block: the line where it begins, and its node.
  function blocksOf(lines, depth) {
    const made = [];
    for (let place = 0; place < lines.length;) {
      if (isBlank(lines[place])) { place++; continue; }
      const [block, end] = blockAt(lines, place, depth);
      made.push([place, block]);
      place = end;
    }
    return made;
  }

  const inner = (lines, depth) => blocksOf(lines, depth).map(([, block]) => block);

  function blockAt(lines, place, depth) {
    const line = lines[place], heading = HEADING.exec(line), item = itemOf(line);
    if (FENCE.test(line)) return fence(lines, place);
    if (heading) return [spoken(`h${Math.min(6, heading[1].length + 2)}`, inline(headingOf(line.slice(heading[0].length)))), place + 1];
    if (isRule(line)) return [node("hr"), place + 1];
    if (QUOTE.test(line) && depth < DEEPEST) return quote(lines, place, depth);
    if (item && depth < DEEPEST) return list(lines, place, depth, item);
    const sides = tableAt(lines, place);
    if (sides) return table(lines, place, sides);
    let end = place + 1;
    if (indentOf(line) > 3 && !item) {
      while (end < lines.length && (isBlank(lines[end]) || indentOf(lines[end]) > 3)) end++;
      return [codeBlock(lines.slice(place, end).map((one) => without(one, 4)).join("\n").trimEnd()), end];
    }
    while (end < lines.length && !isBlank(lines[end]) && !begins(lines, end)) end++;
    return [spoken("p", inline(lines.slice(place, end).join("\n"))), end];
  }

  function headingOf(text) {
    const whole = text.trimEnd();
    let end = whole.length;
    while (whole[end - 1] === "#") end--;
    return !end || isBlank(whole[end - 1]) ? whole.slice(0, end).trimEnd() : whole;
  }

  // A block of code, and where the browser can copy, a button that copies what is shown.
  function codeBlock(text) {
    const block = node("pre", [text]);
    if (!navigator.clipboard) return block;
    const copy = Object.assign(node("button", ["Copy"]), { type: "button", className: "quiet small", title: "Copy this code" });
    copy.onclick = async () => { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; };
    return Object.assign(node("div", [block, copy]), { className: "code" });
  }

  function fence(lines, place) {
    const mark = FENCE.exec(lines[place])[1], indent = indentOf(lines[place]);
    let end = place + 1;
    const isEnd = (line) => { const found = FENCE.exec(line); return found && found[1].length >= mark.length && line.trim() === mark[0].repeat(found[1].length); };
    while (end < lines.length && !isEnd(lines[end])) end++;
    return [codeBlock(lines.slice(place + 1, end).map((line) => without(line, indent)).join("\n")), end + 1];
  }

  function quote(lines, place, depth) {
    const inside = [];
    let end = place;
    for (; end < lines.length; end++) {
      if (QUOTE.test(lines[end])) inside.push(lines[end].replace(QUOTE, ""));
      else if (!isBlank(lines[end]) && !isBlank(inside[inside.length - 1]) && !begins(lines, end)) inside.push(lines[end]);
      else break;
    }
    return [node("blockquote", inner(inside, depth + 1)), end];
  }

  function list(lines, place, depth, first) {
    const made = node(first.number ? "ol" : "ul");
    if (first.number && first.number !== "1") made.start = Number(first.number);
    let end = place, item = first;
    while (item && item.kind === first.kind) {
      const inside = [item.text];
      let blanks = 0;
      for (end++; end < lines.length; end++) {
        const line = lines[end], indent = indentOf(line);
        if (isBlank(line)) { blanks++; continue; }
        const next = indent < item.inside ? itemOf(line) : null;
        const isInside = indent >= item.inside || (indent >= first.indent + 2 && (blanks || next));
        if (!isInside && (next || blanks || begins(lines, end))) break;
        while (blanks) { inside.push(""); blanks--; }
        inside.push(without(line, item.inside));
      }
      made.append(spoken("li", inner(taskOf(inside), depth + 1)));
      item = end < lines.length ? itemOf(lines[end]) : null;
    }
    return [made, end];
  }

  function taskOf(lines) {
    const found = /^\[([ xX])\][ \t]/.exec(lines[0]);
    if (found) lines[0] = `${found[1] === " " ? "☐" : "☑"} ${lines[0].slice(found[0].length)}`;
    return lines;
  }

  function table(lines, place, sides) {
    const row = (line, tag) => node("tr", cellsOf(line).map((cell, column) => {
      const made = spoken(tag, inline(cell));
      if (sides[column]) made.style.textAlign = sides[column];
      return made;
    }));
    let end = place + 2;
    while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) end++;
    const head = node("thead", [row(lines[place], "th")]), body = node("tbody", lines.slice(place + 2, end).map((line) => row(line, "td")));
    const made = node("div", [node("table", [head, body])]);
    Object.assign(made, { className: "table", tabIndex: 0 });
    return [made, end];
  }

  // ----------------------------------------------------------------------------------------------- streaming

  // Shows a text in a node. If the text has grown since the last time, the blocks stay that cannot change any more:
  // all but the last two, because the last line may still be half of one that goes on with the block before.
  function show(place, text) {
    const was = place.shown && text.startsWith(place.shown.text) ? place.shown : null;
    if (was && was.text === text) return;
    if (text.length > LARGEST) {
      if (was && was.isPlain) place.lastChild.appendData(plain(text.slice(was.text.length)));
      else place.replaceChildren(plain(text));
      place.classList.remove("md");
      place.shown = { text, isPlain: true };
      return;
    }
    const kept = was ? was.starts.slice(0, -2) : [];
    const from = was && was.starts.length > 2 ? was.starts[kept.length] : 0;
    while (place.childNodes.length > kept.length) place.lastChild.remove();
    const lines = text.slice(from).split("\n");
    const starts = [from];
    for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
    const blocks = blocksOf(lines.map((line) => plain(line.replace(/\r$/, ""))), 0);
    filled(place, blocks.map(([, block]) => block));
    place.classList.add("md");
    place.shown = { text, starts: [...kept, ...blocks.map(([line]) => starts[line])] };
  }

  return { plain, show };
})();
