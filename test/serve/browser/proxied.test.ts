import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CliProject } from "../../cli/cli-project.ts";
import { servedProject } from "../served-project.ts";
import { startService, type TestService } from "../service-client.ts";
import { NO_CHROMIUM, openBrowser } from "./chromium.ts";

/* A service behind a proxy with TLS that passes requests on as docs/how-to/proxies.md says. */

let project: CliProject;
let service: TestService;
let proxy: Server;
let at: string;

beforeAll(async () => {
  const dir = mkdtempSync(join(tmpdir(), "corral-proxy-"));
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const subject = ["-subj", "/CN=corral.test", "-keyout", "key", "-out", "cert"];
  execFileSync("openssl", ["req", "-x509", ...key, ...subject], { cwd: dir, stdio: "ignore" });
  const certificate = { key: readFileSync(join(dir, "key")), cert: readFileSync(join(dir, "cert")) };
  rmSync(dir, { recursive: true });
  proxy = createServer(certificate, (from, to) => {
    const { method, url, headers } = from;
    const passed = request({ host: "127.0.0.1", port: service.port, method, path: url, headers }, (answer) => {
      to.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(to);
    });
    passed.on("error", () => to.destroy());
    from.pipe(passed);
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  at = `https://corral.test:${(proxy.address() as AddressInfo).port}`;
  project = await servedProject();
  service = await startService(project, { args: ["--host", at] });
});
afterAll(async () => {
  proxy?.closeAllConnections();
  proxy?.close();
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const DECISION = "/v1/approvals/000000000000/decision";
const BODY = { answer: "no", digest: "0".repeat(64) };

describe.skipIf(NO_CHROMIUM)("a browser at a proxy with TLS", () => {
  it("reads and decides on the page of the service", async () => {
    const browser = await openBrowser(["--host-resolver-rules=MAP *.test 127.0.0.1", "--ignore-certificate-errors"]);
    try {
      const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
      expect((await page.goto(at))?.status()).toBe(200);
      const [read, decided] = await page.evaluate(
        async ([token, path, body]) => {
          const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
          const answers = [
            await fetch("/v1/caller", { headers }),
            await fetch(path, { method: "POST", headers, body }),
          ];
          return answers.map(({ status }) => status);
        },
        [service.token, DECISION, JSON.stringify(BODY)] as const,
      );
      // The question does not exist; the request was meant for the service.
      expect([read, decided]).toEqual([200, 404]);
    } finally {
      await browser.close();
    }
  });
});

it("what was not meant for the service is refused and logged, with what to set", async () => {
  const host = at.slice("https://".length);
  const foreign = { host, origin: "https://evil.test" };
  expect((await service.ask("POST", DECISION, { body: BODY, headers: foreign })).status).toBe(403);
  expect((await service.ask("GET", "/v1/caller", { headers: { host: "other.test" } })).status).toBe(403);
  const lines = () =>
    service
      .log()
      .split("\n")
      .filter((line) => line.includes('"warn"'));
  await expect
    .poll(() => lines().map((line) => JSON.parse(line)))
    .toMatchObject([
      { ...foreign, msg: expect.stringContaining("start it with --host and this origin") },
      { host: "other.test", msg: expect.stringContaining("--host https://NAME[:PORT]") },
    ]);
});
