// Drives phones in headless Chromium, one page each, for the end-to-end tests.
//
//   node drive.mjs PROFILE-DIRECTORY
//
// Commands come by standard input, a line each:
//   USER open LIBRARY WSS-URL SIP-URI     USER call SIP-URI     USER hangup     quit
// What happens is printed, a line each: `USER: registered`, `ringing`, `established`, `media`, `ended`, `failed: …`.

import { createServer } from "node:http";
import { networkInterfaces } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const script = fileURLToPath(new URL("phone.mjs", import.meta.url));
const bundle = await build({ entryPoints: [script], bundle: true, write: false, format: "esm", platform: "browser" });
const page = `<!doctype html>
<meta charset="utf-8">
<title>A phone of the end-to-end tests</title>
<script type="module" src="phone.js"></script>
`;

// Pages on 127.0.0.1 are a secure context, without which a browser gives out no microphone.
const site = createServer((request, response) => {
  const isScript = request.url === "/phone.js";
  response.writeHead(200, { "Content-Type": isScript ? "text/javascript" : "text/html" });
  response.end(isScript ? bundle.outputFiles[0].contents : page);
});
await new Promise((listening) => site.listen(0, "127.0.0.1", listening));

// Of several ways between the two ends (RFC 8445), baresip 1.0 keeps to the first that works and browsers to the best.
// So there is one: a network interface, and loopback only where that is all there is.
const isAlone = Object.values(networkInterfaces()).flat().every((address) => address.internal);

const browser = await chromium.launchPersistentContext(process.argv[2], {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  chromiumSandbox: false,
  ignoreHTTPSErrors: true,
  args: [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
    ...(isAlone ? ["--allow-loopback-in-peer-connection"] : []),
  ],
});
const pages = new Map();

async function obey(line) {
  const [user, command, ...words] = line.trim().split(" ");
  if (user === "quit") {
    await browser.close();
    process.exit(0);
  }
  if (command === "open") {
    const page = await browser.newPage();
    page.on("console", (message) => console.log(`${user}: ${message.text()}`));
    page.on("pageerror", (error) => console.log(`${user}: failed: ${error.message}`));
    const [library, server, uri] = words;
    await page.goto(`http://127.0.0.1:${site.address().port}/?library=${library}`);
    pages.set(user, page);
    await page.waitForFunction(() => window.phone !== undefined);
    await page.evaluate(([server, uri]) => window.phone.start(server, uri), [server, uri]);
  } else {
    await pages.get(user).evaluate(([command, words]) => window.phone[command](...words), [command, words]);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  await obey(line).catch((error) => console.log(`${line}: failed: ${error.message}`));
}
await browser.close();
process.exit(0);
