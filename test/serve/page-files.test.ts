import { buffer } from "node:stream/consumers";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CliProject } from "../cli/cli-project.ts";
import { servedProject } from "./served-project.ts";
import { startService, type TestService } from "./service-client.ts";

let project: CliProject;
let service: TestService;

beforeAll(async () => {
  project = await servedProject();
  service = await startService(project);
});
afterAll(async () => {
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const open = (method: string, path: string, headers: Record<string, string> = {}) =>
  service.open(method, path, { token: null, headers });

async function assets(): Promise<string[]> {
  const html = (await buffer(await open("GET", "/"))).toString();
  return [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path = ""]) => path);
}

describe("the files of the page", () => {
  it("need no token, have their types, and are kept by their names", async () => {
    const html = await open("GET", "/");
    expect(html.headers).toMatchObject({ "content-type": "text/html; charset=utf-8", "cache-control": "no-cache" });
    const found: (string | undefined)[] = [];
    for (const path of await assets()) {
      const { statusCode, headers } = await open("GET", path);
      expect([statusCode, headers["cache-control"]]).toEqual([200, "public, max-age=31536000, immutable"]);
      found.push(headers["content-type"]);
    }
    expect(found.toSorted()).toEqual(["image/svg+xml", "text/css; charset=utf-8", "text/javascript; charset=utf-8"]);
  });

  it("have no script and no style of their own in the HTML, and the policy permits none", async () => {
    const response = await open("GET", "/");
    const html = (await buffer(response)).toString();
    expect(html).not.toMatch(/<style|style=|<script(?![^>]* src=)|\son\w+=|javascript:/i);
    const policy = response.headers["content-security-policy"];
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
  });

  it("come compressed to a client that takes it, together in at most 100 KiB, with the same content", async () => {
    let total = 0;
    for (const path of ["/", ...(await assets())]) {
      const zipped = await open("GET", path, { "accept-encoding": "br, gzip" });
      const bytes = await buffer(zipped);
      expect([zipped.headers["content-encoding"], zipped.headers.vary]).toEqual(["gzip", "accept-encoding"]);
      expect(gunzipSync(bytes).equals(await buffer(await open("GET", path)))).toBe(true);
      total += bytes.length;
    }
    expect(total).toBeLessThan(100 * 1024);
    const head = await open("HEAD", "/");
    expect([head.statusCode, (await buffer(head)).length, Number(head.headers["content-length"]) > 0]).toEqual([
      200,
      0,
      true,
    ]);
  });

  it.each([
    ...["/assets/", "/assets", "/index.html", "/assets/../index.html", "/assets/..%2f..%2fpackage.json", "//assets/x"],
    ...[
      "/assets/%2e%2e/%2e%2e/package.json",
      "/assets/__proto__",
      "/constructor",
      "/assets/page.js\u0000.css".replace("\u0000", "%00"),
    ],
  ])("are these alone: %s is none", async (path) => {
    const response = await open("GET", path);
    expect([400, 401]).toContain(response.statusCode);
    expect(response.headers["content-type"]).toContain("application/json");
  });

  it("are only read: a form cannot be sent to the page", async () => {
    expect((await open("POST", "/")).statusCode).toBe(401);
  });

  it("are reached by a link of another site, and nothing else is", async () => {
    const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
    expect((await open("GET", "/", link)).statusCode).toBe(200);
    const [asset = ""] = await assets();
    for (const [path, headers] of [
      ["/", { ...link, "sec-fetch-dest": "iframe" }],
      ["/", { ...link, "sec-fetch-mode": "no-cors" }],
      ["/", { ...link, host: "evil.example" }],
      [asset, { ...link, "sec-fetch-dest": "script", "sec-fetch-mode": "no-cors" }],
      ["/v1/health", link],
      ["/?token=x", link],
    ] as const)
      expect((await open("GET", path, headers)).statusCode, JSON.stringify([path, headers])).toBe(403);
  });
});
