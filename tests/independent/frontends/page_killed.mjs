// The page of `goaitools serve` in a real browser, whose server is killed in the middle of a reply.
//
//   node page_killed.mjs FOLDER CHROMIUM URL CONTROL
//
// FOLDER: where npm has installed `playwright-core`. URL: the page. CONTROL: as for `killed.mjs`.
// The answer: what the tab shows that was open, and one that is opened then.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [folder, chromium, url, control] = process.argv.slice(2);
const { chromium: browsers } = createRequire(`${folder}/package.json`)("playwright-core");
const profile = mkdtempSync(join(tmpdir(), "goaitools-killed-"));
const context = await browsers.launchPersistentContext(profile, { executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
context.setDefaultTimeout(30_000);

const ask = (what) => fetch(`${control}/${what}`, { method: "POST" });

async function opened() {
  const page = await context.newPage();
  await page.goto(`${url}/#/hall`);
  await page.locator("#log .empty, #log .said").first().waitFor();
  return page;
}

const shown = (page) => page.evaluate(() => {
  const texts = (path) => [...document.querySelectorAll(path)].map((one) => one.textContent);
  return {
    said: texts("#log .said .text"),
    texts: texts("#log .reply > div > .text"),
    tools: [...document.querySelectorAll("#log .tool")].map((one) => `${one.querySelector("b").textContent}: ${one.querySelector(".chip").textContent}`),
  };
});

const open = await opened();
await open.fill("#say", "Look");
await open.press("#say", "Enter");
await open.locator(".tool b").getByText("look").waitFor();
await ask("inside");
await ask("restart");
await open.getByText("The last turn is not finished.").waitFor();
while (!(await open.getByText("Done.").isVisible())) {
  // The old process holds the conversation for a moment longer; then the page offers to try again.
  await open.getByRole("button", { name: /^(Continue|Try again)$/ }).first().click();
  await open.locator("#stop:not([hidden])").waitFor({ timeout: 2000 }).catch(() => {});
  await open.locator("#send:not([hidden])").waitFor();
}
const later = await opened();
await later.getByText("Done.").waitFor();
process.stdout.write(JSON.stringify({ open: await shown(open), later: await shown(later) }));
await context.close();
rmSync(profile, { recursive: true, force: true });
