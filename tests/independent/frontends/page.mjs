// The page of `goaitools serve` in a real browser: what a person does, and what the page shows then.
//
//   node page.mjs FOLDER CHROMIUM URL LOCKED CONTROL PICTURES
//
// FOLDER: where npm has installed `playwright-core` and `axe-core`. URL: a page's server. LOCKED: one that asks for
// a token. CONTROL: `inside/NAME` answers once the tool of a scenario runs, `release/NAME` lets it end,
// `ran/NAME` says how often it ran, and `append/NAME` adds a message to a conversation as a program does. PICTURES: a folder for screenshots.
// The answer: for each scenario null, or what went wrong; and what the console and axe-core have said.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [folder, chromium, url, locked, control, pictures] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const browsers = require("playwright-core").chromium;
const AXE = require("axe-core").source;
const PATIENCE = 30_000;
const TOKEN = "a token of this test";

const profile = mkdtempSync(join(tmpdir(), "goaitools-page-"));
const context = await browsers.launchPersistentContext(profile, {
  executablePath: chromium,
  headless: true,
  viewport: { width: 1180, height: 740 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
context.setDefaultTimeout(PATIENCE);
const told = { console: [], axe: {}, scenarios: {} };
let watched = true; // false while a scenario breaks something on purpose
let reading = "";

context.on("page", (page) => {
  page.on("console", (message) => { if (watched && ["error", "warning"].includes(message.type())) told.console.push(`${reading}: ${message.text()}`); });
  page.on("pageerror", (error) => told.console.push(`${reading}: ${error.message}`));
});

function expect(is, what) {
  if (!is) throw new Error(`expected: ${what}`);
}

const ask = async (what, name) => (await fetch(`${control}/${what}/${name}`, { method: "POST" })).json();

// A page with the conversation of this name.
async function opened(name, at = url) {
  const page = await context.newPage();
  await page.goto(`${at}/#/${name}`);
  await page.locator("#say").waitFor();
  await page.locator("#log .empty, #log .said").first().waitFor();
  return page;
}

async function say(page, text) {
  await page.fill("#say", text);
  await page.press("#say", "Enter");
}

const seen = (page, text, within = "#log") => page.locator(within).getByText(text).last().waitFor();
const settled = (page) => page.locator('#send:not([hidden])').waitFor();

// What axe-core finds wrong with the page as it is, by both colours.
async function checked(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.evaluate(AXE); // by the debugger: the page's policy lets no other script in
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    told.axe[`${name}, ${colorScheme}`] = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

const scenarios = {
  async type_and_stream() {
    const page = await opened("stream");
    await checked(page, "empty");
    await say(page, "look stream");
    await seen(page, "Let me see.");
    await ask("inside", "stream");
    expect(await page.locator("#stop").isVisible(), "a stop button while the reply comes");
    expect(await page.locator(".reply[aria-busy=true]").count() === 1, "a reply that is busy");
    await page.locator(".tool summary").getByText("running").waitFor();
    await ask("release", "stream");
    await seen(page, "Done: seen stream");
    await settled(page);
    await page.locator("#list a[aria-current=page]").getByText("look stream").waitFor();
    expect((await page.locator("#title").textContent()) === "look stream", "the first message as the title");
    expect((await page.locator("#say").inputValue()) === "", "an empty box");
    await page.close();
  },

  // What is typed while a reply comes is shown as waiting. The turn that runs reads it, and then it has its place.
  async type_on() {
    const page = await opened("typing");
    await say(page, "look typing");
    await seen(page, "Let me see.");
    await ask("inside", "typing");
    await say(page, "count");
    await seen(page, "Waits until the model can read it.");
    expect((await page.locator("#say").inputValue()) === "", "an empty box");
    await checked(page, "typed");
    await ask("release", "typing");
    await seen(page, "This is reply 1.");
    await settled(page);
    expect(await page.getByText("Waits until").count() === 0, "nothing that waits");
    const said = await page.locator(".said > .text").allTextContents();
    expect(said.join() === "look typing,count", `both messages once, not ${said}`);
    expect(await page.locator("#log .reply").count() === 1, "one reply");
    await page.reload();
    await seen(page, "This is reply 1.");
    expect((await page.locator(".said > .text").allTextContents()).join() === "look typing,count", "the same after a reload");
    await page.close();
  },

  // The turn was stopped before it could read the message: the message gets a turn of its own, which the page shows.
  async type_on_too_late() {
    const page = await opened("late");
    await say(page, "look late");
    await seen(page, "Let me see.");
    await ask("inside", "late");
    await say(page, "look afterwards");
    await seen(page, "Waits until the model can read it.");
    await page.locator("#stop").click();
    await ask("inside", "afterwards");
    await page.locator(".reply[aria-busy=true]").waitFor();
    await ask("release", "afterwards");
    await seen(page, "Done: seen afterwards");
    await settled(page);
    expect((await page.locator(".said > .text").allTextContents()).join() === "look late,look afterwards", "both messages");
    expect(await page.locator("#log .reply").count() === 2, "two replies");
    await page.close();
  },

  async code_is_code() {
    const page = await opened("code");
    await say(page, "code");
    await seen(page, "print(1)");
    expect((await page.locator(".reply pre").first().textContent()) === "print(1)", "a block of code");
    expect((await page.locator(".reply code").first().textContent()) === "x", "a word of code");
    await page.close();
  },

  async copy_of_code() {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const page = await opened("copy");
    await say(page, "code");
    const copy = page.locator(".code").getByRole("button", { name: "Copy" });
    await copy.focus();
    await page.keyboard.press("Enter");
    await page.locator(".code").getByText("Copied").waitFor();
    expect((await page.evaluate(() => navigator.clipboard.readText())) === "print(1)", "the code, and no more");
    await page.close();
  },

  async edit_a_message() {
    const page = await opened("edit");
    for (const text of ["one", "two", "three"]) { await say(page, text); await seen(page, `You said: ${text}`); await settled(page); }
    const second = page.locator(".said").nth(1);
    await second.getByRole("button", { name: "Edit" }).focus();
    await page.keyboard.press("Enter");
    expect((await page.inputValue("#say")) === "two", "the message in the box");
    await checked(page, "a message that is edited");
    await page.keyboard.press("Escape");
    expect((await page.inputValue("#say")) === "", "Escape leaves the message as it is");
    await second.hover();
    await second.getByRole("button", { name: "Edit" }).click();
    await say(page, "zwei");
    await seen(page, "You said: zwei");
    await settled(page);
    const said = async () => (await page.locator(".said > .text").allTextContents()).join();
    expect((await said()) === "one,zwei", "the new message in place of the old ones");
    await page.locator(".said").nth(1).getByRole("button", { name: "Edit" }).click();
    await say(page, "deux");
    await seen(page, "You said: deux");
    await page.reload();
    await seen(page, "You said: deux");
    expect((await said()) === "one,deux", "the same after a reload");
    expect((await page.locator("#title").textContent()) === "one", "the title of the first message");
    await page.close();
  },

  async edit_while_a_call_waits() {
    const page = await opened("instead");
    await say(page, "fire instead");
    await page.getByRole("button", { name: "Approve fire" }).waitFor();
    await page.locator(".said").getByRole("button", { name: "Edit" }).click();
    await say(page, "do not");
    await seen(page, "You said: do not");
    expect(await page.locator(".tool").count() === 0, "no call");
    expect((await ask("ran", "instead")) === 0, "a tool that did not run");
    await page.close();
  },

  async rename_and_delete() {
    const page = await opened("named");
    expect(!(await page.locator("#rename").isVisible()), "nothing to rename yet");
    await say(page, "hello");
    await seen(page, "You said: hello");
    await page.getByRole("button", { name: "Rename" }).click();
    await checked(page, "a new title");
    expect((await page.inputValue("#asked")) === "hello", "the old title");
    await page.fill("#asked", "Greetings");
    await page.keyboard.press("Enter");
    await page.locator("#title").getByText("Greetings").waitFor();
    await page.locator("#list a[aria-current=page]").getByText("Greetings").waitFor();
    await say(page, "again");
    await seen(page, "You said: again");
    expect((await page.locator("#title").textContent()) === "Greetings", "the new title stays");
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.locator("#ask").getByRole("button", { name: "Delete" }).click();
    await page.locator("#log .empty").waitFor();
    await page.locator("#list").getByText("Greetings").waitFor({ state: "detached" });
    await page.close();
  },

  async approve() {
    const page = await opened("approve");
    let tell; // from the stream alone, then also from what is stored
    const told = new Promise((done) => { tell = done; });
    await settled(page);
    await page.route(/conversations\/approve$/, async (route) => { await told; await route.continue(); });
    await say(page, "fire approve");
    const approve = page.getByRole("button", { name: "Approve fire" });
    await approve.waitFor();
    await page.fill("#say", "another message");
    expect(await page.locator("#send").isDisabled(), "no message while a call waits, before the turn has ended");
    await page.keyboard.press("Enter");
    expect(await page.inputValue("#say") === "another message", "a message that stays in its box");
    await page.fill("#say", "");
    tell();
    await page.locator("#stop").waitFor({ state: "hidden" });
    expect(await page.locator("#send").isDisabled(), "no message while a call waits");
    await page.click("#inspect");
    await page.locator("#facts dl").first().waitFor();
    await checked(page, "a call that waits");
    await approve.focus();
    await page.keyboard.press("Enter");
    await seen(page, "Done: hit approve");
    expect((await ask("ran", "approve")) === 1, "a tool that ran once");
    await page.close();
  },

  async approve_after_a_reload() {
    const page = await opened("later");
    await say(page, "fire later");
    await page.getByRole("button", { name: "Approve fire" }).waitFor();
    await page.reload();
    await page.getByRole("button", { name: "Approve fire" }).click();
    await seen(page, "Done: hit later");
    expect((await ask("ran", "later")) === 1, "a tool that ran once");
    await page.close();
  },

  async deny_and_approve() {
    const page = await opened("both");
    await say(page, "fire two");
    await page.getByRole("button", { name: "Approve fire" }).first().waitFor();
    expect(await page.getByRole("button", { name: "Approve fire" }).count() === 2, "two calls that wait");
    await page.getByLabel("Reason to deny fire").first().fill("Too loud.");
    await page.getByRole("button", { name: "Deny" }).first().click();
    await seen(page, "You denied this.");
    await page.getByRole("button", { name: "Approve fire" }).click();
    await page.locator(".chip").getByText("denied").waitFor();
    await seen(page, "Done: hit two");
    expect((await ask("ran", "two")) === 1, "one tool that ran");
    await page.close();
  },

  async parallel() {
    const page = await opened("parallel");
    await ask("release", "side");
    await say(page, "parallel side");
    await page.getByRole("button", { name: "Approve fire" }).waitFor();
    expect((await ask("ran", "side")) === 1, "the call that needs no approval, done");
    expect(await page.locator(".tool:not(.waits) .chip").getByText("done").count() === 1, "its result");
    await page.getByRole("button", { name: "Approve fire" }).click();
    await seen(page, "Done: hit side");
    expect((await ask("ran", "side")) === 2, "two tools that ran once each");
    await page.close();
  },

  async approve_while_the_provider_fails() {
    const page = await opened("shaky");
    await say(page, "fire shaky");
    await page.getByRole("button", { name: "Approve fire" }).click();
    await page.getByRole("alert").waitFor();
    await page.locator(".tool .chip").getByText("done").waitFor();
    await page.getByRole("button", { name: "Continue" }).click();
    await seen(page, "Done: hit shaky");
    expect((await ask("ran", "shaky")) === 1, "a tool that ran once");
    expect(await page.locator("#log .reply").count() === 1, "one reply");
    await page.close();
  },

  async reload_in_mid_reply() {
    const page = await opened("reload");
    await say(page, "look reload");
    await seen(page, "Let me see.");
    await ask("inside", "reload");
    await page.reload();
    await seen(page, "Let me see.");
    expect(await page.locator("#log .said").count() === 1, "the message, once");
    await page.locator("#stop").waitFor();
    await ask("release", "reload");
    await seen(page, "Done: seen reload");
    await page.locator("#title").getByText("look reload").waitFor();
    await page.locator("#list a[aria-current=page]").getByText("look reload").waitFor();
    expect((await ask("ran", "reload")) === 1, "a tool that ran once");
    expect(await page.locator("#log .reply").count() === 1, "one reply");
    await page.close();
  },

  async a_title_after_the_page_was_closed() {
    let page = await opened("closed");
    await say(page, "look closed");
    await seen(page, "Let me see.");
    await ask("inside", "closed");
    await page.close();
    await ask("release", "closed");
    page = await opened("elsewhere");
    await page.locator("#list a strong").getByText("look closed", { exact: true }).click();
    await page.locator("#title").getByText("look closed").waitFor();
    await page.close();
  },

  // Whatever stands behind the sign # leads to a page that answers.
  async odd_addresses() {
    watched = false; // the browser reports answers of 400
    for (const odd of ["#/100%", "#/%E0%A4%A", "#/a%2Fb", "#/..", "#/.", "#/%00", "#/a b", "#/ä", "#/~", "#/~%%%", "#/~AAAA", `#/${"x".repeat(129)}`, "#say", "#", "#/", "#//", "#/a/b", "#/a?b", "#/<script>", "#/\u202e", "#/%F0%9F%98%80"]) {
      const page = await context.newPage();
      await page.goto(`${url}/${odd}`);
      await page.locator("#log .empty").waitFor();
      expect(/#\/[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9a-f]{6}$/.test(page.url()), `a new conversation for ${odd}, not ${page.url()}`);
      expect(await page.getByRole("alert").count() === 0, `no error for ${odd}`);
      if (odd === "#/100%" || odd === "#say") { await say(page, "hello"); await seen(page, "You said: hello"); }
      await page.close();
    }
    const page = await opened("even"); // also while a conversation is shown
    await page.evaluate(() => { location.hash = "#/100%"; });
    await page.waitForURL(/#\/[0-9]{4}-/);
    await page.locator("#log .empty").waitFor();
    await page.close();
    watched = true;
  },

  async stop() {
    const page = await opened("stop");
    await say(page, "look stop");
    await seen(page, "Let me see.");
    await ask("inside", "stop");
    await page.keyboard.press("Escape");
    await settled(page);
    await seen(page, "Let me see.");
    await say(page, "hello");
    await seen(page, "You said: hello");
    await page.close();
  },

  async stop_and_reload() {
    const page = await opened("halt");
    await say(page, "look halt");
    await seen(page, "Let me see.");
    await ask("inside", "halt");
    await page.locator("#stop").click();
    await seen(page, "You stopped the last turn.");
    await page.reload();
    await seen(page, "You stopped the last turn.");
    await settled(page);
    expect((await ask("ran", "halt")) === 1, "a turn that nobody went on with");
    await ask("release", "halt");
    await page.getByRole("button", { name: "Continue" }).click();
    await seen(page, "Done: seen halt");
    await settled(page);
    expect(!(await page.getByText("You stopped the last turn.").isVisible()), "no note of the stop");
    await page.close();
  },

  async a_message_that_waits() {
    const page = await opened("waits");
    await say(page, "count first");
    await seen(page, "This is reply 1.");
    await settled(page);
    await ask("append", "waits");
    await seen(page, "A message waits for an answer."); // the page reads the list every few seconds
    expect(await page.locator("#log .reply").count() === 1, "no reply that nobody has asked for");
    await page.locator(".note").getByRole("button", { name: "Continue" }).click();
    await seen(page, "You said: added");
    await settled(page);
    expect(await page.locator("#log .reply").count() === 2, "a reply to the message");
    await page.close();
  },

  async regenerate() {
    const page = await opened("again");
    await say(page, "count again");
    await seen(page, "This is reply 1.");
    await page.getByRole("button", { name: "Regenerate" }).click();
    await seen(page, "This is reply 2.");
    expect(await page.locator("#log .reply").count() === 1, "one reply");
    expect(await page.locator("#log .said").count() === 1, "one message");
    await page.close();
  },

  async a_provider_that_fails() {
    const page = await opened("fail");
    await say(page, "fail fail");
    await page.getByRole("alert").waitFor();
    await page.getByRole("button", { name: "Continue" }).click();
    await seen(page, "It works again.");
    expect(await page.locator("#log .said").count() === 1, "one message");
    await page.close();
  },

  async two_tabs() {
    const first = await opened("two");
    const second = await opened("two");
    await say(first, "look tabs");
    await seen(first, "Let me see.");
    await seen(second, "Let me see.");
    await ask("inside", "tabs");
    await second.locator("#list a[aria-current=page]").getByText("running").waitFor();
    await ask("release", "tabs");
    await seen(first, "Done: seen tabs");
    await seen(second, "Done: seen tabs");
    await settled(second);
    await say(second, "hello");
    await seen(first, "You said: hello");
    expect((await ask("ran", "tabs")) === 1, "a tool that ran once");
    await first.close();
    await second.close();
  },

  async upload() {
    const page = await opened("upload");
    const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    await page.setInputFiles("#file", { name: "dot.png", mimeType: "image/png", buffer: Buffer.from(png, "base64") });
    await page.locator("#files").getByText("dot.png").waitFor();
    await say(page, "see this");
    await seen(page, "I see a picture.");
    await settled(page);
    const image = page.locator("#log .said img");
    expect((await image.getAttribute("src")) === `data:image/png;base64,${png}`, "the picture");
    expect((await image.evaluate((one) => one.naturalWidth)) === 1, "a picture that is drawn");
    await page.reload();
    await page.locator("#log .said img").waitFor();
    await page.setInputFiles("#file", { name: "notes.md", mimeType: "text/markdown", buffer: Buffer.from("# secret <b>") });
    await say(page, "and this");
    await page.locator("#log .reply").nth(1).getByText("No picture.").waitFor();
    await settled(page);
    for (const round of ["live", "loaded"]) {
      const said = page.locator("#log .said").nth(1);
      expect((await said.locator(".file").textContent()) === "notes.md", `the name of the file, ${round}`);
      expect((await said.locator(".text").textContent()) === "and this", `the message alone, ${round}`);
      await page.reload();
      await page.locator("#log .said").nth(1).waitFor();
    }
    await page.close();
  },

  async refused_files() {
    const page = await opened("refused");
    const file = (name, mimeType, bytes) => ({ name, mimeType, buffer: Buffer.alloc(bytes, 97) });
    await page.route("**/about", async (route) => { const answer = await route.fetch(); await route.fulfill({ json: { ...(await answer.json()), body_bytes: 100_000 } }); });
    await page.reload();
    await page.locator("#log .empty").waitFor();
    await page.setInputFiles("#file", [file("big.txt", "text/plain", 80_000), file("none.txt", "text/plain", 0), file("good.txt", "text/plain", 10)]);
    const alert = page.getByRole("alert").locator("span");
    await alert.waitFor();
    expect((await alert.textContent()) === "big.txt was not attached: it has 78.1 KB, and the files of a message may have 68.4 KB together. none.txt was not attached: it is empty.", `which files, and why: ${await alert.textContent()}`);
    expect((await page.locator("#files .file").allTextContents()).join() === "good.txt ×", "the good file alone in the box");
    watched = false; // the browser reports the answer of 400
    await page.setInputFiles("#file", file("bad.ogg", "audio/ogg", 10));
    await page.locator("#files").getByText("bad.ogg").waitFor();
    expect(await page.getByRole("alert").count() === 0, "no error of files before");
    await say(page, "hear this");
    await alert.getByText("bad.ogg cannot be sent").waitFor();
    expect((await alert.textContent()).includes("the model does not take a file of this type: audio/ogg"), "why");
    expect((await page.locator("#files .file").allTextContents()).join() === "good.txt ×", "the refused file is gone, the good one stays");
    expect((await page.locator("#say").inputValue()) === "hear this", "the message back in the box");
    await page.press("#say", "Enter");
    await settled(page);
    await seen(page, "No picture.");
    expect(await page.locator("#files").isHidden(), "an empty box");
    await page.close();
    watched = true;
  },

  async hostile_text_stays_text() {
    const name = encodeURIComponent('~PGltZyBzcmM9eCBvbmVycm9yPXB3bmVkPTE-');
    const page = await opened(name);
    const evil = '<img src=x onerror="pwned=1"><script>pwned=1</script><a href="javascript:pwned=1">x</a>';
    await say(page, `evil ${evil}`);
    await page.getByRole("button", { name: /^Approve/ }).click();
    await seen(page, `Done: hit ${evil}`);
    await settled(page);
    await page.locator(".tool summary").click();
    await page.click("#inspect");
    await page.locator("#facts .turn summary").first().click();
    await page.getByRole("button", { name: "Raw entries" }).click();
    await page.locator(".raw pre").first().waitFor();
    await page.reload();
    await seen(page, `Done: hit ${evil}`);
    expect((await page.evaluate(() => globalThis.pwned)) === undefined, "no script of a text that ran");
    expect(await page.locator("main img, main a, main script, aside img, nav img").count() === 0, "no element of a text");
    expect((await page.locator("#log .said .text").textContent()).endsWith(evil), "the text as it was");
    watched = false; // the browser reports this attempt
    expect((await page.evaluate(() => { try { document.body.innerHTML = "<b>x</b>"; return "made"; } catch (error) { return error.name; } })) === "TypeError", "a policy that lets no text become HTML");
    watched = true;
    await page.close();
  },

  // Everything that the server tells of a conversation is hostile: ids, names, files, flags, forms, and the stream.
  async a_hostile_conversation() {
    const page = await context.newPage();
    const evil = '<img src=x onerror="pwned=1"><a href="javascript:pwned=1">x</a>';
    const ids = ["__proto__", "constructor", "toString", "a b"];
    const none = { toString: 1, valueOf: 1 };
    const forms = [
      { message: evil, schema: { properties: { x: { title: none, default: none } } } },
      { message: evil, schema: { properties: { x: { oneOf: [1, "a"] } } } },
      { message: evil, schema: { properties: { x: { type: "array", items: { enum: 7, anyOf: [null] } }, __proto__: 1 } } },
      { message: evil, schema: { properties: { x: { enum: [none], format: "constructor" } } } },
      { message: evil, url: "javascript:pwned=1", tool: none },
      { message: evil, url: "data:text/html,<script>pwned=1</script>" },
      { message: evil, url: none, problem: evil },
    ];
    const calls = [...ids.map((id) => ({ id, name: evil, arguments: JSON.stringify({ [evil]: evil }), reason: "approval" })),
      ...forms.map((asked, at) => ({ id: `f${at}`, name: "elicitation", arguments: JSON.stringify(asked), reason: "external" }))];
    const pieces = calls.flatMap((call) => [{ type: "tool_call", ...call }, { type: "pending", id: call.id, reason: call.reason }]);
    const files = [{ media_type: "image/svg+xml", name: evil, url: "javascript:pwned=1" }, { media_type: evil, url: "data:text/html,x" },
      { media_type: "image/svg+xml", url: `data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" onload="pwned=1"/>` }];
    const view = { key: evil, turn_status: "none", version: "1", title: evil, status: "awaiting_tools", model: evil, failure: evil, pending: calls,
      messages: [{ id: "__proto__", role: evil, speaker: evil, text: evil, files }, { id: "r", role: "assistant", text: evil, pieces: [
        { type: "text", text: `[x](javascript:pwned=1) \`${evil}\`\n\`\`\`${evil}\n${evil}\n\`\`\`` }, { type: "reasoning", text: evil },
        { type: evil, text: evil }, { type: "tool_call", id: "d", name: evil, arguments: evil }, { type: "tool_result", id: "d", flag: "constructor", output: evil }, ...pieces] }] };
    await page.route("**/conversations/odd-one", (route) => route.fulfill({ json: view }));
    let sent = null;
    await page.route("**/odd-one/answers", (route) => { sent = route.request().postDataJSON(); route.fulfill({ contentType: "text/event-stream", body:
      `event: __proto__\ndata: {"turn":1}\n\nevent: started\ndata: {"turn":"<b>x"}\n\nevent: text\ndata: {"text":${JSON.stringify(evil)}}\n\nevent: error\ndata: {"title":${JSON.stringify(evil)}}\n\n` }); });
    await page.goto(`${url}/#/odd-one`);
    const approve = page.getByRole("button", { name: /^Approve/ });
    await approve.first().waitFor();
    expect(await approve.count() === ids.length, "a button for each call, whatever its id");
    expect(await page.locator(".tool.waits, .tool[open]").count() === calls.length, "a card for each call");
    expect(await page.locator("#log .said img").count() === 1, "a picture of a data URL, and no other");
    for (const link of await page.locator("#log a").all()) expect(/^https?:/.test(await link.getAttribute("href")), "no link that runs a script");
    while (await approve.count()) await approve.first().click();
    while (await page.getByRole("button", { name: "Decline" }).count()) await page.getByRole("button", { name: "Decline" }).first().click();
    await page.getByRole("alert").getByText(evil).waitFor();
    expect(ids.every((id) => Object.hasOwn(sent.answers, id) && sent.answers[id].approve === true), `the answers to all ids: ${JSON.stringify(sent)}`);
    expect(Object.keys(sent.answers).length === calls.length, "an answer to each call");
    expect((await page.evaluate(() => globalThis.pwned)) === undefined, "no script of a text that ran");
    expect((await page.evaluate(() => ({}).approve)) === undefined, "objects of the page as they were");
    await page.close();
  },

  async resend() {
    watched = false; // the browser reports the connection that fails
    const page = await opened("resend");
    let posts = 0;
    await page.route("**/turns", (route) => (posts++ ? route.continue() : route.abort()));
    await say(page, "count resend");
    await page.getByRole("alert").getByText("Not sent").waitFor();
    expect((await page.locator("#say").inputValue()) === "count resend", "the message back in the box");
    await page.getByRole("button", { name: "Try again" }).click();
    await seen(page, "This is reply 1.");
    expect(await page.locator("#log .said").count() === 1, "one message");
    await page.close();
    watched = true;
  },

  async inspect_fork_and_rewind() {
    const page = await opened("look");
    for (const [number, text] of ["hello", "second", "third"].entries()) {
      await say(page, text);
      await seen(page, `You said: ${text}`);
      await settled(page);
      if (!number) await page.click("#inspect");
    }
    await page.locator("#facts .turn").nth(2).waitFor();
    await page.locator("#facts .turn summary").first().click();
    await page.getByRole("button", { name: "What it changed" }).first().click();
    await page.locator(".raw dl").getByText("turns added").waitFor();
    await page.getByRole("button", { name: "Raw entries" }).first().click();
    await page.locator(".raw pre").getByText("You said: third").waitFor();
    await page.getByLabel("After turn", { exact: true }).selectOption({ label: "the beginning" });
    await page.getByLabel("and after turn").selectOption({ label: "2 second" });
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator(".raw dd").getByText("1, 2", { exact: true }).waitFor();
    await page.getByLabel("After turn", { exact: true }).selectOption({ label: "2 second" });
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator(".raw").getByText("Choose two turns.").waitFor();
    await checked(page, "inspector");
    const second = page.locator("#facts .turn").nth(1);
    const act = async (name) => {
      if (!(await second.evaluate((one) => one.open))) await second.locator("summary").click();
      await second.getByRole("button", { name }).click();
    };
    await act("Fork after it");
    await page.waitForURL(/look-[0-9a-f]{6}$/);
    await seen(page, "You said: second");
    expect(await page.locator("#log .said").count() === 2, "two messages in the copy");
    await page.goBack();
    await seen(page, "You said: third");
    await page.locator("#facts .turn").nth(2).waitFor();
    await act("Rewind to before it");
    await page.locator("#ask[open]").waitFor();
    await checked(page, "dialog");
    await page.locator("#askyes").click();
    await page.locator("#log .said").nth(1).waitFor({ state: "detached" });
    expect(await page.locator("#log .said").count() === 1, "one message that is left");
    await page.close();
  },

  async keyboard() {
    const page = await opened("keys");
    await page.keyboard.press("Tab");
    expect((await page.evaluate(() => document.activeElement.id)) === "skip", "the link to the message box first");
    await page.keyboard.press("Enter");
    expect((await page.evaluate(() => document.activeElement.id)) === "say", "the focus in the message box");
    await page.keyboard.type("hello");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("you");
    await page.keyboard.press("Enter");
    await seen(page, "You said: hello");
    await page.locator("#status").getByText("The reply is complete.").waitFor({ state: "attached" });
    expect(page.url().endsWith("#say") || page.url().endsWith("#/keys"), "the same conversation");
    await page.close();
  },

  // What a person approves is what runs, and what a person types is what the model reads.
  async as_it_is_written() {
    const page = await opened("written");
    await say(page, "pay");
    const approve = page.getByRole("button", { name: "Approve pay" });
    await approve.waitFor();
    const pre = page.getByLabel("Arguments");
    const shown = await pre.textContent();
    expect(shown === '{\n  "rate": 1.10,\n  "7": 1,\n  "account": 1,\n  "account": 12345678901234567891,\n  "note": "\\u202eto Eve\\u200b"\n}', `arguments as written: ${shown}`);
    const summary = await page.locator(".tool summary").last().textContent();
    expect(summary.includes('rate: 1.10, "7": 1, account: 1, account: 12345678901234567891'), `a summary as written: ${summary}`);
    expect(await pre.locator("bdi").count() === 6, "strings that move nothing beside them");
    await page.click("#inspect");
    await page.locator("#facts .turn summary").first().click();
    await page.getByRole("button", { name: "Raw entries" }).click();
    await page.locator(".raw pre").last().waitFor();
    const raw = (await page.locator(".raw pre").allTextContents()).join();
    expect(raw.includes("12345678901234567891") && !raw.includes("\u202e"), "raw entries as written");
    await page.click("#inspect");
    await approve.click();
    await seen(page, "Done: paid 12345678901234567891");
    for (const typed of ["1.10", "1e999", "12345678901234567891", '{"b":1.0,"7":1,"b":2}', "heavy"]) {
      await settled(page);
      await say(page, `weigh ${typed}`);
      await page.getByLabel("Result of weigh").waitFor();
      await settled(page);
      await page.getByLabel("Result of weigh").fill(typed);
      await page.locator("#log").getByRole("button", { name: "Send" }).last().click();
      await seen(page, `Done: ${typed}`);
    }
    await page.close();
  },

  async a_question() {
    const page = await opened("question");
    await say(page, "book Hamlet");
    const form = page.getByRole("group", { name: "Which seat for <b>Hamlet</b>?" });
    await form.waitFor();
    await checked(page, "a question of an MCP server");
    await page.screenshot({ path: join(pictures, "question.png") });
    const send = form.getByRole("button", { name: "Send" });
    await form.getByLabel("Row").fill("12");
    await form.getByLabel("name").fill("Ada");
    await form.getByLabel("side").selectOption("right");
    await send.click();
    expect(await form.isVisible(), "a form whose number is out of its bounds is not sent");
    await form.getByLabel("Row").fill("3");
    await page.reload();
    expect((await form.getByLabel("Row").inputValue()) === "", "an empty form after a reload");
    await form.getByLabel("Row").fill("3");
    await form.getByLabel("name").fill("Ada");
    await form.getByLabel("side").selectOption("right");
    await form.getByLabel("vegan").check();
    await send.click();
    await seen(page, "Done: accept: Seat(row=3, name='Ada', side='right', vegan=True)");
    let tell;
    const told = new Promise((done) => { tell = done; });
    await settled(page);
    await page.route(/conversations\/question$/, async (route) => { await told; await route.continue(); });
    await say(page, "book Faust");
    await page.getByRole("button", { name: "Decline" }).click();
    await seen(page, "You denied this.");
    tell(); // an answer counts also before the server has told what waits
    await seen(page, "Done: decline: None");
    await page.close();
  },

  async an_address() {
    const page = await opened("address");
    await say(page, "sign 7");
    const link = page.getByRole("link", { name: "Open sign.test" });
    await link.waitFor();
    expect((await link.getAttribute("href")) === "https://sign.test/7", "the whole address");
    expect((await link.getAttribute("rel")) === "noopener noreferrer", "a page that does not learn of this one");
    await page.getByRole("button", { name: "Done" }).click();
    await seen(page, "Done: signing: accept");
    await page.close();
  },

  async progress() {
    const page = await opened("progress");
    await say(page, "climb hill");
    const bar = page.getByRole("progressbar", { name: "Progress of climb" });
    await bar.waitFor();
    expect((await bar.evaluate((one) => one.value / one.max)) === 0.75, "a bar at three quarters");
    await checked(page, "a tool that says how far it is");
    await ask("release", "hill");
    await seen(page, "Done: at the top of hill");
    expect(!(await bar.count()), "no bar behind the end");
    await page.close();
  },

  async sign_in() {
    watched = false; // the browser reports answers of 401
    const page = await context.newPage();
    await page.goto(locked);
    await page.locator("#token").waitFor();
    await checked(page, "sign in");
    await page.fill("#token", "wrong");
    await page.keyboard.press("Enter");
    await page.locator("#wrong").waitFor();
    await page.fill("#token", TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#log .empty, #log .said").first().waitFor(); // the page was loaded anew
    await say(page, "hello");
    await seen(page, "You said: hello");
    await page.close();
    watched = true;
  },

  async pictures() {
    const page = await opened("harrogate");
    await say(page, "What can you tell me about the theatre?");
    await seen(page, "The curtain is down");
    await settled(page);
    await say(page, "fire Give Red the points for it.");
    await page.getByRole("button", { name: "Approve fire" }).waitFor();
    await page.click("#inspect");
    await page.locator("#facts .turn").nth(1).waitFor();
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(pictures, `${colorScheme}.png`) });
    }
    await page.setViewportSize({ width: 400, height: 740 });
    expect(!(await page.locator("#send").isVisible()), "a small window with the inspector alone");
    await page.screenshot({ path: join(pictures, "small-inspector.png") });
    const wide = await page.evaluate(() => [...document.querySelectorAll("aside *, header *")].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML));
    expect(!wide.length, `nothing that is wider than a small window: ${wide}`);
    await page.click("#inspect");
    expect(await page.getByRole("button", { name: "Approve fire" }).isVisible(), "the conversation again");
    const low = await page.locator("#log").evaluate((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    expect(low < 2, "the newest message in view after the window became small");
    await page.screenshot({ path: join(pictures, "small.png") });
    await page.click("#menu");
    await checked(page, "a small window with its menu");
    await page.screenshot({ path: join(pictures, "menu.png") });
    await page.close();
  },
};

const only = process.env.GOAITOOLS_PAGE_ONLY; // one scenario, while you work on it
for (const [name, run] of Object.entries(scenarios)) {
  if (only && only !== name) continue;
  reading = name;
  try {
    await run();
    told.scenarios[name] = null;
  } catch (error) {
    told.scenarios[name] = String(error.stack || error).slice(0, 1500);
    watched = true;
    for (const page of context.pages().slice(1)) {
      await page.screenshot({ path: join(pictures, `failed-${name}.png`) }).catch(() => {});
      await page.close().catch(() => {});
    }
  }
}
await context.close();
rmSync(profile, { recursive: true, force: true });
console.log(JSON.stringify(told));
