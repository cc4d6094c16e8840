"use strict";
// The page of `goaitools serve`. Every text from outside becomes a text node; nothing is parsed as HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  const log = $("log"), say = $("say");
  const { plain } = Markdown;
  const { dollars, freshId, h, json, sized } = Values;

  // ------------------------------------------------------------------------------------------- state

  const page = {
    about: { model: "", simulated: false, read_only: false, steers: false, hints: [], body_bytes: 1e6 },
    rows: [],
    name: null, // the conversation that is shown
    view: null, // what the server has told of it
    live: null, // the reply that comes: {id, pieces, abort}
    sending: null, // what was said and is not in the history yet
    typed: [], // said while a turn runs, without an answer: {id, text, files, before, abort}
    decisions: Object.create(null), // answers to calls that wait, by call id: any text, also "constructor"
    files: [],
    editing: null, // the message of the user that the next one replaces
    error: null,
    opened: 0, // counts opens: an answer to an older one is dropped
  };
  const nodes = new Map(); // message id -> {json, node}
  const MOST_TYPED = 3; // each has one of six connections
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

  function tell(text) {
    $("status").textContent = "";
    requestAnimationFrame(() => { $("status").textContent = text; });
  }

  const { blockNode, blocksOf, saidNode } = Cards(page, (id, answer) => decide(id, answer), () => stick(), (message) => edit(message));
  const { MARKS, sections } = Inspector(page, ask, at, { failed: (error) => failed(error), fork, rewind, forget });

  // ----------------------------------------------------------------------------------------- messages

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
    for (const { id, text, files } of page.typed.filter((one) => said(one.text) <= one.before)) messages.push({ id, role: "user", text, files, waits: true });
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
      kept.node.classList.toggle("edited", Boolean(page.editing) && page.editing.id === message.id);
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

  // The calls that need an answer. A turn goes on without one in doubt. A stream tells first.
  const asks = (one) => one.reason !== "in_doubt";
  const waiting = () => page.view.pending.filter(asks);
  const isAsked = () => waiting().length || page.live?.pieces.some((one) => one.type === "pending" && asks(one));
  const isUnfinished = () => page.view.status === "in_progress" || page.view.status === "failed";
  const isRunning = () => page.view.turn_status === "running";
  // A turn that a server left waits, or a message that a program has added.
  const isWaiting = () => page.view.turn_status === "waiting";
  const said = (text) => page.view.messages.filter((one) => one.role === "user" && one.text === text).length;
  const canType = () => !page.live || (page.about.steers && page.typed.length < MOST_TYPED);
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
    const isLeft = !live && !page.typed.length && last && (isUnfinished() || isStopped || isWaiting());
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
    $("send").hidden = isRunning && !(canType() && (say.value.trim() || page.files.length));
    const isEdit = Boolean(page.editing);
    $("send").disabled = !canType() || (isAsked() && !isEdit);
    $("model").textContent = isEdit ? "Replaces your message, and everything after it." : isAsked() ? "Answer the call above first." : plain(about.model || view.model);
    $("noedit").hidden = !isEdit;
    $("rename").hidden = $("delete").hidden = about.read_only || view.version === null;
    log.classList.toggle("fixed", about.read_only || isRunning);
    $("files").hidden = !page.files.length;
    $("files").replaceChildren(...page.files.map((one, index) => h("span", { className: "file" }, `${one.name} `,
      h("button", { type: "button", className: "quiet small", "aria-label": `Remove ${one.name}`, onclick: () => { page.files.splice(index, 1); drawBars(); } }, "×"))));
  }

  // -------------------------------------------------------------------------------------------- turns

  // Adds a piece of a stream, and joins texts: so a long reply has few.
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
        if (fields.event === "started") {
          live.id = data.turn;
          if (live.begun) live.begun();
        }
        else if (["done", "stopped", "error"].includes(fields.event)) {
          end = fields.event;
          live.error = data.title;
          if (end === "error" && !live.begun) page.error = { text: data.title };
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
  }

  const follow = (name) => run(name, (signal) => ask("GET", api(name, "/turns/current"), undefined, { stream: true, signal })).catch(failed);

  const failed = (error) => { page.error = { text: error.message, retry: () => open(page.name) }; draw(); };

  const partsOf = (text, files) => {
    if (!files.length) return { text };
    return { parts: [...files.map((one) => ({ type: "file", url: one.url, media_type: one.media_type, ...(one.name ? { name: one.name } : {}) })), ...(text ? [{ type: "text", text }] : [])] };
  };

  // Puts a message back into the box. The next one replaces it and what follows.
  function edit(message) {
    if (page.live || page.about.read_only) return;
    Object.assign(page, { editing: message, files: [...(message ? message.files || [] : [])] });
    say.value = message ? message.text : "";
    grow();
    draw();
    say.focus();
  }

  async function send(text, files, id = freshId(), edited = null) {
    const name = page.name;
    page.sending = { text, files };
    page.editing = null;
    const body = { ...partsOf(text, files), turn_id: id };
    if (edited) {
      body.edit = edited.id;
      page.view.messages = page.view.messages.slice(0, page.view.messages.findIndex((one) => one.id === edited.id));
      page.view.pending = [];
    }
    try {
      await run(name, (signal) => ask("POST", api(name, "/turns"), body, { stream: true, signal }));
    } catch (error) {
      if (page.name !== name) return;
      page.sending = null;
      if (edited) await load(name).catch(() => {});
      page.editing = edited;
      if (!say.value) { say.value = text; grow(); }
      // A refusal names the media types that the model does not take.
      const refused = files.filter((one) => error.status === 400 && error.message.includes(one.media_type.split(";")[0]));
      if (!page.files.length) page.files = files.filter((one) => !refused.includes(one));
      const which = refused.length ? `${refused.map((one) => one.name || one.media_type).join(", ")} cannot be sent: ` : "";
      page.error = { text: `Not sent. ${which}${error.message}`, retry: error.retryable ? () => { say.value = ""; page.files = []; send(text, files, id, edited); } : null };
      draw();
    }
  }

  // Says something while a turn runs. That turn, or one of its own, shows the reply: here only the end counts.
  async function type(text, files, id = freshId()) {
    const name = page.name, same = [page.sending, ...page.typed].filter((one) => one && one.text === text).length;
    const typed = { id, text, files, before: said(text) + same, abort: new AbortController() };
    page.typed.push(typed);
    draw();
    const sink = { pieces: [], id: null, begun: () => { if (!page.live && page.name === name) refresh().catch(() => {}); } };
    let wrong = null;
    try {
      const answer = await ask("POST", api(name, "/turns"), { ...partsOf(text, files), turn_id: id }, { stream: true, signal: typed.abort.signal });
      if ((await read(answer, sink)) === "error") wrong = sink.error;
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong = error.message;
    }
    page.typed = page.typed.filter((one) => one !== typed);
    if (page.name !== name) return;
    if (!page.live) await refresh().catch(() => {});
    if (wrong !== null) {
      if (!page.view.messages.some((one) => one.role === "user" && one.text === text) && !say.value && !page.files.length) { say.value = text; page.files = files; grow(); }
      page.error = { text: `Not answered. ${wrong}` };
    }
    draw();
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
    for (const one of page.typed) one.abort.abort();
    const isOther = page.name !== name;
    Object.assign(page, { name, live: null, sending: null, typed: [], decisions: Object.create(null), error: null, editing: null });
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
    aside.replaceChildren(...sections(facts));
    for (const one of aside.querySelectorAll("details")) if (opened.has(one.dataset.at)) one.open = true;
    aside.scrollTop = top;
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

  async function rename() {
    const title = await sure("Rename", "The title of this conversation, for lists. The model does not read it.", "Save", page.view.title);
    if (title === false) return;
    try { await ask("PATCH", api(page.name, ""), { title: title.trim() }); announce(page.name); await refresh(); listSoon(); } catch (error) { failed(error); }
  }

  async function forget() {
    if (!(await sure("Delete this conversation?", "It is deleted from the store, and nothing brings it back.", "Delete"))) return;
    try { await ask("DELETE", api(page.name, "")); announce(page.name); listSoon(); location.hash = address(newName()); } catch (error) { failed(error); }
  }

  // Asks the user: true or false; with a `value`, the text that they give, or false.
  function sure(title, text, yes, value) {
    $("asktitle").textContent = title;
    $("asktext").textContent = text;
    $("askyes").textContent = yes;
    const dialog = $("ask"), field = $("asked");
    field.hidden = value === undefined;
    field.value = value || "";
    dialog.returnValue = "no";
    dialog.showModal();
    if (!field.hidden) field.select();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes" && (field.hidden || field.value)), { once: true }));
  }

  // --------------------------------------------------------------------------------------- the controls

  function grow() {
    say.style.height = "auto";
    say.style.height = `${say.scrollHeight}px`;
  }

  function submit() {
    const text = say.value.trim();
    const { files, editing } = page;
    if (!canType() || !page.view || (isAsked() && !editing) || (!text && !files.length)) return;
    say.value = "";
    page.files = [];
    grow();
    isLow = true;
    if (page.live) type(text, files);
    else send(text, files, freshId(), editing);
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
  say.addEventListener("input", () => { grow(); if (page.live) drawBars(); });
  say.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); } });
  say.addEventListener("paste", (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach([...event.clipboardData.files]).catch(failed); } });
  $("attach").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async (event) => { const files = [...event.target.files]; event.target.value = ""; await attach(files).catch(failed); say.focus(); });
  $("form").addEventListener("dragover", (event) => event.preventDefault());
  $("form").addEventListener("drop", (event) => { event.preventDefault(); attach([...event.dataTransfer.files]).catch(failed); });
  $("stop").addEventListener("click", stop);
  $("noedit").addEventListener("click", () => edit(null));
  $("rename").addEventListener("click", rename);
  $("delete").addEventListener("click", forget);
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
    if ($("side").classList.contains("open")) { closeMenu(); $("menu").focus(); } else if (page.editing) edit(null); else if (page.live && !page.about.read_only) stop();
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
