"use strict";
// The page of `goaitools serve`. Every text from outside becomes a text node; nothing is parsed as HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  const log = $("log"), say = $("say");
  const { plain } = Markdown;

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

  // ------------------------------------------------------------------------------------------- state

  const page = {
    about: { model: "", simulated: false, read_only: false, hints: [], body_bytes: 1e6 },
    rows: [],
    name: null, // the conversation that is shown
    view: null, // what the server has told of it
    live: null, // the reply that comes: {id, pieces, abort}
    sending: null, // what was said and is not in the history yet
    decisions: Object.create(null), // answers to calls that wait, by call id: any text, also "constructor"
    files: [],
    error: null,
    opened: 0, // counts opens: an answer to an older one is dropped
  };
  const nodes = new Map(); // message id -> {json, node}
  const tabs = "BroadcastChannel" in window ? new BroadcastChannel("goaitools") : null;

  class Problem extends Error {
    constructor(status, facts) {
      super(facts.detail ? `${facts.title} (${facts.detail})` : facts.title || `The server answered ${status}.`);
      this.status = status;
      this.retryable = Boolean(facts.retryable);
    }
  }

  async function ask(method, path, body, { stream = false, signal } = {}) {
    const headers = { accept: stream ? "text/event-stream" : "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : json(body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, { title: "The server cannot be reached.", retryable: true });
    }
    if (answer.status === 401) {
      signIn();
      throw new Problem(401, { title: "Sign in first." });
    }
    if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
    if (stream) return answer;
    return answer.status === 204 ? null : answer.json();
  }

  const at = (name, rest = "") => `conversations/${encodeURIComponent(name)}${rest}`;
  const api = (name, rest) => `api/${at(name, rest)}`;
  const freshId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16).padStart(2, "0")).join("");

  function tell(text) {
    $("status").textContent = "";
    requestAnimationFrame(() => { $("status").textContent = text; });
  }

  // -------------------------------------------------------------------------------------- JSON as it is written

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

  // The pieces of a reply as blocks: neighbours of a kind are one, and a call has its result.
  function blocksOf(pieces) {
    const blocks = [], calls = new Map();
    for (const one of pieces) {
      const last = blocks[blocks.length - 1];
      if (one.type === "text" || one.type === "reasoning") {
        if (last && last.type === one.type) last.text += one.text;
        else blocks.push({ type: one.type, text: one.text });
      } else if (one.type === "tool_call") {
        const call = { type: "tool", id: one.id, name: one.name, arguments: one.arguments };
        calls.set(one.id, call);
        blocks.push(call);
      } else if (calls.has(one.id)) {
        const call = calls.get(one.id);
        if (one.type === "tool_result") { call.flag = one.flag; call.output = one.output; delete call.waits; delete call.progress; }
        if (one.type === "pending") call.waits = one.reason;
        if (one.type === "progress") call.progress = one;
      }
    }
    return blocks;
  }

  const FLAGS = {
    ok: "done", error: "failed", denied: "denied", invalid: "not understood", not_run: "not run",
    unknown: "outcome unknown", cancelled: "stopped",
  };
  const WAITS = { approval: "needs your approval", external: "needs a result", in_doubt: "outcome unknown" };

  function toolCard(block) {
    const decided = page.decisions[block.id];
    const state = block.waits ? (askedBy(block) ? "needs your answer" : WAITS[block.waits] || "waits") : block.flag ? FLAGS[block.flag] || block.flag : "running";
    const kind = block.waits ? "wait" : block.flag && block.flag !== "ok" ? "bad" : "";
    const asked = askedBy(block);
    const inside = h("div", { className: "inside" }, asked ? null : h("pre", { "aria-label": "Arguments" }, pretty(block.arguments)));
    if (block.flag) inside.append(h("pre", { "aria-label": "Result" }, block.output));
    if (block.waits && !page.about.read_only) inside.append(answering(block, decided));
    const far = block.progress;
    if (far && far.message) inside.append(h("div", { className: "dim" }, far.message));
    return h("details", { className: block.waits ? "tool waits" : "tool", open: Boolean(block.waits) },
      h("summary", {}, h("b", {}, asked ? "Question" : visible(block.name)), h("span", { className: "dim" }, asked ? asked.message : brief(block.arguments)),
        far ? h("progress", { max: far.total || 1, value: far.total ? far.progress || 0 : undefined, "aria-label": `Progress of ${block.name}`, title: far.message }) : null,
        h("span", { className: `chip ${kind}` }, state)),
      inside);
  }

  // What an MCP server asks the user while its tool runs: a form, or an address to visit. Else null.
  function askedBy(block) {
    if (block.name !== "elicitation" || block.waits !== "external") return null;
    try {
      const asked = readJson(block.arguments);
      return asked && typeof asked.message === "string" ? { ...asked, message: visible(asked.message) } : null;
    } catch { return null; }
  }

  // The values that a member of a form may have, as pairs of a value and its words; null if any.
  function choicesOf(wanted) {
    if (Array.isArray(wanted.enum)) return wanted.enum.map((one, index) => [one, String((wanted.enumNames || [])[index] ?? one)]);
    const named = wanted.oneOf || wanted.anyOf;
    if (!Array.isArray(named) || !named.every((one) => one && "const" in one)) return null;
    return named.map((one) => [one.const, String(one.title ?? one.const)]);
  }

  // One member of a form: a node, and a function for its value (undefined: left out).
  function memberOf(name, wanted, isNeeded) {
    const label = visible(String(wanted.title || name)), start = wanted.default;
    const help = wanted.description ? h("span", { className: "dim" }, visible(String(wanted.description))) : null;
    const under = (field) => h("label", { className: "member" }, h("span", {}, isNeeded ? `${label} *` : label), field, help);
    const boxes = wanted.type === "array" ? choicesOf(wanted.items || {}) : null;
    if (boxes) {
      const made = boxes.map(([value, words]) => [value, h("input", { type: "checkbox", checked: Array.isArray(start) && start.some((one) => json(one) === json(value)) }), visible(words)]);
      const group = h("div", { className: "member", role: "group", "aria-label": label }, h("span", {}, isNeeded ? `${label} *` : label), help,
        made.map(([, box, words]) => h("label", { className: "row" }, box, words)));
      return [group, () => made.filter(([, box]) => box.checked).map(([value]) => value)];
    }
    if (wanted.type === "boolean") {
      const box = h("input", { type: "checkbox", checked: start === true });
      return [h("label", { className: "member row" }, box, h("span", {}, label), help), () => box.checked];
    }
    const choices = choicesOf(wanted);
    if (choices) {
      const first = choices.findIndex(([value]) => start !== undefined && json(value) === json(start));
      const field = h("select", { required: isNeeded }, h("option", { value: "" }, "–"),
        choices.map(([, words], index) => h("option", { value: String(index), selected: index === first }, visible(words))));
      return [under(field), () => (field.value === "" ? undefined : choices[Number(field.value)][0])];
    }
    const isNumber = wanted.type === "integer" || wanted.type === "number";
    const type = isNumber ? "number" : { email: "email", date: "date", uri: "url" }[wanted.format] || "text";
    const field = h("input", { type, required: isNeeded, value: start === undefined ? "" : String(start) });
    if (isNumber) Object.assign(field, { min: wanted.minimum ?? "", max: wanted.maximum ?? "", step: wanted.type === "integer" ? "1" : "any" });
    else for (const bound of ["minLength", "maxLength"]) if (Number.isInteger(wanted[bound]) && wanted[bound] >= 0) field.setAttribute(bound, wanted[bound]);
    return [under(field), () => (field.value === "" && !(isNeeded && type === "text") ? undefined : isNumber ? new Written(isJson(field.value) ? field.value : String(Number(field.value))) : field.value)];
  }

  function formOf(block, asked) {
    const members = Object.entries((asked.schema && asked.schema.properties) || {}).filter(([, wanted]) => wanted && typeof wanted === "object");
    const needed = Array.isArray(asked.schema && asked.schema.required) ? asked.schema.required : [];
    const fields = members.map(([name, wanted]) => [name, ...memberOf(name, wanted, needed.includes(name))]);
    const send = () => {
      const wrong = fields.flatMap(([, node]) => [...node.querySelectorAll("input, select")]).find((field) => !field.checkValidity());
      if (wrong) return wrong.reportValidity();
      decide(block.id, { return: Object.fromEntries(fields.map(([name, , value]) => [name, value()]).filter(([, value]) => value !== undefined)) });
    };
    return h("div", { className: "asked", role: "group", "aria-label": asked.message }, askedNode(asked), fields.map(([, node]) => node),
      h("div", { className: "row" }, h("button", { type: "button", className: "main", onclick: send }, "Send"), declineOf(block)));
  }

  function visitOf(block, asked) {
    let address = null;
    try { address = new URL(String(asked.url)); } catch { /* it is shown as text */ }
    const isWeb = address && ["https:", "http:"].includes(address.protocol);
    return h("div", { className: "asked" }, askedNode(asked),
      isWeb ? h("a", { href: address.href, target: "_blank", rel: "noopener noreferrer" }, `Open ${address.host}`) : h("code", {}, visible(String(asked.url))),
      h("div", { className: "row" }, h("button", { type: "button", className: "main", onclick: () => decide(block.id, { return: {} }) }, "Done"), declineOf(block)));
  }

  const declineOf = (block) => h("button", { type: "button", onclick: () => decide(block.id, { deny: "The user declined." }) }, "Decline");

  const askedNode = (asked) => h("div", {}, h("div", { className: "dim" }, visible(`${asked.tool || "A tool"} asks:`)), h("div", { className: "text" }, asked.message),
    asked.problem ? h("p", { role: "alert" }, visible(`The last answer did not fit: ${asked.problem}.`)) : null);

  function answering(block, decided) {
    if (decided) {
      const what = decided.approve ? "approved" : "deny" in decided ? "denied" : "answered";
      return h("div", { className: "row dim" }, `You ${what} this. The others wait for you.`);
    }
    const asked = askedBy(block);
    if (asked) return asked.url === undefined ? formOf(block, asked) : visitOf(block, asked);
    if (block.waits === "in_doubt") return h("p", { className: "dim" }, "The process ended while this ran. Continue runs it again if its tool says that this is safe; else the model is told that the outcome is unknown.");
    const field = h("input", { placeholder: block.waits === "external" ? "Result" : "Reason, if you deny", "aria-label": block.waits === "external" ? `Result of ${block.name}` : `Reason to deny ${block.name}` });
    const deny = h("button", { type: "button", onclick: () => decide(block.id, { deny: field.value || "The user denied it." }) }, "Deny");
    if (block.waits === "external") {
      const give = () => { decide(block.id, { return: isJson(field.value) ? new Written(field.value.trim()) : field.value }); };
      return h("div", { className: "row" }, field, h("button", { type: "button", className: "main", onclick: give }, "Send"), deny);
    }
    return h("div", { className: "row" },
      h("button", { type: "button", className: "main", "aria-label": `Approve ${block.name}`, onclick: () => decide(block.id, { approve: true }) }, "Approve"),
      deny, field);
  }

  function blockNode(block) {
    if (block.type === "reasoning") return h("details", { className: "think" }, h("summary", {}, "Thinking"), h("div", { className: "text" }, block.text));
    try { return toolCard(block); } catch { // a server of MCP has asked for a form that is none
      return h("details", { className: "tool", open: true }, h("summary", {}, h("b", {}, block.name), h("span", { className: "chip bad" }, "cannot be shown")),
        h("div", { className: "inside" }, h("pre", {}, visible(block.arguments)), block.waits && !page.about.read_only ? h("div", { className: "row" }, declineOf(block)) : null));
    }
  }

  // ----------------------------------------------------------------------------------------- messages

  function fileNode(one) {
    const name = one.name || one.media_type;
    if (one.media_type.startsWith("image/") && one.url.startsWith("data:")) return h("img", { src: one.url, alt: `Image ${name}`, onload: stick });
    return h("span", { className: "file" }, name);
  }

  function saidNode(message) {
    return h("div", { className: "said" },
      message.speaker || message.role !== "user" ? h("div", { className: "who" }, message.speaker || message.role) : h("h2", { className: "unseen" }, "You"),
      message.files && message.files.length ? h("div", { className: "files" }, message.files.map(fileNode)) : null,
      message.text ? h("div", { className: "text", dir: "auto" }, message.text) : null);
  }

  // Blocks keep their nodes while they are the same, so that an opened card stays open while text arrives.
  function drawReply(node, blocks, isLive) {
    const kept = node.blocks || [];
    const body = node.body;
    blocks.forEach((block, index) => {
      if (block.type === "text") {
        if (!kept[index] || kept[index].json !== "text") {
          const made = h("div", { className: "text", dir: "auto" });
          if (kept[index]) kept[index].node.replaceWith(made);
          else body.append(made);
          kept[index] = { json: "text", node: made };
        }
        Markdown.show(kept[index].node, block.text);
        return;
      }
      const json = JSON.stringify([block, page.decisions[block.id] || null]);
      if (kept[index] && kept[index].json === json) return;
      const made = blockNode(block);
      if (kept[index]) {
        if (kept[index].node.open && !kept[index].waits) made.open = true;
        kept[index].node.replaceWith(made);
      } else body.append(made);
      kept[index] = { json, node: made, waits: block.waits };
    });
    kept.splice(blocks.length).forEach((one) => one.node.remove());
    node.blocks = kept;
    node.setAttribute("aria-busy", String(isLive));
    node.dots.hidden = !isLive;
  }

  function replyNode() {
    const body = h("div"), dots = h("div", { className: "dots", "aria-hidden": "true" }), after = h("div", { className: "after" });
    const node = h("div", { className: "reply" }, h("h2", { className: "unseen" }, "Reply"), body, dots, after);
    Object.assign(node, { body, dots, after });
    return node;
  }

  function draw() {
    const view = page.view;
    if (!view) return;
    const live = page.live;
    const messages = view.messages.filter((one) => !live || one.id !== live.id);
    if (page.sending) messages.push({ id: "sending", role: "user", ...page.sending });
    if (live) messages.push({ id: live.id || "live", role: "assistant", pieces: live.pieces });
    const column = log.firstElementChild && log.firstElementChild.classList.contains("wide") ? log.firstElementChild : h("div", { className: "wide" });
    if (!column.parentNode) log.replaceChildren(column);
    const wanted = [];
    const lastReply = [...messages].reverse().find((one) => one.role === "assistant");
    for (const message of messages) {
      const isReply = message.role === "assistant" && message.pieces;
      let kept = nodes.get(message.id);
      const json = isReply ? "reply" : JSON.stringify(message);
      if (!kept || kept.json !== json) {
        kept = { json, node: isReply ? replyNode() : saidNode(message) };
        nodes.set(message.id, kept);
      }
      if (isReply) {
        drawReply(kept.node, blocksOf(message.pieces), Boolean(live && message === lastReply));
        kept.node.classList.toggle("last", message === lastReply);
        drawAfter(kept.node.after, message, message === lastReply);
      }
      wanted.push(kept.node);
    }
    if (!messages.length && !live) wanted.push(emptyNode());
    wanted.push(...notes());
    wanted.forEach((node, index) => { if (column.children[index] !== node) column.insertBefore(node, column.children[index] || null); });
    while (column.children.length > wanted.length) column.lastChild.remove();
    stick();
    drawBars();
  }

  // Who reads the newest message goes on to see it, also when the window or a column changes its size.
  let isLow = true;
  const stick = () => { if (isLow) log.scrollTop = log.scrollHeight; };
  log.addEventListener("scroll", () => { isLow = log.scrollHeight - log.scrollTop - log.clientHeight < 80; });
  new ResizeObserver(stick).observe(log);

  // A drawing that took long is followed by a longer pause, so that a long reply leaves the page time for the user.
  let drawing = 0, took = 0;
  const drawNow = () => {
    const from = performance.now();
    drawing = 0;
    draw();
    took = performance.now() - from;
  };
  const drawSoon = () => { drawing = drawing || setTimeout(() => requestAnimationFrame(drawNow), Math.min(1000, 4 * took)); };

  function drawAfter(node, message, isLast) {
    const buttons = [];
    if (!page.live) {
      const text = message.pieces.filter((one) => one.type === "text").map((one) => one.text).join("");
      if (text && navigator.clipboard) buttons.push(["Copy", async (event) => { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; }]);
      if (isLast && !page.about.read_only && !waiting().length && questionOf(message.id)) buttons.push([isUnfinished() ? "Continue" : "Regenerate", () => (isUnfinished() && isWaiting() ? goOnWithIt() : again(message.id, questionOf(message.id)))]);
    }
    const names = buttons.map(([name]) => name).join();
    if (node.names === names) return;
    node.names = names;
    node.replaceChildren(...buttons.map(([name, act]) => h("button", { type: "button", className: "quiet small", onclick: act }, name)));
  }

  // The calls that need an answer. One that is in doubt does not: the turn goes on without it.
  const waiting = () => page.view.pending.filter((one) => one.reason !== "in_doubt");
  const isUnfinished = () => page.view.status === "in_progress" || page.view.status === "failed";
  const isRunning = () => page.view.turn_status === "running";
  // Something waits that nobody runs: a turn that a server left, or a message that a program has added.
  const isWaiting = () => page.view.turn_status === "waiting";
  const questionOf = (id) => page.view.messages.filter((one) => one.role === "user" && one.id.startsWith(`${id}u`)).pop();

  function emptyNode() {
    const hints = page.about.read_only ? [] : page.about.hints;
    return h("div", { className: "empty" }, h("h2", {}, "A new conversation"),
      h("p", { className: "dim" }, page.about.read_only ? "This page only shows what is stored." : "Write a message below to begin."),
      hints.length ? h("div", { className: "hints" }, hints.map((hint) => h("button", { type: "button", onclick: () => send(hint, []) }, hint))) : null);
  }

  function notes() {
    const { view, error, live } = page;
    const last = view.messages[view.messages.length - 1];
    const isStopped = view.turn_status === "stopped";
    const isLeft = !live && last && (isUnfinished() || isStopped || isWaiting());
    if (!error && !isLeft) return [];
    const text = error ? error.text : isStopped ? "You stopped the last turn." : view.status === "failed" ? `The last turn failed (${view.failure || "unknown error"}).`
      : isWaiting() && last.role === "user" ? "A message waits for an answer." : "The last turn is not finished.";
    // Under a reply stands the same button.
    const goOn = isLeft && last.role === "user" && !page.about.read_only && (() => (isWaiting() ? goOnWithIt() : again("", last)));
    const [name, act] = error && error.retry ? ["Try again", error.retry] : ["Continue", goOn];
    // The same note keeps its node, so that a click on its button is not lost.
    if (noted.node && noted.error === error && noted.text === text && noted.id === last?.id) return [noted.node];
    const node = h("div", { className: error ? "note bad" : "note", role: error ? "alert" : null }, h("span", {}, text),
      act ? h("button", { type: "button", className: "small", onclick: act }, name) : null);
    noted = { node, error, text, id: last?.id };
    return [node];
  }
  let noted = {};

  function drawBars() {
    const { view, about, live } = page;
    const isRunning = Boolean(live);
    $("title").textContent = plain(view.title || (view.version === null ? "New conversation" : view.key));
    document.title = `${$("title").textContent} – goaitools`;
    $("badge").hidden = !(about.simulated || view.model === "sim-game-master");
    $("readonly").hidden = !about.read_only;
    $("form").hidden = about.read_only;
    $("skip").href = about.read_only ? "#log" : "#say";
    $("stop").hidden = !isRunning;
    $("send").hidden = isRunning;
    $("send").disabled = isRunning || waiting().length > 0;
    $("model").textContent = waiting().length ? "Answer the call above first." : plain(about.model || view.model);
    $("files").hidden = !page.files.length;
    $("files").replaceChildren(...page.files.map((one, index) => h("span", { className: "file" }, `${one.name} `,
      h("button", { type: "button", className: "quiet small", "aria-label": `Remove ${one.name}`, onclick: () => { page.files.splice(index, 1); drawBars(); } }, "×"))));
  }

  // -------------------------------------------------------------------------------------------- turns

  // Adds a piece of a stream. Texts are joined, so that the pieces of a long reply stay few.
  function add(pieces, piece) {
    const last = pieces[pieces.length - 1];
    if (last && last.type === piece.type && ["text", "reasoning"].includes(piece.type)) pieces[pieces.length - 1] = { ...last, text: last.text + piece.text };
    else pieces.push(piece);
  }

  // Reads the events of a stream, and says how it ended: "done", "stopped", "error", or "" if it broke off.
  async function read(answer, live) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", end = "";
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ done: true }));
      if (done) return end;
      rest += value;
      const frames = rest.split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const fields = Object.fromEntries(frame.split("\n").filter((line) => line.includes(": ")).map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
        if (!fields.event) continue;
        const data = JSON.parse(fields.data || "{}");
        if (fields.event === "started") live.id = data.turn;
        else if (["done", "stopped", "error"].includes(fields.event)) {
          end = fields.event;
          if (end === "error") page.error = { text: data.title };
        } else add(live.pieces, { type: fields.event, ...data });
        if (page.live === live) drawSoon();
      }
    }
  }

  // Runs a turn to its end: the request, its stream, and what is stored then.
  async function run(name, request, pieces = [], id = null) {
    const live = { id, pieces, abort: new AbortController() };
    page.live = live;
    page.error = null;
    draw();
    let end = "";
    try {
      const answer = await request(live.abort.signal);
      announce(name);
      if (answer.status !== 204) end = await read(answer, live);
    } catch (error) {
      if (error.name === "AbortError") return "left";
      if (page.live === live) page.live = null;
      throw error;
    }
    if (page.live !== live) return "left";
    if (end) tell(end === "done" ? "The reply is complete." : end === "stopped" ? "Stopped." : "The reply failed.");
    await settle(name, live);
    return end;
  }

  async function settle(name, live) {
    const keep = page.error;
    for (let tries = 0; ; tries++) {
      try {
        await load(name);
        break;
      } catch (error) {
        if (tries === 5) { page.error = { text: error.message, retry: () => open(name) }; break; }
        await new Promise((done) => setTimeout(done, 500 * 2 ** tries));
      }
    }
    if (page.live !== live || page.name !== name) return;
    page.live = null;
    page.sending = null;
    if (keep) page.error = keep;
    if (isRunning()) follow(name);
    else draw();
    const isDecided = waiting().length && waiting().every((one) => page.decisions[one.id]);
    if (isDecided && !page.live) answerAll();
    else if (waiting().length) tell(`${waiting().map((one) => one.name).join(", ")}: needs your answer.`);
    announce(name);
    listSoon();
    if (!$("facts").hidden) inspect();
    if (!page.live) await entitle(name).catch(() => {}); // the next page that opens it tries again
  }

  const follow = (name) => run(name, (signal) => ask("GET", api(name, "/turns/current"), undefined, { stream: true, signal })).catch(failed);

  const failed = (error) => { page.error = { text: error.message, retry: () => open(page.name) }; draw(); };

  const partsOf = (text, files) => {
    if (!files.length) return { text };
    return { parts: [...files.map((one) => ({ type: "file", url: one.url, media_type: one.media_type, ...(one.name ? { name: one.name } : {}) })), ...(text ? [{ type: "text", text }] : [])] };
  };

  // The conversations that this browser has begun, and that have no title yet. A page may be reloaded or closed
  // before the first reply is complete; the next one that sees it gives the title.
  const BEGUN = "goaitools-begun";
  const begun = () => { try { return [].concat(JSON.parse(localStorage.getItem(BEGUN)) || []); } catch { return []; } };
  const keepBegun = (names) => localStorage.setItem(BEGUN, JSON.stringify(names.slice(-100)));

  async function entitle(name) {
    const { view } = page;
    if (!begun().includes(name) || page.name !== name || page.about.read_only || view.version === null || isRunning()) return;
    const first = view.messages.find((one) => one.role === "user");
    const title = first ? first.text || (first.files || []).map((one) => one.name || one.media_type).join(", ") : "";
    if (!view.title && title) {
      await ask("POST", at(name, "/title"), { title: title.replace(/\s+/g, " ").trim().slice(0, 60) });
      await load(name);
      draw();
      listSoon();
    }
    keepBegun(begun().filter((one) => one !== name));
  }

  async function send(text, files, id = freshId()) {
    const name = page.name;
    if (page.view.version === null) keepBegun([...begun().filter((one) => one !== name), name]);
    page.sending = { text, files };
    const body = { ...partsOf(text, files), turn_id: id };
    try {
      await run(name, (signal) => ask("POST", api(name, "/turns"), body, { stream: true, signal }));
    } catch (error) {
      if (page.name !== name) return;
      page.sending = null;
      if (!say.value) { say.value = text; grow(); }
      // A refusal names the media types that the model does not take.
      const refused = files.filter((one) => error.status === 400 && error.message.includes(one.media_type.split(";")[0]));
      if (!page.files.length) page.files = files.filter((one) => !refused.includes(one));
      const which = refused.length ? `${refused.map((one) => one.name || one.media_type).join(", ")} cannot be sent: ` : "";
      page.error = { text: `Not sent. ${which}${error.message}`, retry: error.retryable ? () => { say.value = ""; page.files = []; send(text, files, id); } : null };
      draw();
    }
  }

  // Has a reply written again, or goes on with a turn that has none ("").
  async function again(replyId, question) {
    const name = page.name;
    if (page.live) return;
    const body = { ...partsOf(question.text, question.files || []), turn_id: freshId(), again: replyId };
    page.view.messages = page.view.messages.filter((one) => one.id !== replyId);
    tell("The reply is written again.");
    await run(name, (signal) => ask("POST", api(name, "/turns"), body, { stream: true, signal })).catch((error) => { failed(error); });
  }

  // Goes on with what waits. The server answers 204 if somebody else was faster, and the page reads what is stored.
  const goOnWithIt = () => {
    const name = page.name;
    return page.live ? null : run(name, (signal) => ask("POST", api(name, "/turns/current"), {}, { stream: true, signal })).catch(failed);
  };

  async function decide(id, answer) {
    page.decisions[id] = answer;
    const pending = waiting();
    // While a turn runs, the server has not told yet what waits: then `settle` sends the answers.
    if (page.live || pending.some((one) => !page.decisions[one.id])) return draw();
    await answerAll();
  }

  // Sends the decisions on all calls that wait.
  async function answerAll() {
    const answers = Object.fromEntries(waiting().map((one) => [one.id, page.decisions[one.id]]));
    page.decisions = Object.create(null);
    const name = page.name, reply = [...page.view.messages].reverse().find((one) => one.pieces);
    const pieces = reply.pieces.filter((one) => one.type !== "pending");
    page.view.pending = [];
    log.focus();
    await run(name, (signal) => ask("POST", api(name, "/answers"), { answers }, { stream: true, signal }), pieces, reply.id)
      .catch(async (error) => { await load(name).catch(() => {}); failed(error); });
  }

  async function stop() {
    $("stop").disabled = true;
    try { await ask("DELETE", api(page.name, "/turns/current")); } catch (error) { failed(error); }
    $("stop").disabled = false;
    say.focus();
  }

  // ------------------------------------------------------------------------------------ conversations

  async function load(name) {
    const view = await ask("GET", at(name));
    if (page.name === name) page.view = view;
    return view;
  }

  async function open(name) {
    const number = ++page.opened;
    if (page.live) page.live.abort.abort();
    const isOther = page.name !== name;
    Object.assign(page, { name, live: null, sending: null, decisions: Object.create(null), error: null });
    if (isOther) { nodes.clear(); page.files = []; log.replaceChildren(); isLow = true; }
    let view;
    try {
      view = await load(name);
    } catch (error) {
      if (number !== page.opened) return;
      if (error.status === 400) { location.replace(address(newName())); return; } // no key has this name
      page.view = page.view || { key: name, version: null, title: "", status: "", model: "", turn_status: "none", pending: [], messages: [] };
      return failed(error);
    }
    if (number !== page.opened) return;
    draw();
    drawList();
    if (!$("facts").hidden) inspect();
    if (isRunning()) await follow(name);
    else await entitle(name).catch(() => {});
  }

  // The same conversation, as it is now: another tab, or a program, has changed it.
  async function refresh() {
    if (page.live || !page.name || !page.view) return;
    const name = page.name;
    const view = await ask("GET", at(name));
    if (page.live || page.name !== name) return;
    page.view = view;
    page.error = null;
    draw();
    if (isRunning()) return follow(name);
    if (!$("facts").hidden) inspect();
  }

  const announce = (name) => { if (tabs) tabs.postMessage(name); };
  if (tabs) tabs.onmessage = ({ data }) => { if (data === page.name) refresh().catch(() => {}); listSoon(); };

  async function list() {
    const rows = [];
    let cursor = null;
    do {
      const found = await ask("GET", `conversations${cursor ? `?cursor=${encodeURIComponent(cursor)}` : ""}`);
      rows.push(...found.conversations.filter((row) => row.name !== null));
      cursor = found.cursor;
    } while (cursor && rows.length < 2000);
    page.rows = rows.sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
    drawList();
    const own = page.rows.find((row) => row.name === page.name);
    if (own && page.view && !page.live && own.version !== page.view.version) await refresh();
  }
  let listing = 0;
  const listSoon = () => { clearTimeout(listing); listing = setTimeout(() => list().catch(() => {}), 150); };

  const MARKS = { awaiting_tools: "needs an answer", in_progress: "unfinished", failed: "failed" };

  function since(iso) {
    const seconds = (Date.now() - Date.parse(iso)) / 1000;
    if (seconds < 60) return "now";
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    return new Date(iso).toLocaleDateString();
  }

  let drawn = "";
  function drawList() {
    const wanted = $("filter").value.toLowerCase();
    const rows = page.rows.filter((row) => `${row.title} ${row.key}`.toLowerCase().includes(wanted)).slice(0, 500);
    const json = JSON.stringify([rows.map((row) => [row.name, row.title, row.status, row.running, row.turns, row.cost_usd, since(row.updated_at)]), page.name]);
    if (json === drawn) return;
    drawn = json;
    const focused = document.activeElement && document.activeElement.hash;
    $("list").replaceChildren(...rows.map((row) => h("li", {}, h("a", { href: address(row.name), "aria-current": row.name === page.name ? "page" : null },
      h("strong", {}, row.title || row.key),
      h("small", {}, [since(row.updated_at), row.turns === null ? null : `${row.turns} ${row.turns === 1 ? "turn" : "turns"}`, dollars(row.cost_usd)].filter(Boolean).join(" · "),
        row.running || MARKS[row.status] ? h("span", { className: "mark" }, ` · ${row.running ? "running" : MARKS[row.status]}`) : null)))));
    if (!rows.length) $("list").append(h("li", { className: "dim" }, h("small", {}, page.rows.length ? "Nothing fits." : "No conversations yet.")));
    if (focused) for (const link of $("list").querySelectorAll("a")) if (link.hash === focused) link.focus();
  }

  const dollars = (value) => (value === null || value === undefined ? null : value === 0 ? "$0" : value < 0.01 ? `$${value.toFixed(5)}` : `$${value.toFixed(2)}`);
  const counted = (value) => Number(value).toLocaleString("en");
  const sized = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1048576).toFixed(1)} MB`);
  const lasted = (seconds) => (seconds === null ? "" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

  const address = (name) => `#/${encodeURIComponent(name)}`;

  // The conversation that the address names, "" if it names none: the names are those that the server takes.
  function named() {
    let name = "";
    try { name = location.hash.startsWith("#/") ? decodeURIComponent(location.hash.slice(2)) : ""; } catch { /* such as 100% */ }
    return /^[A-Za-z0-9._~@:+-]{1,128}$/.test(name) && !/^\.+$/.test(name) ? name : "";
  }

  function route() {
    const name = named();
    closeMenu();
    if (!name) { location.replace(address(newName())); return; }
    if (name !== page.name) open(name).catch(failed);
  }
  const newName = () => `${new Date().toISOString().slice(0, 10)}-${freshId().slice(0, 6)}`;

  // ---------------------------------------------------------------------------------------- inspector

  let inspected = 0;
  async function inspect() {
    const number = ++inspected, name = page.name, aside = $("facts");
    if (page.view && page.view.version === null) return aside.replaceChildren(h("p", { className: "dim" }, "Nothing is stored yet."));
    let facts;
    try { facts = await ask("GET", at(name, "/facts")); } catch (error) {
      if (number === inspected) aside.replaceChildren(h("p", { className: "note bad" }, error.message));
      return;
    }
    if (number !== inspected || name !== page.name) return;
    const opened = new Set([...aside.querySelectorAll("details[open]")].map((one) => one.dataset.at));
    const top = aside.scrollTop;
    aside.replaceChildren(context(facts), spending(facts), turns(facts), ...[compare(facts)].filter(Boolean), cuts(facts), state(facts));
    for (const one of aside.querySelectorAll("details")) if (opened.has(one.dataset.at)) one.open = true;
    aside.scrollTop = top;
  }

  const section = (title, ...children) => h("section", {}, h("h2", {}, title), children);
  const facts = (pairs) => h("dl", {}, pairs.filter(([, value]) => value !== null && value !== "" && value !== undefined).flatMap(([name, value]) => [h("dt", {}, name), h("dd", { className: "num" }, value)]));

  function gauge(fraction, level, label) {
    const bar = h("i");
    bar.style.width = `${Math.min(100, fraction * 100)}%`;
    return h("div", { className: `track ${level}`, role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.round(fraction * 100)) }, bar);
  }

  function context({ state }) {
    const window = state.context_window;
    const [limit, fullest] = Object.entries(state.filled).sort((a, b) => b[1] - a[1])[0] || ["", 0];
    const share = window ? state.tokens / window : fullest;
    const label = window ? `${counted(state.tokens)} of ${counted(window)} tokens` : `${counted(state.tokens)} tokens; the model's window is not known`;
    return section("Context", gauge(share, state.warning_level, "How full the context is"),
      h("div", { className: "num" }, label),
      window ? null : h("div", { className: "dim num" }, `fullest limit: ${limit.replace("_", " ")}, ${(fullest * 100).toFixed(1)} %`));
  }

  const figure = (value, name) => h("div", { className: "figure" }, h("b", {}, value), h("span", { className: "dim" }, name));
  const cached = (usage) => (usage.input_tokens ? `${Math.round((100 * usage.cached_input_tokens) / usage.input_tokens)} %` : "–");

  function spending({ usage, cost_usd, aside }) {
    return section("Spent", h("div", { className: "figures" },
      figure(dollars(cost_usd) || "–", cost_usd === null ? "price unknown" : "cost"),
      figure(cached(usage), "read from cache"), figure(counted(usage.requests), "model calls")),
    h("p", { className: "dim num" }, `${counted(usage.input_tokens)} tokens in, ${counted(usage.output_tokens)} out`,
      aside.requests ? `; ${counted(aside.input_tokens + aside.output_tokens)} of them for summaries` : ""));
  }

  function turns(found) {
    return section("Turns", found.turns.length ? null : h("p", { className: "dim" }, "No turn yet."), ...found.turns.map((turn) => turnNode(turn, found)));
  }

  async function showIn(out, number, path, write) {
    try { out.replaceChildren(...write(await ask("GET", at(page.name, `/turns/${number}/${path}`)))); } catch (error) { out.replaceChildren(h("p", { className: "dim" }, error.message)); }
  }

  // The difference between the states after any two turns.
  function compare(found) {
    const numbers = [...found.numbers].reverse(), out = h("div", { className: "raw", role: "status" });
    if (numbers.length < 2) return null;
    const texts = new Map(found.turns.map((turn) => [turn.number, turn.said]));
    const choice = (id, label, among, chosen) => h("div", {}, h("label", { className: "dim", htmlFor: id }, label), h("select", { id }, among.map((number) => h("option", { value: number, selected: number === chosen },
      number ? `${number} ${(texts.get(number) ?? "(cut)").slice(0, 40)}` : "the beginning"))));
    const from = choice("from", "After turn", [...numbers.slice(1), 0], numbers[1]), to = choice("to", "and after turn", numbers, numbers[0]);
    const act = () => {
      const [since, number] = [from, to].map((one) => Number(one.lastChild.value)).sort((a, b) => a - b);
      if (since === number) return out.replaceChildren(h("p", { className: "dim" }, "Choose two turns."));
      return showIn(out, number, `diff?since=${since}`, diffNodes);
    };
    return section("Compare", h("div", { className: "compare" }, from, to, h("button", { type: "button", className: "small", onclick: act }, "Compare")), out);
  }

  function turnNode(turn, found) {
    const out = h("div", { className: "raw" });
    const show = (path, write) => () => showIn(out, turn.number, path, write);
    const button = (name, act) => h("button", { type: "button", className: "small", onclick: act }, name);
    const rows = turn.iterations.filter((one) => one.usage.requests).map((one, at) => h("tr", {},
      h("td", {}, one.calls.length ? `${at + 1}: ${one.calls.map((call) => `${call.name} (${call.flag || "–"})`).join(", ")}` : `${at + 1}: ${one.finish_reason || "reply"}`),
      h("td", {}, counted(one.usage.input_tokens)), h("td", {}, cached(one.usage)), h("td", {}, counted(one.usage.output_tokens)), h("td", {}, lasted(one.seconds))));
    const made = h("details", { className: "turn" },
      h("summary", {}, h("span", { className: "dim num" }, turn.number), h("span", {}, turn.said || "…"), h("span", { className: "dim" }, turn.status === "complete" ? lasted(turn.seconds) : MARKS[turn.status] || turn.status)),
      turn.failure ? h("p", { className: "mark" }, turn.failure) : null,
      rows.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Model call", "In", "Cached", "Out", "Took"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)) : null,
      h("div", { className: "row" }, button("Raw entries", show("raw", rawNodes)), button("What it changed", show("diff", diffNodes)),
        page.about.read_only ? null : button("Fork after it", () => fork(turn.number)),
        page.about.read_only ? null : button("Rewind to before it", () => rewind(turn.number, found.numbers.filter((number) => number >= turn.number).length))),
      out);
    made.dataset.at = `turn ${turn.number}`;
    return made;
  }

  const rawNodes = (iterations) => iterations.flatMap((entries, index) => [h("div", { className: "dim" }, `iteration ${index + 1}`), ...entries.map((entry) => h("pre", { tabIndex: 0 }, pretty(entry)))]);

  function diffNodes(diff) {
    const change = (pair) => (pair[0] === pair[1] ? null : `${pair[0] === "" ? "–" : pair[0]} → ${pair[1] === "" ? "–" : pair[1]}`);
    const listed = (numbers) => (numbers.length ? numbers.join(", ") : null);
    return [facts([["turns added", listed(diff.added)], ["turns changed", listed(diff.changed)], ["turns removed", listed(diff.removed)],
      ["notes added", diff.notes_added || null], ["unfinished turn", change(diff.unfinished.map((one) => (one ? "yes" : "no")))],
      ["waiting", change(diff.waiting)], ["history", `${sized(diff.history_bytes[0])} → ${sized(diff.history_bytes[1])}`],
      ["stored", `${sized(diff.bytes[0])} → ${sized(diff.bytes[1])}`],
      ...Object.entries(diff.facts).map(([name, pair]) => [name.replace("_", " "), change(pair)])])];
  }

  function cuts({ cuts, state }) {
    if (!cuts.length) return section("Cuts", h("p", { className: "dim" }, "Nothing was cut."));
    const out = h("div");
    const show = async () => {
      const removed = await ask("GET", at(page.name, "/removed"));
      out.replaceChildren(...(removed.length ? removed.map((turn) => h("details", { className: "turn" }, h("summary", {}, h("span", { className: "dim num" }, turn.number), h("span", {}, turn.said || "…")), h("div", { className: "text" }, turn.reply))) : [h("p", { className: "dim" }, "The archive has none of them.")]));
    };
    return section("Cuts", h("table", {}, h("tbody", {}, cuts.map((cut) => h("tr", {}, h("td", {}, cut.by), h("td", {}, `${cut.turns} ${cut.turns === 1 ? "turn" : "turns"}, ${cut.messages} messages`), h("td", {}, new Date(cut.at).toLocaleTimeString()))))),
      state.archive_records ? h("div", { className: "row" }, h("button", { type: "button", className: "small", onclick: () => show().catch(failed) }, "What was removed")) : null, out);
  }

  function state({ state, cuts }) {
    return section("State", facts([["status", state.status.replace("_", " ")], ["model", state.model], ["provider API", state.wire], ["server", state.endpoint],
      ["turns", state.turns_processed === state.turns ? counted(state.turns) : `${counted(state.turns)}, of ${counted(state.turns_processed)} ever`], ["messages", counted(state.messages)],
      ["waiting", state.waiting_messages ? counted(state.waiting_messages) : null], ["stored", sized(state.blob_bytes)], ["history", sized(state.history_bytes)],
      ["archive", state.archive_records ? `${sized(state.archive_bytes)}, ${counted(state.archive_records)} records` : null],
      ["media", state.media ? `${counted(state.media)}, ${sized(state.media_bytes)}` : null], ["cuts", counted(cuts.length)], ["protection", state.suite],
      ["format", `version ${state.format_version}`], ["revision", counted(state.revision)], ["id", state.conversation_id],
      ["begun", new Date(state.created_at).toLocaleString()], ["updated", new Date(state.updated_at).toLocaleString()],
      ...Object.entries(state.metadata)]),
    page.about.read_only ? null : h("div", { className: "row" }, h("button", { type: "button", className: "small", onclick: () => fork(null) }, "Fork the conversation"),
      h("button", { type: "button", className: "small", onclick: forget }, "Delete it")));
  }

  async function fork(after) {
    try {
      const made = await ask("POST", at(page.name, "/fork"), { after });
      listSoon();
      location.hash = address(made.name);
      tell("This is the copy.");
    } catch (error) { failed(error); }
  }

  async function rewind(before, turns) {
    if (!(await sure("Rewind?", turns === 1 ? "The newest turn is taken out of the conversation." : `The newest ${turns} turns are taken out of the conversation.`, "Rewind"))) return;
    try { await ask("POST", at(page.name, "/rewind"), { before }); announce(page.name); await open(page.name); listSoon(); } catch (error) { failed(error); }
  }

  async function forget() {
    if (!(await sure("Delete this conversation?", "It is deleted from the store, and nothing brings it back.", "Delete"))) return;
    try { await ask("DELETE", api(page.name, "")); announce(page.name); listSoon(); location.hash = address(newName()); } catch (error) { failed(error); }
  }

  function sure(title, text, yes) {
    $("asktitle").textContent = title;
    $("asktext").textContent = text;
    $("askyes").textContent = yes;
    const dialog = $("ask");
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
  }

  // --------------------------------------------------------------------------------------- the controls

  function grow() {
    say.style.height = "auto";
    say.style.height = `${say.scrollHeight}px`;
  }

  function submit() {
    const text = say.value.trim();
    if (page.live || !page.view || waiting().length || (!text && !page.files.length)) return;
    const files = page.files;
    say.value = "";
    page.files = [];
    grow();
    isLow = true;
    send(text, files);
  }

  // Takes files into the message box. One that cannot be sent stays out, and the page says which and why.
  async function attach(files) {
    const name = page.name, refused = [], most = Math.floor(page.about.body_bytes * 0.7); // base64 is a third longer
    const sizeOf = (url) => Math.floor((url.length * 3) / 4);
    for (const file of files) {
      const used = page.files.reduce((sum, one) => sum + sizeOf(one.url), 0);
      if (!file.size) { refused.push(`${file.name} was not attached: it is empty.`); continue; }
      if (file.size > most - used) {
        refused.push(`${file.name} was not attached: it has ${sized(file.size)}, and the files of a message may have ${sized(most)} together${used ? `, of which ${sized(used)} are used` : ""}.`);
        continue;
      }
      const url = await new Promise((done) => {
        const reader = new FileReader();
        reader.onload = () => done(reader.result);
        reader.onerror = () => done(null);
        reader.readAsDataURL(file);
      });
      if (page.name !== name) return;
      if (url === null) refused.push(`${file.name} was not attached: it cannot be read.`);
      else page.files.push({ name: file.name, media_type: file.type || "application/octet-stream", url });
    }
    if (refused.length || (page.error && page.error.isOfFiles)) page.error = refused.length ? { text: refused.join(" "), isOfFiles: true } : null;
    draw();
  }

  const closeMenu = () => { $("side").classList.remove("open"); $("menu").setAttribute("aria-expanded", "false"); };

  $("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  say.addEventListener("input", grow);
  say.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); } });
  say.addEventListener("paste", (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach([...event.clipboardData.files]).catch(failed); } });
  $("attach").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async (event) => { const files = [...event.target.files]; event.target.value = ""; await attach(files).catch(failed); say.focus(); });
  $("form").addEventListener("dragover", (event) => event.preventDefault());
  $("form").addEventListener("drop", (event) => { event.preventDefault(); attach([...event.dataTransfer.files]).catch(failed); });
  $("stop").addEventListener("click", stop);
  $("new").addEventListener("click", () => { location.hash = address(newName()); say.focus(); });
  $("filter").addEventListener("input", drawList);
  $("app").addEventListener("pointerdown", (event) => { if ($("side").classList.contains("open") && !event.target.closest("nav, #menu")) closeMenu(); });
  $("menu").addEventListener("click", () => { const isOpen = $("side").classList.toggle("open"); $("menu").setAttribute("aria-expanded", String(isOpen)); if (isOpen) $("new").focus(); });
  $("inspect").addEventListener("click", () => {
    const isOpen = $("facts").hidden;
    $("facts").hidden = !isOpen;
    $("inspect").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) inspect();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || $("ask").open) return;
    if ($("side").classList.contains("open")) { closeMenu(); $("menu").focus(); } else if (page.live && !page.about.read_only) stop();
  });
  $("skip").addEventListener("click", (event) => { event.preventDefault(); (page.about.read_only ? log : say).focus(); });
  window.addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) listSoon(); });

  const THEMES = ["auto", "light", "dark"];
  function theme(name) {
    document.documentElement.style.colorScheme = name === "auto" ? "" : name;
    $("theme").textContent = `Theme: ${name}`;
    localStorage.setItem("goaitools-theme", name);
  }
  $("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(localStorage.getItem("goaitools-theme")) + 1) % 3]));
  theme(THEMES.includes(localStorage.getItem("goaitools-theme")) ? localStorage.getItem("goaitools-theme") : "auto");

  function signIn() {
    for (const one of $("app").children) one.hidden = one.id !== "login";
    $("token").focus();
  }
  $("signin").addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await fetch("login", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: $("token").value }) }).catch(() => null);
    if (answer && answer.ok) return location.reload();
    $("wrong").hidden = false;
    return $("token").focus();
  });

  async function begin() {
    page.about = await ask("GET", "about");
    route();
    await list();
    setInterval(() => { if (!document.hidden) listSoon(); }, 4000);
  }
  begin().catch((error) => { if (error.status !== 401) log.replaceChildren(h("p", { className: "note bad wide", role: "alert" }, error.message)); });
})();
