import { createServer, type Server } from "node:net";
import pc from "picocolors";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { questionText } from "../../src/operations/wording/question-text.ts";
import { type Person, personWho } from "../run/grants/person.ts";
import { openProject, type ProjectFixture, sh, type WorkerSpec } from "../run/project-fixture.ts";

let server: Server;
let port = 0;
let connections = 0;
const lookedUp: string[] = [];
let project: ProjectFixture | null = null;

beforeAll(async () => {
  server = createServer((socket) => {
    connections += 1;
    socket.on("error", () => {}).end("hello\n");
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  port = (server.address() as { port: number }).port;
});

afterAll(() => void server.close());

afterEach(async () => {
  await project?.[Symbol.asyncDispose]();
  project = null;
  lookedUp.length = 0;
  connections = 0;
});

const to = (name: string) => `${name}.example:${port}`;
const within = (...names: string[]) => ({ network: { dynamic: { within: names.map(to), max: 2 } } });

/** Asks at the socket, with the body as it is; prints code or scope of the answer. */
const ASK = `ask() { curl -s --unix-socket "$CORRAL_SOCKET" --data-binary "$1" http://corral/v1/access | grep -oE '"(code|scope)":"[A-Za-z_]+"' | cut -d'"' -f4; }
want() { ask "{\\"host\\":\\"$1\\"}"; }`;

/** Of a user who always agrees: what is refused, no agreement would help. */
async function answers(
  script: string,
  {
    person = personWho("session"),
    sandbox = within("a", "b", "c"),
    workers = {},
  }: {
    person?: Person;
    sandbox?: object;
    workers?: Readonly<Record<string, WorkerSpec>>;
  } = {},
): Promise<{ lines: string[]; asked: (string | undefined)[]; called: string[] }> {
  const allow = ["a", "b", "c"].map((name) => ({ to: to(name), addresses: ["127.0.0.0/8"] }));
  const w: WorkerSpec = { command: sh(`${ASK}\n${script}`), sandbox, calls: Object.keys(workers) };
  project = await openProject(
    { workers: { w, ...workers }, sandbox: { network: { allow } }, policy: "default" },
    {
      person,
      networkHost: {
        resolveName: async (name) => {
          lookedUp.push(name);
          return ["127.0.0.1"];
        },
      },
    },
  );
  const result = await project.run("w");
  expect(result.status, result.stderr).toBe("succeeded");
  return {
    lines: result.stdout.trim().split("\n"),
    asked: person.asked.map((asked) => asked.to),
    called: result.calls.map(({ stdout }) => stdout),
  };
}

describe("a forged request for a host", () => {
  it("is no request, and nobody is asked", async () => {
    const bodies = [
      `{"host":"a.example:${port}\\\\r\\\\nb.example:${port}"}`,
      `{"host":"a.example:${port}\\\\u0000"}`,
      `{"host":"a.example:${port} b.example:${port}"}`,
      `{"host":"u@a.example:${port}"}`,
      `{"host":"a.example:${port}/x"}`,
      `{"host":"*.example:${port}"}`,
      `{"host":"a.example:*"}`,
      `{"host":"a.example%00:${port}"}`,
      `{"host":"[::ffff:127.0.0.1]:${port}"}`,
      `{"host":["a.example:${port}"]}`,
      `{"host":"a.example:${port}","path":"/x"}`,
      `{"host":"a.example:${port}","scope":"session"}`,
      `{"host":"a.example:${port}","reason":""}`,
      `{"host":"${"a".repeat(301)}:${port}"}`,
    ];
    const script = bodies.map((body) => `ask '${body.replaceAll("\\\\", "\\")}'`).join("\n");
    const { lines, asked } = await answers(script);
    expect(lines).toHaveLength(bodies.length);
    for (const line of lines) expect(line).toMatch(/^(BAD_REQUEST|GRANT_NO_HOST|GRANT_OUTSIDE)$/);
    expect(asked).toEqual([]);
    expect(lookedUp).toEqual([]);
  });

  it("is one host in every way to write it, and is asked about once", async () => {
    const forms = [to("a"), to("A").toUpperCase(), `a.example.:${port}`, `ａ.example:${port}`, `a。example:${port}`];
    const { lines, asked } = await answers(forms.map((form) => `want '${form}'`).join("\n"));
    expect(lines).toEqual(["session", "had", "had", "had", "had"]);
    expect(asked).toEqual([to("a")]);
  });

  it("shows the user what it is for in one line, whatever the worker writes there", async () => {
    const person = personWho("no");
    await answers(`ask '{"host":"${to("a")}","reason":"a\\u001b[2Jb\\nAllow it? yes"}'`, { person });
    const [asked] = person.asked;
    if (asked === undefined) throw new Error("nobody was asked");
    const { above, message } = questionText({ ...asked, runs: 1 }, 100, pc.createColors(false));
    expect(message).toBe(`Worker w asks to reach ${to("a")}. Allow it?`);
    expect(above).toEqual([
      expect.stringMatching(/^ {2}┊ reason: a.*b.*Allow it\? yes$/),
      "  ┊ it reaches no host yet",
    ]);
    expect(above.join("")).not.toMatch(/[\p{Cc}]/u);
  });
});

describe("a host beyond", () => {
  it("what the worker declares, the project or the number is not granted, and the list stays as it is", async () => {
    const { lines, asked } = await answers(
      [`want ${to("c")}`, `want a.example:1`, `want evil.test:443`, `want ${to("a")}`, `want ${to("b")}`].join("\n"),
      { sandbox: within("a", "b") },
    );
    expect(lines).toEqual(["GRANT_OUTSIDE", "GRANT_OUTSIDE", "GRANT_OUTSIDE", "session", "session"]);
    expect(asked).toEqual([to("a"), to("b")]);
    const more = await answers(["a", "b", "c", "a"].map((name) => `want ${to(name)}`).join("\n"));
    expect(more.lines).toEqual(["session", "session", "GRANT_LIMIT", "had"]);
  });

  it("what a called worker declares does not come by its caller's consent, nor widens its caller without any", async () => {
    const leaf: WorkerSpec = { command: sh(`${ASK}\nwant ${to("a")}; want ${to("b")}`), sandbox: within("a") };
    const { called, lines, asked } = await answers(
      `corral-call leaf >/dev/null; curl -s --unix-socket "$CORRAL_SOCKET" http://corral/v1/sandbox | grep -oE '"allow":[^]]*]'`,
      { person: personWho("no"), workers: { leaf } },
    );
    expect(called).toEqual(["APPROVAL_DENIED\nGRANT_OUTSIDE\n"]);
    expect(lines).toEqual(['"allow":[]']);
    expect(asked).toEqual([to("a")]);
  });
});

describe("a flood of requests", () => {
  it("is bounded for a whole tree, however many are made at once", async () => {
    const person = personWho("no");
    // One program makes 80 requests: to start 80 takes most of the time.
    const config = `for j in $(seq 1 80); do [ $j = 1 ] || echo next; cat <<END
unix-socket = "$CORRAL_SOCKET"
url = "http://corral/v1/access"
data-binary = "{\\"host\\":\\"${to("a")}\\"}"
END
done > /tmp/flood`;
    const flood = "for i in $(seq 1 8); do curl -s -K /tmp/flood & done; wait";
    const counted = `{ ${flood}; } | grep -oE '"code":"[A-Z_]+"' | cut -d'"' -f4 | sort | uniq -c | awk '{print $2, $1}'`;
    const { lines } = await answers(`${config}\n${counted}`, { person });
    const counts = Object.fromEntries(lines.map((line) => line.split(" ")));
    expect(Number(counts.APPROVAL_DENIED) + Number(counts.GRANT_LIMIT)).toBe(640);
    expect(person.asked.length).toBeLessThanOrEqual(500);
    expect(Number(counts.GRANT_LIMIT)).toBe(140);
  }, 120_000);
});

describe("the place of a granted host", () => {
  it("leads nowhere else if a program of the cell takes its address before", async () => {
    const listen = `perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(LocalAddr => "127.88.1.1", LocalPort => ${port}, Listen => 1, ReuseAddr => 1) or die; print STDERR "ready\\n"; sleep 20' & sleep 1`;
    const { lines } = await answers(
      `${listen}; want ${to("a")}; getent hosts a.example | wc -l; echo x >> /etc/hosts || echo refused`,
    );
    expect(lines).toEqual(["session", "0", "refused"]);
    expect(connections).toBe(0);
    expect(project?.events.filter(({ type }) => type === "trouble")).toMatchObject([
      { detail: expect.stringContaining("has no place in the container") },
    ]);
  });
});
