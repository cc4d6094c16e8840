// The Markdown of the page of `goaitools serve`, in a real browser.
//
//   node page_markdown.mjs FOLDER CHROMIUM URL
//
// FOLDER: where npm has installed `playwright-core` and `axe-core`. URL: a page's server, whose model repeats a
// message. The answer: for each scenario null, or what went wrong; what the console said; and the requests to other
// servers.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [folder, chromium, url] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const profile = mkdtempSync(join(tmpdir(), "goaitools-markdown-"));
const context = await require("playwright-core").chromium.launchPersistentContext(profile, {
  executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});
context.setDefaultTimeout(30_000);
const told = { scenarios: {}, console: [], elsewhere: [], axe: {} };
context.on("request", (request) => { if (!request.url().startsWith(url) && !/^(data|about|chrome|devtools):/.test(request.url())) told.elsewhere.push(request.url()); });
const page = await context.newPage();
page.on("console", (message) => { if (["error", "warning"].includes(message.type())) told.console.push(message.text()); });
page.on("pageerror", (error) => told.console.push(error.message));

function expect(is, what) {
  if (!is) throw new Error(`expected: ${what}`);
}

async function opened(name) {
  await page.goto(`${url}/#/${name}`);
  await page.locator("#log .empty, #log .said").first().waitFor();
}

// Says something, and waits until the reply is complete and stored.
async function say(text) {
  const before = await page.locator("#log .said").count();
  await page.fill("#say", text);
  await page.press("#say", "Enter");
  await page.locator("#log .reply[aria-busy=false]").nth(before).waitFor();
  await page.locator("#send:not([hidden])").waitFor();
}

// The HTML of each text. Only attributes of the renderer's own are left out.
const html = (texts) => page.evaluate((all) => all.map((text) => {
  const made = document.createElement("div");
  Markdown.show(made, text);
  for (const one of made.querySelectorAll(".code")) one.replaceWith(one.querySelector("pre")); // without its button
  for (const one of made.querySelectorAll("*")) for (const name of ["dir", "tabindex", "class"]) one.removeAttribute(name);
  return made.innerHTML;
}), texts);

const LINK = (href, text = href) => `<a href="${href}" title="${href}" target="_blank" rel="noopener noreferrer">${text}</a>`;

