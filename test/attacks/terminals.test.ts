import { readFileSync } from "node:fs";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/client/client.ts";
import { transportTo } from "../../src/client/node.ts";
import type { EventOf } from "../../src/operations/contract/table.ts";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { startWithin } from "../cli/within-process.ts";
import { startService, type TestService } from "../serve/service-client.ts";
import { isAgain } from "../tiers/again.ts";

const MiB = 1024 ** 2;
let project: CliProject;
let service: TestService;
let admin: ServiceClient;
/** Of another person, who may run work. */
let other: ServiceClient;
let session: string;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted" },
    workers: {
      w: {
        image: "corral/base",
        command: ["true"],
        shell_rules: { default: "blocked", rules: [{ pattern: "sleep *", approval: "pre_approved" }] },
        limits: { memory: "128m", pids: 64 },
      },
    },
  });
  service = await startService(project);
  const transport = transportTo(`http://127.0.0.1:${service.port}`);
  admin = new ServiceClient(transport, service.token);
  const made = await project.corral(["serve", "token", "create", "--role", "read", "--role", "run"]);
  other = new ServiceClient(transport, made.stdout.trim());
  session = (await admin.call("sessions.open", { worker: "w" })).id;
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await project[Symbol.asyncDispose]();
});

const size = { columns: 80, rows: 24 };

type Event = EventOf<"sessions.exec">;

/** A command at a terminal, of its owner, whose output is read as fast as it comes; `text` has all of it. */
async function typedAt(command: string, at = size as typeof size | undefined) {
  const leaving = new AbortController();
  const ask = { session, command, asOwner: true, input: true, ...(at && { terminal: at }) };
  const events = admin.stream("sessions.exec", ask, { signal: leaving.signal })[Symbol.asyncIterator]();
  const first = (await events.next()).value as Event;
  if (first.type !== "started") throw new Error(`the first event is ${first.type}`);
  const seen = { text: "", missingBytes: 0, status: "" };
  const follow = async (): Promise<void> => {
    for (;;) {
      const { value: event, done } = await events.next();
      if (done) return;
      if (event.type === "printed") {
        seen.text += Buffer.from(event.base64, "base64").toString("latin1").replaceAll("\r", "");
        seen.missingBytes += event.missingBytes;
      } else if (event.type === "ended") seen.status = event.status;
    }
  };
  return { id: first.command, seen, follow, leave: () => leaving.abort(new Error("left")) };
}

async function owned(command: string): Promise<string> {
  const { seen, follow } = await typedAt(command, undefined);
  await follow();
  return seen.text;
}

/** How many processes of the session run this program. */
async function running(program: string): Promise<number> {
  return (await owned("cat /proc/[0-9]*/comm")).split("\n").filter((name) => name === program).length;
}

/** A request whose answer is never read. */
function unread(body: object): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest({
      ...{ host: "127.0.0.1", port: service.port, agent: false, method: "POST" },
      path: `/v1/sessions/${session}/exec`,
      headers: { "content-type": "application/json", authorization: `Bearer ${service.token}` },
    });
    sent.once("error", reject).once("response", (response) => resolve(response.pause()));
    sent.end(JSON.stringify(body));
  });
}

const residentBytes = (): number =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${service.child.pid}/status`, "utf8"))?.[1]) * 1024;

describe("a program at the terminal of a session", () => {
  it.skipIf(isAgain())(
    "draws on the terminal of who looks at it, and reaches neither its clipboard and title nor what it types",
    async () => {
      const hostile = "\\033]52;c;aGk=\\007\\033]0;title\\007\\033P$qm\\033\\\\\\033[21t\\005";
      const { stdin, stdout, ended } = startWithin(
        ["session", "exec", session, "-t", "--", "sh", "-c", `printf 'a${hostile}\\033[31;1mred\\033[?1003h'`],
        {
          env: { ...process.env, CORRAL_HOST: `http://127.0.0.1:${service.port}`, CORRAL_TOKEN: service.token },
          cwd: project.dir,
        },
      );
      for (const stream of [stdin, stdout])
        Object.assign(stream, { isTTY: true, setRawMode: () => {}, columns: 80, rows: 24 });
      let text = "";
      stdout.setEncoding("latin1").on("data", (piece: string) => (text += piece));
      expect(await ended).toBe(0);
      const drawn = text.replaceAll("\x1b\\", "");
      expect(drawn.startsWith("a\x1b[31;1mred\x1b[?1003h\x1b[?1047l")).toBe(true);
      expect(drawn.endsWith("\x1b[?25h")).toBe(true);
    },
  );

  it.skipIf(isAgain())("is typed at only by who may: what no rule judges takes no word of another token", async () => {
    const { id, seen, follow } = await typedAt("exec sh");
    const over = follow();
    const type = (client: ServiceClient, text: string) =>
      client.upload("sessions.input", { session, command: id }, Buffer.from(text));
    await expect(type(other, "echo typed-by-other > /tmp/typed\n")).rejects.toMatchObject({ status: 403 });
    await type(admin, "test -e /tmp/typed || echo no''ne\n");
    await expect.poll(() => seen.text).toContain("none\n");
    // What the rules of the worker allow, its own client types into.
    const { id: own } = await other.call("sessions.start", { session, command: "sleep 4751", input: true });
    expect(await other.upload("sessions.input", { session, command: own }, Buffer.from("x"))).toEqual({ bytes: 1 });
    await other.call("sessions.signal", { session, command: own, signal: "SIGKILL" });
    await type(admin, "exit 3\n");
    await over;
    expect(seen.status).toBe("failed");
  });
});

