import { mkdtemp, rm } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { ruling } from "../../src/approval/rules.ts";
import { decideShell } from "../../src/approval/shell-rules/decide.ts";
import { textDiff } from "../../src/files/diff/text-diff.ts";
import { applyEdits } from "../../src/files/edit/edited-content.ts";
import { InboxFolder } from "../../src/inbox/inbox-folder.ts";
import { parseJson } from "../../src/json/parse-json.ts";
import { listApprovals } from "../../src/operations/approvals.ts";
import { parseCallBody } from "../../src/run/cell/broker.ts";
import { parseAccessBody } from "../../src/run/grants/access-request.ts";
import type { Served } from "../../src/serve/api/owned.ts";
import { routesOf } from "../../src/serve/api/routes.ts";
import { ServiceFault } from "../../src/serve/http/fault.ts";
import { Router } from "../../src/serve/http/router.ts";
import { currentOwner, loadSealKey } from "../../src/state/owner.ts";
import { projectMark, statePaths } from "../../src/state/state-dir.ts";
import { lookAlikeTexts } from "../../src/text/look-alike.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

/** The set-up of this folder fails each of these if Corral needs its thread for too long. */
describe("input that takes long to look at", () => {
  const KIB = 1024;

  it.each<[program: string, piece: string]>([
    ...["a;", "a&&", "x ", "$x", ">a ", "<<E ", "`a`", "~/ ", "$(a "].map((piece): [string, string] => ["ls", piece]),
    // Each argument of these is looked at: they may run what it says.
    ["find", "-x "],
    ["test", "[x "],
  ])("is a command line of %s and many %j, under as many rules as there may be", (program, piece) => {
    const command = `${program} ${piece.repeat(65_000 / piece.length)}`;
    const patterns = Array.from({ length: 200 }, (_, at) => `git a${at} *b*c* **`);
    const rules = patterns.map((pattern) => ({ pattern, approval: "pre_approved" as const }));
    expect(decideShell(command, { default: "ask", rules }).consent).toBe("ask");
    const decide = ruling(patterns.map((pattern) => ({ command: pattern, decide: "deny" })));
    decide({ run: "r", root: "r", worker: "w", operations: ["exec"], paths: [], command });
  });

  it.each<[string, (size: number) => string[]]>([
    [
      "of many short lines",
      (size) => Array.from({ length: size / 2 }, (_, at) => "ab"[(at * 7919) % 3 === 0 ? 1 : 0] ?? ""),
    ],
    ["of lines that alternate", (size) => Array.from({ length: size / 2 }, (_, at) => "abc"[at % 3] ?? "")],
    ["of empty lines", (size) => Array.from({ length: size }, () => "")],
  ])("is a diff %s", (_what, lines) => {
    const content = lines(256 * KIB);
    textDiff(
      Buffer.from(content.join("\n")),
      Buffer.from(
        content
          .toReversed()
          .join("\nb\n")
          .slice(0, 256 * KIB),
      ),
    );
  });

  it.each<[string, (at: number) => string]>([
    ["of ASCII", (at) => `/out/${"a/b".repeat(20)}${at}`],
    ["of letters that look like others", (at) => `/out/${"\u0430".repeat(120)}${at}`],
    ["of marks and of what may part names", (at) => `/out/${"a\u0301\u00b7\u2215\u0431".repeat(25)}${at}`],
    ["of letters that stand for many", (at) => `/out/${"\ufdfa".repeat(80)}${at}`],
    ["that are deep", (at) => `/${at}`.repeat(700)],
  ])("are more names %s than can be compared, which is said", (_what, name) => {
    const texts = lookAlikeTexts(Array.from({ length: 20_000 }, (_, at) => name(at)));
    expect(texts.at(-1)).toMatch(/^too many names to compare: only the first \d+ were$/);
  });

  it("are questions about many names, each time that they are listed", async () => {
    await using dirs = new AsyncDisposableStack();
    const stateDir = await mkdtemp(join(tmpdir(), "corral-held-up-"));
    dirs.defer(() => rm(stateDir, { recursive: true, force: true }));
    const dir = join(statePaths(stateDir).inbox, projectMark("/projects/a"));
    const folder = new InboxFolder({ dir, key: await loadSealKey(stateDir), self: currentOwner() });
    folder.make();
    const paths = Array.from({ length: 1500 }, (_, at) => `/out/${"\u0430".repeat(100)}${at}`);
    const waiting = [{ run: "r", root: "r" }];
    const question = { run: "r", root: "r", waiting, worker: "w", runs: 1, operations: ["write"] as const, paths };
    const asked = { project: "/projects/a", askedAt: new Date().toISOString(), at: "board", question } as const;
    for (let count = 0; count < 10; count += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      expect(folder.post({ ...asked, timeoutMs: null, answers: ["once", "no"] })).not.toBeNull();
    }
    await new Promise((resolve) => setImmediate(resolve));
    const [first, ...more] = await listApprovals(stateDir, { state: "waiting" });
    expect(more).toHaveLength(9);
    expect(first?.lookAlike.at(-1)).toMatch(/^too many names to compare/);
  });

  it("are edits that search a long text many times", () => {
    const content = "a".repeat(9 * KIB * KIB);
    const edits = Array.from({ length: 4 }, () => ({ old: `${"a".repeat(KIB * KIB)}b`, new: "c" }));
    expect(() => applyEdits("/a", content, edits)).toThrow(/not found/);
  });

  it("are as many variables, fields or parts as a request can have", async () => {
    await using s = await openSessionIn({ workers: { w: { command: ["true"], sandbox: {} } } });
    const names = Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`A${at}`, ""]));
    for (const input of [
      { command: "ls", env: names },
      { command: "ls", ...names },
      { command: Object.values(names) },
    ]) {
      await new Promise((resolve) => setImmediate(resolve));
      expect(await s.tool("exec", input)).toMatchObject({ ok: false, code: "BAD_INPUT" });
    }
  });
});

