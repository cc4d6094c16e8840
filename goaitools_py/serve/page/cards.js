"use strict";
// What was said, as elements: messages, replies in blocks, cards of tool calls, and the forms that wait for an
// answer. It knows no server. `page`: the decisions so far, and whether the page only reads. `decide` takes an
// answer to a call; `stick` keeps the newest message in sight; `edit` takes a message of the user to be changed.
const Cards = (page, decide, stick, edit) => {
  const { Written, brief, h, isJson, json, pretty, readJson, visible } = Values;

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

  function fileNode(one) {
    const name = one.name || one.media_type;
    if (one.media_type.startsWith("image/") && one.url.startsWith("data:")) return h("img", { src: one.url, alt: `Image ${name}`, onload: stick });
    return h("span", { className: "file" }, name);
  }

  function saidNode(message) {
    return h("div", { className: "said" },
      message.speaker || message.role !== "user" ? h("div", { className: "who" }, message.speaker || message.role) : h("h2", { className: "unseen" }, "You"),
      message.files && message.files.length ? h("div", { className: "files" }, message.files.map(fileNode)) : null,
      message.text ? h("div", { className: "text", dir: "auto" }, message.text) : null,
      message.waits ? h("small", { className: "dim" }, "Waits until the model can read it.") : null,
      message.role === "user" && message.id !== "sending" && !message.waits ? h("div", { className: "after" }, h("button", { type: "button", className: "quiet small", onclick: () => edit(message) }, "Edit")) : null);
  }

  return { blockNode, blocksOf, saidNode };
};
