// Looks at the built site in Chromium: prints what is wider than a phone, and the first answers of the search.
//
//   node site.mjs FOLDER CHROMIUM SITE < {"pages": [PAGE…], "questions": [QUESTION…]}
//
// FOLDER: where npm has installed `playwright-core`. SITE: the URL of the site, with a slash at the end.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [folder, chromium, site] = process.argv.slice(2);
const { pages, questions } = JSON.parse(readFileSync(0, "utf8"));
const { chromium: browsers } = createRequire(`${folder}/package.json`)("playwright-core");
const profile = mkdtempSync(join(tmpdir(), "goaitools-site-"));
const context = await browsers.launchPersistentContext(profile, {
  executablePath: chromium,
  headless: true,
  viewport: { width: 390, height: 800 },
  reducedMotion: "reduce",
  locale: "en",
  args: ["--no-sandbox", "--disable-gpu"],
});
context.setDefaultTimeout(30_000);
const page = await context.newPage();

const wide = {};
for (const name of pages) {
  await page.goto(site + name);
  wide[name] = await page.evaluate(() => {
    const scrolls = (node) => node !== document.body && getComputedStyle(node).overflowX !== "visible";
    const found = [];
    for (const node of document.querySelectorAll("article *")) {
      const { right, width } = node.getBoundingClientRect();
      if (!width || right <= document.documentElement.clientWidth + 1) continue;
      let above = node.parentElement;
      while (above !== document.documentElement && !scrolls(above)) above = above.parentElement;
      if (above === document.documentElement) found.push(node.tagName);
    }
    return document.documentElement.scrollWidth > 390 ? ["page", ...found] : found;
  });
}

const answers = {};
for (const question of questions) {
  await page.goto(`${site}search.html?q=${encodeURIComponent(question)}`);
  await page.locator("#search-results .search-summary").waitFor();
  await page.waitForFunction(() => /finished|found|did not match/.test(document.querySelector(".search-summary").textContent));
  answers[question] = await page.locator("#search-results li a").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
}
console.log(JSON.stringify({ wide, answers }));
await context.close();
rmSync(profile, { recursive: true, force: true });
