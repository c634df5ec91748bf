import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CliProject } from "../../cli/cli-project.ts";
import { NO_CHROMIUM, openBrowser } from "../../serve/browser/chromium.ts";
import { servedProject } from "../../serve/served-project.ts";
import { startService, type TestService } from "../../serve/service-client.ts";

// biome-ignore lint/suspicious/noExplicitAny: what runs in the page has other types than what runs in Node.
declare const window: any;

/* What pages of other sites can do to the service, in a real Chromium. Every name means this machine there. */

let project: CliProject;
let service: TestService;
let browser: Browser;
let evil: Server;

beforeAll(async () => {
  if (NO_CHROMIUM) return;
  project = await servedProject();
  service = await startService(project);
  browser = await openBrowser(["--host-resolver-rules=MAP *.test 127.0.0.1"]);
  evil = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><p>evil"));
  await once(evil.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  evil?.close();
  await browser?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const origin = (): string => `http://127.0.0.1:${service.port}`;
/** The same machine at another port, and a site of another name. */
const sites = (): string[] =>
  ["127.0.0.1", "evil.test"].map((host) => `http://${host}:${(evil.address() as AddressInfo).port}/`);
const runs = async (): Promise<number> => (await service.ask("GET", "/v1/runs?limit=500")).json.runs.length;

/** A page of each other site, one after another. */
async function fromOtherSites(attack: (page: Page, site: string) => Promise<void>): Promise<void> {
  for (const site of sites()) {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(site);
    await attack(page, site);
    await context.close();
  }
}

describe.skipIf(NO_CHROMIUM)(`a page of another site${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`, () => {
  it("starts nothing by requests that need no permission of the service", async () => {
    const before = await runs();
    await fromOtherSites(async (page) => {
      const outcomes = await page.evaluate(async (url) => {
        const body = JSON.stringify({ worker: "echo" });
        const form = new FormData();
        form.set("request", body);
        const sent = [
          fetch(url, { method: "POST", body, mode: "no-cors" }),
          fetch(url, { method: "POST", body, mode: "no-cors", credentials: "include" }),
          fetch(url, { method: "POST", body: form, mode: "no-cors" }),
          fetch(url, { method: "POST", body: new URLSearchParams({ request: body }), mode: "no-cors" }),
          fetch(url, { method: "POST", body: new Blob([body], { type: "text/plain" }), mode: "no-cors" }),
        ];
        window.navigator.sendBeacon(url, new Blob([body], { type: "text/plain" }));
        return (await Promise.allSettled(sent)).map((one) => (one.status === "fulfilled" ? one.value.type : "refused"));
      }, `${origin()}/v1/runs`);
      expect(outcomes).toHaveLength(5);
      expect(outcomes.filter((type) => type !== "opaque" && type !== "refused")).toEqual([]);
    });
    expect(await runs()).toBe(before);
    expect(service.log()).toContain("FOREIGN_REQUEST");
  });

  it("starts nothing by a form that it sends, whatever its encoding", async () => {
    const before = await runs();
    await fromOtherSites(async (page, site) => {
      for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
        await page.goto(site);
        const answered = page.waitForResponse((response) => response.url().endsWith("/v1/runs"));
        await page.evaluate(
          ([action, type]) => {
            const form = window.document.createElement("form");
            Object.assign(form, { method: "post", action, enctype: type });
            const field = window.document.createElement("input");
            Object.assign(field, { name: '{"worker":"echo","x":"', value: '"}' });
            form.append(field);
            window.document.body.append(form);
            form.submit();
          },
          [`${origin()}/v1/runs`, enctype] as const,
        );
        expect((await answered).status(), enctype).toBe(403);
        await page.waitForURL(`${origin()}/v1/runs`);
      }
    });
    expect(await runs()).toBe(before);
  });

  it("reads nothing, even if it has a token: the browser asks first, and is refused", async () => {
    await fromOtherSites(async (page) => {
      const read = await page.evaluate(
        async ([url, token]) => {
          const tries = [
            fetch(url, { headers: { authorization: `Bearer ${token}` } }),
            fetch(url, { headers: { authorization: `Bearer ${token}` }, credentials: "include" }),
            fetch(url),
          ];
          return (await Promise.allSettled(tries)).map(({ status }) => status);
        },
        [`${origin()}/v1/projects`, service.token] as const,
      );
      expect(read).toEqual(["rejected", "rejected", "rejected"]);
    });
  });

  it("gets no answer as a script, a style, an image or a frame", async () => {
    await fromOtherSites(async (page) => {
      const loaded = await page.evaluate(
        async (urls) => {
          const load = (tag: "script" | "img" | "link", url: string) =>
            new Promise<string>((resolve) => {
              const element = window.document.createElement(tag);
              element.onload = () => resolve(`${tag} loaded ${url}`);
              element.onerror = () => resolve("refused");
              if (tag === "link") Object.assign(element, { rel: "stylesheet", href: url });
              else element.src = url;
              window.document.body.append(element);
            });
          return await Promise.all(urls.flatMap((url) => [load("script", url), load("img", url), load("link", url)]));
        },
        [`${origin()}/v1/health`, `${origin()}/openapi.json`, `${origin()}/`],
      );
      expect(new Set(loaded)).toEqual(new Set(["refused"]));
    });
  });

  it("cannot show the service in a frame", async () => {
    await fromOtherSites(async (page, site) => {
      for (const tag of ["iframe", "object", "embed"]) {
        await page.goto(site);
        await page.evaluate(
          ([name, url]) => {
            const element = window.document.createElement(name);
            element.setAttribute(name === "object" ? "data" : "src", url);
            window.document.body.append(element);
          },
          [tag, `${origin()}/`] as const,
        );
        await page.waitForTimeout(300);
        const shown = page.frames().filter((frame) => frame.url().startsWith(origin()));
        for (const frame of shown) expect(await frame.evaluate(() => window.document.body.textContent)).toBe("");
      }
    });
  });

  it("has no hold on a window of the service that it opens", async () => {
    await fromOtherSites(async (page) => {
      const opened = page.context().waitForEvent("page");
      await page.evaluate((url) => void Object.assign(window, { other: window.open(url) }), `${origin()}/`);
      const other = await opened;
      await other.waitForLoadState();
      // With a policy for openers the browser cuts the two apart: neither can see or steer the other.
      expect(await other.evaluate(() => window.opener === null)).toBe(true);
      expect(await page.evaluate(() => window.other.closed)).toBe(true);
    });
  });

  it("opens no WebSocket and no event stream", async () => {
    await fromOtherSites(async (page) => {
      const outcomes = await page.evaluate(
        async (host) =>
          await Promise.all([
            new Promise<string>((resolve) => {
              const socket = new WebSocket(`ws://${host}/v1/runs`);
              socket.onopen = () => resolve("open");
              socket.onerror = () => resolve("refused");
            }),
            new Promise<string>((resolve) => {
              const events = new EventSource(`http://${host}/v1/runs/0123456789ab/events`);
              events.onopen = () => resolve("open");
              events.onerror = () => resolve("refused");
            }),
          ]),
        origin().slice("http://".length),
      );
      expect(outcomes).toEqual(["refused", "refused"]);
    });
  });
});

describe.skipIf(NO_CHROMIUM)(
  `a name that was made to mean this machine (DNS rebinding)${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`,
  () => {
    it("is refused, also with a token, and though its page and the service are one origin then", async () => {
      const before = await runs();
      const page = await browser.newPage();
      const response = await page.goto(`http://rebound.test:${service.port}/`);
      expect(response?.status()).toBe(403);
      const answers = await page.evaluate(async (token) => {
        const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
        const body = JSON.stringify({ worker: "echo" });
        const asked = [
          fetch("/v1/health"),
          fetch("/openapi.json"),
          fetch("/v1/runs", { headers }),
          fetch("/v1/runs", { method: "POST", headers, body }),
        ];
        return (await Promise.allSettled(asked)).map((one) =>
          one.status === "fulfilled" ? one.value.status : "refused",
        );
      }, service.token);
      // The policy of the refusal itself lets a page connect nowhere.
      expect(answers.filter((answer) => answer !== 403 && answer !== "refused")).toEqual([]);
      expect(await runs()).toBe(before);
      await page.close();
    });
  },
);

describe.skipIf(NO_CHROMIUM)(
  `what a worker made, opened in the browser${NO_CHROMIUM ? ` (${NO_CHROMIUM})` : ""}`,
  () => {
    it("is never HTML of the service's origin: no script of it runs", async () => {
      const { run } = (await service.ask("POST", "/v1/runs", { body: { worker: "hostile" } })).json;
      await service.ask("GET", `/v1/runs/${run}/result?wait=30`);
      const context = await browser.newContext({ extraHTTPHeaders: { authorization: `Bearer ${service.token}` } });
      const page = await context.newPage();
      const dialogs: string[] = [];
      page.on("dialog", (dialog) => {
        dialogs.push(dialog.message());
        void dialog.dismiss();
      });
      for (const path of [
        `/v1/runs/${run}/output`,
        `/v1/runs/${run}/result`,
        `/v1/runs/${run}/events`,
        "/openapi.json",
      ]) {
        const answered = page.waitForResponse((response) => response.url().endsWith(path));
        await page.goto(`${origin()}${path}`).catch(() => null);
        const response = await answered;
        expect(response.status()).toBe(200);
        expect(response.headers()["content-type"], path).not.toMatch(/html|xml|svg|javascript/);
        expect(response.headers()["x-content-type-options"]).toBe("nosniff");
        expect(response.headers()["content-security-policy"]).toContain("default-src 'none'");
        expect(await page.locator("script").count()).toBe(0);
      }
      expect(dialogs).toEqual([]);
      await context.close();
    });
  },
);
