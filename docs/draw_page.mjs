// Talks in the page of `goaitools serve --demo`, takes its picture, light and as PICTURE_dark, and prints the
// texts that can be seen.
//
//   node draw_page.mjs FOLDER CHROMIUM URL PICTURE MESSAGE…
//
// FOLDER: where npm has installed `playwright-core`. The last message is answered with a call that waits.
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [folder, chromium, url, picture, ...messages] = process.argv.slice(2);
const { chromium: browsers } = createRequire(`${folder}/package.json`)("playwright-core");
const profile = mkdtempSync(join(tmpdir(), "goaitools-picture-"));
const context = await browsers.launchPersistentContext(profile, {
  executablePath: chromium,
  headless: true,
  viewport: { width: 1180, height: 740 },
  colorScheme: "light",
  reducedMotion: "reduce",
  locale: "en",
  args: ["--no-sandbox", "--disable-gpu"],
});
context.setDefaultTimeout(30_000);
const page = await context.newPage();
await page.goto(`${url}/#/harrogate`);
await page.locator("#log .empty").waitFor();
for (const [number, text] of messages.entries()) {
  await page.fill("#say", text);
  await page.press("#say", "Enter");
  await page.locator("#log .reply").nth(number).waitFor();
  await page.locator("#send:not([hidden])").waitFor();
}
await page.locator(".tool.waits").waitFor();
await page.click("#inspect");
await page.locator("#facts .turn").nth(messages.length - 1).waitFor();
await page.locator("#list .mark").getByText("needs an answer").waitFor();
await page.evaluate(() => document.activeElement.blur());
await page.mouse.move(0, 739);
await page.screenshot({ path: picture });
await page.emulateMedia({ colorScheme: "dark" });
await page.screenshot({ path: picture.replace(/(?=\.png$)/, "_dark") });
console.log(JSON.stringify(await page.evaluate(() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    const boxes = [...range.getClientRects()];
    const isSeen = ({ left, right, top, bottom }) => {
      const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
      return there && walk.currentNode.parentElement.contains(there);
    };
    const text = walk.currentNode.textContent.replace(/\s+/g, " ").trim();
    const isShown = walk.currentNode.parentElement.checkVisibility({ checkOpacity: true });
    if (text && isShown && boxes.some(isSeen)) found.push(text);
  }
  return found;
})));
await context.close();
rmSync(profile, { recursive: true, force: true });