// Markdown, and the HTML that it stands for.
const MEANT = [
  ["# One\n## Two ##\n####### seven", "<h3>One</h3><h4>Two</h4><p>####### seven</p>"],
  ["a **b** *c* ***d*** ~~e~~ `f`", "<p>a <strong>b</strong> <em>c</em> <em><strong>d</strong></em> <s>e</s> <code>f</code></p>"],
  ["snake_case_name 2*3*4 * x *", "<p>snake_case_name 2<em>3</em>4 * x *</p>"],
  ["**bold *nested*** and *a **b***", "<p><strong>bold <em>nested</em></strong> and <em>a <strong>b</strong></em></p>"],
  ["**重要:**次", "<p><strong>重要:</strong>次</p>"],
  ["``a ` b`` `x", "<p><code>a ` b</code> `x</p>"],
  ["\\*not\\* \\`code\\` C:\\dir", "<p>*not* `code` C:\\dir</p>"],
  ["one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"],
  ["- a\n- b\n  - c\n    - d\n- e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><ul><li><p>d</p></li></ul></li></ul></li><li><p>e</p></li></ul>"],
  ["1. a\n  - b\n\n2. c", "<ol><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ol>"],
  ["3. a\n4. b", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'],
  ["- [ ] a\n- [x] b", "<ul><li><p>☐ a</p></li><li><p>☑ b</p></li></ul>"],
  ["> a\n> - b\nlazy\n\nc", "<blockquote><p>a</p><ul><li><p>b\nlazy</p></li></ul></blockquote><p>c</p>"],
  ["---\n***\n_ _ _", "<hr><hr><hr>"],
  ["```py\nx = '<b>'\n\n  y\n```\nafter", "<pre>x = '&lt;b&gt;'\n\n  y</pre><p>after</p>"],
  ["~~~\n```\n~~~", "<pre>```</pre>"],
  ["1. a\n   ```\n   x\n     y\n   ```\n2. b", "<ol><li><p>a</p><pre>x\n  y</pre></li><li><p>b</p></li></ol>"],
  ["```\nhalf", "<pre>half</pre>"],
  ["    code\n\n\tmore", "<pre>code\n\nmore</pre>"],
  ["So:\n| a | b |\n|:--|--:|\n| `x\\|y` | **1** |\n| 2 |\n\nend", '<p>So:</p><div><table><thead><tr><th>a</th><th style="text-align: end;">b</th></tr></thead><tbody><tr><td><code>x|y</code></td><td style="text-align: end;"><strong>1</strong></td></tr><tr><td>2</td></tr></tbody></table></div><p>end</p>'],
  ["a | b\nno table", "<p>a | b\nno table</p>"],
  ["[a *b*](https://x.test/p_(q)?r=1 \"title\")", `<p>${LINK("https://x.test/p_(q)?r=1", "a <em>b</em>")}</p>`],
  ["see https://x.test/a_b. (https://x.test/c(d)) **https://x.test/e**", `<p>see ${LINK("https://x.test/a_b")}. (${LINK("https://x.test/c(d)")}) <strong>${LINK("https://x.test/e")}</strong></p>`],
  ["<https://x.test/> <mailto:a@x.test>", `<p>${LINK("https://x.test/")} ${LINK("mailto:a@x.test")}</p>`],
  ["![a cat](https://x.test/cat.png)", `<p>${LINK("https://x.test/cat.png", "Picture: a cat")}</p>`],
  ["[[1]](https://x.test/) [ ] [x] arr[0]", `<p>${LINK("https://x.test/", "[1]")} [ ] [x] arr[0]</p>`],
  ["Vec<String> <source> &lt;b&gt;", "<p>Vec&lt;String&gt; &lt;source&gt; &amp;lt;b&amp;gt;</p>"],
  ["<item>\n  <b>x</b>\n</item>", "<p>&lt;item&gt;\n  &lt;b&gt;x&lt;/b&gt;\n&lt;/item&gt;</p>"],
  ["a\r\nb\r\n\r\nc", "<p>a\nb</p><p>c</p>"],
  ["", ""], ["\n \n", ""], ["-", "<ul><li></li></ul>"], [">", "<blockquote></blockquote>"], ["#", "<h3></h3>"],
];

const EVIL = '<img src="https://evil.test/x" onerror="pwned=1"><script>pwned=1</script><svg onload="pwned=1"><a href="javascript:pwned=1">x</a>';
// Texts that must make no element with an address of their own, and no link but to the web.
const ATTACKS = [
  EVIL, `# ${EVIL}`, `- ${EVIL}`, `> ${EVIL}`, `**${EVIL}**`, `| ${EVIL} | b |\n|---|---|\n| ${EVIL} | c |`, `\`\`\`${EVIL}\n${EVIL}\n\`\`\``, `\`${EVIL}\``,
  ...["javascript:pwned=1", "JaVaScRiPt:pwned=1", "java\tscript:pwned=1", "&#106;avascript:pwned=1", "javascript&colon;pwned=1", "\u0001javascript:pwned=1", "%6aavascript:pwned=1",
    "vbscript:x", "data:text/html,<script>pwned=1</script>", "data:image/svg+xml;base64,PHN2Zz4=", "blob:https://x.test/1", "file:///etc/passwd", "about:blank", "//evil.test/x", "/login", "login", "#/other", "ftp://x.test/"].flatMap((one) => [`[x](${one})`, `[x](<${one}>)`, `![x](${one})`, `<${one}>`, one]),
  '[x](https://x.test/" onclick="pwned=1)', '[x](https://x.test/ "t" onclick="pwned=1")', "[x](https://x.test/\"><script>pwned=1</script>)", '![x" onerror="pwned=1](https://x.test/p.png)', "![](https://evil.test/pixel)",
  "[a]: javascript:pwned=1\n\n[a]", "https://x.test/\"><script>pwned=1</script>", "<https://x.test/ onclick=pwned=1>", "[x](https://x.test/)".repeat(2).replace(")[", ")\u202e["),
];

const scenarios = {
  async meaning() {
    const found = await html(MEANT.map(([text]) => text));
    for (const [index, [text, wanted]] of MEANT.entries()) expect(found[index] === wanted, `of ${JSON.stringify(text)}\n  ${wanted}\ngot\n  ${found[index]}`);
  },

  async attacks() {
    const found = await page.evaluate((all) => all.map((text) => {
      const made = document.createElement("div");
      document.body.append(made);
      Markdown.show(made, text);
      const every = [...made.querySelectorAll("*:not(.code > button)")];
      const wrong = every.filter((one) => !/^(A|BLOCKQUOTE|CODE|DIV|EM|H[3-6]|HR|LI|OL|P|PRE|S|STRONG|TABLE|TBODY|TD|TH|THEAD|TR|UL)$/.test(one.tagName)
        || [...one.attributes].some(({ name }) => !["dir", "class", "tabindex", "href", "title", "target", "rel", "start", "style"].includes(name))
        || (one.tagName === "A" && !(/^(https?|mailto):/.test(one.href) && one.rel === "noopener noreferrer" && one.target === "_blank"))).map((one) => one.outerHTML);
      const links = every.filter((one) => one.tagName === "A").map((one) => one.getAttribute("href"));
      made.remove();
      return [text, wrong, links];
    }), ATTACKS);
    for (const [text, wrong] of found) expect(!wrong.length, `no element of ${JSON.stringify(text)}: ${wrong}`);
    expect(found.length === ATTACKS.length, "an answer to each");
    await say(ATTACKS.join("\n\n"));
    await page.reload();
    await page.locator("#log .reply .text").waitFor();
    await page.waitForTimeout(0);
    expect((await page.evaluate(() => globalThis.pwned)) === undefined, "no script of a text that ran");
    expect(await page.locator("#log img, #log script, #log svg, #log iframe").count() === 0, "no picture, script or frame of a text");
  },

  // What is refused as a link stays as it was written.
  async refused_links_are_text() {
    const found = await html(["[x](javascript:pwned=1)", "![x](data:image/png;base64,AAAA)", "[x](/login)"]);
    expect(found.join() === "<p>[x](javascript:pwned=1)</p>,<p>![x](data:image/png;base64,AAAA)</p>,<p>[x](/login)</p>", `the text as written: ${found}`);
  },

  async directions_are_shown() {
    const turned = "a \u202eb\u202c \u2067c\u2069 \x1b!";
    for (const text of [turned, `# ${turned}`, `- ${turned}`, `\`${turned}\``, `\`\`\`\n${turned}\n\`\`\``, `| ${turned} | b |\n|---|---|`, `[${turned}](https://x.test/)`]) {
      const [found] = await html([text]);
      expect(found.includes("a \\u202eb\\u202c \\u2067c\\u2069 \\u001b!"), `escapes in ${found}`);
    }
    await opened("directions");
    await say(`say ${turned}`);
    const shown = await page.locator("main").textContent(), list = await page.locator("nav").textContent(), title = await page.locator("#title").textContent();
    for (const text of [shown, list, title, await page.title()]) expect(!/[\u202a-\u202e\u2066-\u2069\x1b]/.test(text), `no control in ${JSON.stringify(text)}`);
    expect(shown.split("\\u202eb").length === 3, "the message and the reply, with escapes");
  },

  // No text takes long, alone or with its layout.
  async hostile_texts_are_quick() {
    const SIZE = 1_000_000, below = 99_000;
    const units = ["*", "[", "_", "`", "~", ">", "#", "|", "-", "(", "]", "!", "\\", "<", "*a ", "a* ", "*a* ", "**a ", "_a ", "*a _b ", "*a [b ", "[a](", "![", "[](", "](", "[a](x ", "](a \"", "](a '", "](      ", "[a](<", "`a ``b ", "<http://", "http://", "https://a.b/(", "https://a.b/)", "~~a ", "a*b_c~~d", "\\*", "| ", "|-", "- ", "1. ", "> ", "* ", "- - ", "> - ", "> > ", "\t", " ", "\n", "\n\n",
      "- a\n", "a\n\n", "> a\n", "# a\n", "```\n", "~~~\n", "| a\n", "|\n", "|-|\n", "a|\n-|\n", "1. a\n\n", "- a\n\n  b\n", "- a\n > ", "    a\n", "---\n", "[a](https://b.c)\n", "&amp;", "😀", "重**要:**"];
    const nested = [Array.from({ length: 300 }, (_, depth) => `${"  ".repeat(depth)}- x`).join("\n"), Array.from({ length: 300 }, (_, depth) => `${"> ".repeat(depth)}x`).join("\n"),
      `${"*a ".repeat(16_000)}${"b* ".repeat(16_000)}`, `${"[".repeat(30_000)}a${"](https://b.c)".repeat(4_500)}`, `${"**a".repeat(16_000)}${"b**".repeat(16_000)}`, `](${" ".repeat(90_000)}`, `[a](${"(".repeat(90_000)}`, `${"`".repeat(500)} `.repeat(190), Array.from({ length: 430 }, (_, at) => "`".repeat(at + 1)).join(" "), `- a\n${"\n".repeat(90_000)}b`, `|${"a|".repeat(15_000)}\n|${"-|".repeat(15_000)}\n${"|b\n".repeat(9_000)}`];
    const slow = await page.evaluate(({ units, nested, SIZE, below }) => {
      const took = (text) => {
        const made = document.createElement("div");
        made.className = "text";
        const from = performance.now();
        Markdown.show(made, text);
        const parsed = performance.now() - from;
        return [parsed, made.querySelectorAll("*").length];
      };
      const texts = [...units.map((unit) => [unit, unit.repeat(Math.ceil(below / unit.length)).slice(0, below)]), ...nested.map((text) => [text.slice(0, 20), text])];
      const found = texts.map(([name, text]) => [name, ...took(text)]);
      for (const unit of units) found.push([`1 MB of ${unit}`, ...took(unit.repeat(Math.ceil(SIZE / unit.length)))]);
      return found.sort((a, b) => b[1] - a[1]);
    }, { units, nested, SIZE, below });
    expect(nested.every((text) => text.length <= 100_000), "texts that are read as Markdown");
    if (process.env.GOAITOOLS_PAGE_TIMES) console.error(slow.slice(0, 12));
    expect(slow[0][1] < 3000, `each text within three seconds: ${JSON.stringify(slow.slice(0, 5))}`);
  },

  // The page answers after a megabyte of marks, and after a reply with deep nesting.
  async huge_replies_leave_the_page_usable() {
    for (const [name, text] of [["stars", "*".repeat(1_000_000)], ["brackets", "[".repeat(1_000_000)], ["lists", Array.from({ length: 300 }, (_, depth) => `${"  ".repeat(depth)}- x`).join("\n")], ["quotes", "> ".repeat(50_000)]]) {
      await opened(name);
      await say(text);
      await say("hello");
      await page.locator("#log .reply").last().getByText("hello").waitFor();
    }
  },

  // A text that grows is what it is at once, wherever it was cut; and what stands before its last blocks stays.
  async streams() {
    const wrong = await page.evaluate(() => {
      let seed = 7;
      const random = (most) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % most; };
      const PARTS = ["# h\n", "a **b** ", "c\n", "\n", "- x\n", "  - y\n", "1. n\n", "2. m\n", "> q\n", "```\n", "code\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "---\n", "[l](https://x.test)", "  more\n", "\r\n", "\t", "    ind\n", "`c`"];
      for (let round = 0; round < 150; round++) {
        const text = Array.from({ length: 14 }, () => PARTS[random(PARTS.length)]).join("");
        const grown = document.createElement("div");
        for (let end = 0; end < text.length; end += 1 + random(3)) {
          Markdown.show(grown, text.slice(0, end));
          const whole = document.createElement("div");
          Markdown.show(whole, text.slice(0, end));
          if (grown.innerHTML !== whole.innerHTML) return [text.slice(0, end), grown.innerHTML, whole.innerHTML];
        }
      }
      const grown = document.createElement("div");
      let text = "# Title\n\nfirst\n\nsecond\n\n";
      Markdown.show(grown, text);
      const first = grown.firstChild;
      for (let count = 0; count < 500; count++) Markdown.show(grown, text += `paragraph **${count}**\n\n`);
      return grown.firstChild === first && grown.childNodes.length === 503 ? null : ["the first node is another one"];
    });
    expect(!wrong, `the same nodes: ${JSON.stringify(wrong)}`);
  },

  async looks() {
    await opened("looks");
    await say("# A title\n\nSome **bold**, *slanted* and `code`.\n\n## Two\n\n1. one\n   - inner\n2. two\n\n> quoted\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```py\nprint(1)\n```\n\n[a link](https://x.test/)");
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.evaluate(require("axe-core").source);
      const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      told.axe[colorScheme] = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}`);
    }
    await page.screenshot({ path: process.env.GOAITOOLS_PAGE_PICTURE || join(profile, "looks.png") });
    expect((await page.locator("#log .said .text").textContent()).startsWith("# A title"), "the user's message as typed");
    await page.reload();
    await page.locator("#log .reply h3").getByText("A title").waitFor();
  },
};

await opened("markdown");
const only = process.env.GOAITOOLS_PAGE_ONLY; // one scenario, while you work on it
for (const [name, run] of Object.entries(scenarios)) {
  if (only && only !== name) continue;
  try {
    await run();
    told.scenarios[name] = null;
  } catch (error) {
    told.scenarios[name] = String(error.stack || error).slice(0, 1500);
  }
}
await context.close();
rmSync(profile, { recursive: true, force: true });
console.log(JSON.stringify(told));