const MIB = 1024 ** 2;
const repeat = (piece: string, bytes: number): string => piece.repeat(Math.floor(bytes / piece.length));
const objects = (count: number, fields: number, same: boolean): string => {
  const object = (of: number): string =>
    `{${Array.from({ length: fields }, (_, at) => `"k${same ? at : of * fields + at}":1`).join()}}`;
  return Array.from({ length: count }, (_, at) => object(at)).join();
};

/** Values that are as large as may be, each in a way that costs much. `bytes`: of the longest. */
const VALUES: Readonly<Record<string, (bytes: number) => string>> = {
  "a list of numbers": () => `[${repeat("1,", 960_000)}1]`,
  "a list of fractions": () => `[${repeat("1.5,", 960_000)}1.5]`,
  "a list of texts": () => `[${repeat('"a",', 1_900_000)}"a"]`,
  "a list of empty objects": () => `[${repeat("{},", 740_000)}{}]`,
  "a list of small objects": () => `[${objects(160_000, 1, true)}]`,
  "a list of objects with many names": () => `[${objects(490, 100, false)}]`,
  "a list of objects with too many names": () => `[${objects(4800, 100, false)}]`,
  "an object of many names": () => objects(1, 45_000, false),
  "an object of too many names": () => objects(1, 480_000, false),
  "a deep list": () => `${"[".repeat(499)}${"]".repeat(499)}`,
  "a list that is too deep": () => `${"[".repeat(1_000_000)}`,
  "a long text": (bytes) => `"${"a".repeat(bytes)}"`,
  "a long text of escapes": (bytes) => `"${repeat("\\u20ac", bytes)}"`,
  "a long text of quotes": (bytes) => `"${repeat('\\"', bytes)}"`,
  "a long number": (bytes) => `1${"0".repeat(bytes)}`,
  "long texts": (bytes) => `[${repeat(`"${"a".repeat(1000)}",`, bytes)}""]`,
};

