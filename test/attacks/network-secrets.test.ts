import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { httpServer } from "../egress/servers.ts";
import { shownCell } from "../run/outside-cell.ts";
import { openProject, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";
import { type CanaryKey, canaryKey, tracesBelow } from "./canary-key.ts";

/* A secret of `corral.yaml` that a rule sets is at its server, and nowhere else: whatever its source, and whatever the server does. */

/** Looks for a text in the environment and in all files, given in halves so as not to find the question. */
const search = ([first, second]: CanaryKey["halves"]): string =>
  `printf '%s%s' '${first}' '${second}' > /tmp/text
   env | grep -c -F -f /tmp/text
   cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /tmp/text
   grep -rlsF -f /tmp/text / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev | grep -v '^/tmp/text$'
   echo searched`;

async function sourceOf(kind: "env" | "file" | "command", key: string) {
  if (kind === "env") return { source: { env: "CANARY" }, env: { CANARY: key } };
  const home = await mkdtemp(join(tmpdir(), "corral-home-"));
  onTestFinished(() => rm(home, { recursive: true }));
  await mkdir(join(home, "keys"));
  await writeFile(join(home, "keys/canary"), `${key}\n`);
  await chmod(join(home, "keys/canary"), 0o600);
  const source = kind === "file" ? { file: "~/keys/canary" } : { command: ["cat", join(home, "keys/canary")] };
  return { source, env: { HOME: home } };
}

// Where a value comes from is the host's concern.
const SOURCES = isAgain() ? (["file"] as const) : (["env", "file", "command"] as const);

describe.each(SOURCES)("a secret of a network from %s", (kind) => {
  it("is in no plan, container, event, result, record, transcript or file", async () => {
    const canary = canaryKey();
    const received: string[] = [];
    await using server = await httpServer((request, response) => {
      const sent = String(request.headers.authorization);
      received.push(sent);
      const forms = [sent, encodeURIComponent(sent), JSON.stringify(sent), Buffer.from(sent).toString("base64")];
      response.writeHead(400, { "content-type": "text/plain", "x-sent": sent }).end(`You sent ${forms.join(" ")}.\n`);
    });
    const { source, env } = await sourceOf(kind, canary.key);
    const url = `http://api.example:${server.port}`;
    const target = { to: `api.example:${server.port}`, addresses: ["127.0.0.0/8"], tls: false };
    const network = { allow: [{ ...target, set: { authorization: { secret: "canary" } } }] };
    const sandbox = { zones: [writable("out")], network };
    const commands = [
      `curl -si ${url}/a > /out/answer; cat /out/answer`,
      `(${search(canary.halves)}) > /out/search`,
      `curl -s ${url}/b -H 'authorization: mine'`,
    ];
    const answers = [...commands.map((command) => ({ calls: [{ exec: { command } }] })), { say: "Done." }];
    await using project = await openProject(
      {
        policy: "default",
        workers: {
          a: { model: "script/scripts/a.yaml", tools: ["exec"], shell_rules: { default: "pre_approved" }, sandbox },
        },
        files: { "scripts/a.yaml": JSON.stringify(answers) },
        zones: { out: "rw" },
        sandbox: { network },
        yaml: { secrets: { canary: source } },
      },
      { engineEnv: { ...process.env, ...env }, networkHost: { resolveName: async () => ["127.0.0.1"] } },
    );
    const shown: string[] = [];
    let looking = true;
    const looks = (async () => {
      while (looking) {
        for (const { run } of await project.corral.environment.driver.list()) {
          // It may be about to begin or to end.
          const cell = await shownCell(project.stateDir, run).catch(() => null);
          shown.push(...((await cell?.texts().catch(() => [])) ?? []));
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    })();
    const result = await project.run("a").finally(() => {
      looking = false;
    });
    await looks;
    expect(result).toMatchObject({ status: "succeeded" });
    // Corral sets the header, also in place of the program's own.
    expect(received).toEqual([canary.key, canary.key]);

    const events = JSON.stringify(project.events);
    const answer = await readFile(join(project.dir, "out/answer"), "utf8");
    expect(answer).toContain("You sent [secret] [secret] ");
    expect(answer).toContain("x-sent: [secret]");
    expect(await readFile(join(project.dir, "out/search"), "utf8")).toBe("0\n0\nsearched\n");
    expect(shown.some((text) => text.includes(result.run))).toBe(true);
    for (const text of [events, JSON.stringify(result), ...shown, JSON.stringify(project.planOf("a"))])
      expect(canary.isIn(text)).toBe(false);
    expect(await tracesBelow(project.stateDir, canary)).toEqual([]);
    expect(await tracesBelow(project.dir, canary)).toEqual([]);
  });
});

it("a secret that is not available refuses its requests alone, and its reason has no part of it", async () => {
  let requests = 0;
  await using server = await httpServer((_, response) => {
    requests += 1;
    response.end("reached\n");
  });
  const rule = { to: `api.example:${server.port}`, addresses: ["127.0.0.0/8"], tls: false };
  const sandbox = {
    network: {
      allow: [
        { ...rule, paths: ["/open"] },
        { ...rule, paths: ["/keyed"], set: { authorization: { secret: "canary" } } },
      ],
    },
  };
  const url = `http://api.example:${server.port}`;
  await using project = await openProject(
    {
      policy: "default",
      workers: { w: { command: ["sh", "-c", `curl -s ${url}/keyed; curl -s ${url}/open`], sandbox } },
      sandbox,
      yaml: { secrets: { canary: { command: ["sh", "-c", "echo s3cret-part >&2; exit 3"] } } },
    },
    { networkHost: { resolveName: async () => ["127.0.0.1"] } },
  );
  const result = await project.run("w");
  expect(result.stdout).toMatch(/^The secret canary is not available\.\n?reached\n$/);
  expect(requests).toBe(1);
  expect(result.network?.denied).toMatchObject([{ reason: "secret", count: 1 }]);
  expect(JSON.stringify([result, project.events])).not.toContain("s3cret-part");
});
