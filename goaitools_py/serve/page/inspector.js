"use strict";
// The inspector: facts of a state, its turns with their model calls, cuts and differences, as elements. It asks the
// server through `ask`, and changes nothing itself: `act` has what its buttons do.
const Inspector = (page, ask, at, act) => {
  const { counted, dollars, h, lasted, pretty, sized } = Values;

  const MARKS = { awaiting_tools: "needs an answer", in_progress: "unfinished", failed: "failed" };

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
        page.about.read_only ? null : button("Fork after it", () => act.fork(turn.number)),
        page.about.read_only ? null : button("Rewind to before it", () => act.rewind(turn.number, found.numbers.filter((number) => number >= turn.number).length))),
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
      state.archive_records ? h("div", { className: "row" }, h("button", { type: "button", className: "small", onclick: () => show().catch(act.failed) }, "What was removed")) : null, out);
  }

  function state({ state, cuts }) {
    return section("State", facts([["status", state.status.replace("_", " ")], ["model", state.model], ["provider API", state.wire], ["server", state.endpoint],
      ["turns", state.turns_processed === state.turns ? counted(state.turns) : `${counted(state.turns)}, of ${counted(state.turns_processed)} ever`], ["messages", counted(state.messages)],
      ["waiting", state.waiting_messages ? counted(state.waiting_messages) : null], ["stored", sized(state.blob_bytes)], ["history", sized(state.history_bytes)],
      ["archive", state.archive_records ? `${sized(state.archive_bytes)}, ${counted(state.archive_records)} records` : null],
      ["media", state.media ? `${counted(state.media)}, ${sized(state.media_bytes)}` : null],
      ["long results", state.results ? `${counted(state.results)}, ${sized(state.result_bytes)}` : null], ["cuts", counted(cuts.length)], ["protection", state.suite],
      ["format", `version ${state.format_version}`], ["revision", counted(state.revision)], ["id", state.conversation_id],
      ["begun", new Date(state.created_at).toLocaleString()], ["updated", new Date(state.updated_at).toLocaleString()],
      ...Object.entries(state.metadata)]),
    page.about.read_only ? null : h("div", { className: "row" }, h("button", { type: "button", className: "small", onclick: () => act.fork(null) }, "Fork the conversation"),
      h("button", { type: "button", className: "small", onclick: act.forget }, "Delete it")));
  }

  const sections = (found) => [context(found), spending(found), turns(found), ...[compare(found)].filter(Boolean), cuts(found), state(found)];

  return { MARKS, sections };
};