const COSTLY_TO_CHECK = ["a list of small objects", "an object of many names", "a long text of escapes"];

/** As they come from a connection: at most so much in one turn. */
async function* arriving(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += MIB) {
    await new Promise((resolve) => setImmediate(resolve));
    yield bytes.subarray(at, at + MIB);
  }
}

describe("a body that takes long to look at", () => {
  const routes = routesOf({ over: new AbortController().signal } as Served, {}, "0").filter(
    ({ body }) => body !== undefined,
  );
  const router = new Router(routes);
  const fieldsOf: Readonly<Record<string, string>> = {
    "/v1/runs": '"worker":"a","arguments"',
    "/v1/fleets": '"worker":"a","items"',
    "/v1/changesets/{changeset}/apply": `"digest":"${"0".repeat(64)}","only"`,
    "/v1/sessions/{session}/tools/{tool}": '"path"',
  };

  /** Those that are the same for all routes, each made once. */
  const made = new Map<string, string>();
  const asked = routes.map(({ path, maxBodyBytes = MIB }) => [path, maxBodyBytes] as const);
  it.each(asked)("is refused or handed on by POST %s before it holds up others", async (path, maxBytes) => {
    // What no field has is the same for all routes, and the largest are tried in one way.
    const isFirst = path === asked[0]?.[0];
    const params = {
      fleet: "0".repeat(12),
      changeset: "0".repeat(12),
      approval: "0".repeat(12),
      session: "0".repeat(12),
      tool: "exec",
    };
    const place = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => params[name as keyof typeof params]);
    // How long a body is read does not depend on its route: where no field takes a large value, a few show that the schema does not take longer.
    const isPlain = !isFirst && maxBytes === MIB && fieldsOf[path] === undefined;
    for (const [what, value] of Object.entries(VALUES)) {
      if (isPlain && !AT_LENGTH && !COSTLY_TO_CHECK.includes(what)) continue;
      const text = made.get(what) ?? value(maxBytes - 2000);
      if (value.length === 0) made.set(what, text);
      const inField = `{${fieldsOf[path] ?? '"project"'}:${text}}`;
      for (const body of maxBytes > 10 * MIB || !isFirst ? [inField] : [inField, `{"unknown":${text}}`, text]) {
        const bytes = Buffer.from(body.slice(0, maxBytes));
        const request = Object.assign(Readable.from(arriving(bytes)), {
          headers: { "content-type": "application/json" },
        });
        const asking = {
          caller: { name: "run", roles: ["run", "decide"] as const, token: "t" },
          gone: new AbortController().signal,
          request: request as unknown as IncomingMessage,
          take: () => {},
          carriage: null,
        };
        await new Promise((resolve) => setImmediate(resolve));
        const error = await router
          .run(router.find("POST", place), new URLSearchParams(), asking)
          .catch((thrown) => thrown);
        // What the schema takes goes to the route, which has no service here.
        if (!(error instanceof TypeError)) expect(error, `${path} ${what}`).toBeInstanceOf(ServiceFault);
      }
    }
  });
});

describe("what a program in a cell sends", () => {
  it.each(Object.keys(VALUES))("is refused before it holds up others: %s", async (what) => {
    const text = VALUES[what]?.(4 * MIB - 2000) ?? "";
    for (const body of [
      text,
      `{"worker":"w","attachments":${text}}`,
      `{"worker":"w","narrow":{"allow_read":${text}}}`,
      `{"host":${text}}`,
    ]) {
      await new Promise((resolve) => setImmediate(resolve));
      const parsed = parseJson(body, 100_000);
      if (!parsed.ok) continue;
      await new Promise((resolve) => setImmediate(resolve));
      expect(String(parseCallBody(parsed.value)).length).toBeLessThan(5000);
      expect(String(parseAccessBody(parsed.value)).length).toBeLessThan(5000);
    }
  });
});