describe("two clients on one terminal", () => {
  it.skipIf(isAgain())(
    "both see what is printed, both may type and say its size, and one who leaves takes nothing from the other",
    async () => {
      const { id, seen, follow } = await typedAt("exec sh");
      const looking = new AbortController();
      let looked = "";
      const look = async (): Promise<void> => {
        for await (const event of other.stream("sessions.output", { session, command: id }, { signal: looking.signal }))
          if (event.type === "printed")
            looked += Buffer.from(event.base64, "base64").toString("latin1").replaceAll("\r", "");
      };
      const looks = look().catch(() => {});
      const type = (text: string) => admin.upload("sessions.input", { session, command: id }, Buffer.from(text));
      // The owner reads nothing yet: what the other one has read stays for it.
      await type("stty -echo; echo; seq 60000; echo l''ast\n");
      await expect.poll(() => looked).toContain("59999\n");
      const over = follow();
      await expect.poll(() => seen.text).toContain("last\n");
      expect([seen.missingBytes, seen.text.match(/^\d+$/gm)?.length]).toEqual([0, 60_000]);
      await Promise.all([type("echo o''ne\n"), type("echo t''wo\n")]);
      await expect.poll(() => seen.text).toMatch(/one\n[\s\S]*two\n|two\n[\s\S]*one\n/);
      await other.call("sessions.resize", { session, command: id, columns: 71, rows: 31 });
      await type("until [ \"$(stty size)\" = '31 71' ]; do sleep 0.05; done; echo re''sized\n");
      await expect.poll(() => looked).toContain("resized\n");
      looking.abort(new Error("left"));
      await looks;
      await type("echo st''ill; exit 0\n");
      await over;
      expect([seen.text.includes("still\n"), seen.status]).toEqual([true, "succeeded"]);
    },
  );
});

describe("a client that never reads", () => {
  it("holds up its own command alone, in a memory that does not grow", async () => {
    const before = residentBytes();
    const endless = "n=0; while :; do head -c 65536 /dev/zero; n=$((n+1)); echo $n > /tmp/printed.$$; done";
    const answers = await Promise.all(
      [undefined, size, undefined, size].map((terminal) =>
        unread({ command: endless, asOwner: true, ...(terminal && { terminal }) }),
      ),
    );
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200, 200]);
    const counts = async () => (await owned("cat /tmp/printed.*")).trim().split("\n").map(Number);
    await expect.poll(async () => (await counts()).length).toBe(4);
    let last = await counts();
    const isStill = async (): Promise<boolean> => {
      const before = last;
      last = await counts();
      return String(last) === String(before);
    };
    await expect.poll(isStill, { interval: 1500 }).toBe(true);
    expect(Math.max(...last)).toBeLessThan(512);
    expect(residentBytes() - before).toBeLessThan(128 * MiB);
    expect(await owned("echo alive")).toBe("alive\n");
    // It goes away: what it has started goes with it, and nothing else.
    for (const answer of answers) answer.destroy();
    await expect.poll(() => running("head")).toBe(0);
  });

  it.skipIf(isAgain())(
    "is not one that types for a command that does not read: that is refused after some of it",
    async () => {
      const { id } = await other.call("sessions.start", { session, command: "sleep 4752", input: true });
      const codes: string[] = [];
      const sent = Array.from({ length: 16 }, () =>
        other
          .upload("sessions.input", { session, command: id }, Buffer.alloc(MiB))
          .catch((error: { code?: string }) => void codes.push(error.code ?? String(error))),
      );
      await expect.poll(() => codes.length).toBeGreaterThan(12);
      expect(new Set(codes)).toEqual(new Set(["INPUT_NOT_READ"]));
      await other.call("sessions.signal", { session, command: id, signal: "SIGKILL" });
      await Promise.all(sent);
      expect(await owned("echo alive")).toBe("alive\n");
    },
  );
});

describe("a client that goes away", () => {
  it("ends its command with all that it started, wherever that hides, and the session lives", async () => {
    const hides = "setsid sleep 4753 & (setsid sh -c 'trap \"\" TERM HUP; sleep 4754') & sleep 4755";
    for (const at of [size, undefined]) {
      const { leave, follow } = await typedAt(hides, at);
      const over = follow().catch(() => {});
      await expect.poll(() => running("sleep")).toBe(3);
      const { id } = await other.call("sessions.start", { session, command: "sleep 4756" });
      leave();
      await over;
      await expect.poll(() => running("sleep")).toBe(1);
      await other.call("sessions.signal", { session, command: id, signal: "SIGKILL" });
      await expect.poll(() => running("sleep")).toBe(0);
    }
    expect(await owned("echo alive")).toBe("alive\n");
  });
});
