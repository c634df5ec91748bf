import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openProject, python, sh, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const CANARY = "from-outside-the-sandbox";

/**
 * A process that exchanges the folder /work/f and the link /work/g without a pause, atomically, while threads call
 * workers that are to see something below /work/f. The calls come as a list of requests.
 */
const ATTACKER = `
import ctypes, http.client, json, os, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor
plan = json.load(sys.stdin)
if not os.path.lexists("/work/g"): os.symlink(plan["outside"], "/work/g")
libc = ctypes.CDLL(None, use_errno=True)
if os.fork() == 0:
    while True:
        if libc.renameat2(-100, b"/work/f", -100, b"/work/g", 2) != 0: os._exit(ctypes.get_errno())

class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["CORRAL_SOCKET"])

def call(request):
    connection = Connection("corral")
    connection.request("POST", "/v1/calls", json.dumps(request))
    return connection.getresponse().read().decode()

with ThreadPoolExecutor(8) as pool: answers = list(pool.map(call, plan["requests"]))
print(sum(${JSON.stringify(CANARY)} in answer for answer in answers))
sys.stdout.flush()
`;

let outside: string;

beforeEach(async () => {
  outside = await mkdtemp(join(tmpdir(), "corral-outside-"));
  await mkdir(join(outside, "sub"));
  await writeFile(join(outside, "sub/note"), CANARY);
});

afterEach(async () => {
  await rm(outside, { recursive: true, force: true });
});

const MAX_RUNS = 10;
const RACES: readonly (readonly [what: string, rounds: number, request: object])[] = [
  ["a directory below it", 30, { worker: "peek" }],
  [
    "a directory below it, by what the caller leaves",
    20,
    { worker: "inheritor", narrow: { allow_read: "/work/f/sub" } },
  ],
  ["a file below it, as attachment", 20, { worker: "reader", attachments: ["/work/f/sub/note"] }],
];

// The host reads attachments; a driver mounts directories.
it.each(isAgain() ? RACES.slice(0, 2) : RACES)(
  "a folder that is swapped for a link to outside shows no called worker %s",
  { timeout: 300_000 },
  async (_, rounds, request) => {
    const count = AT_LENGTH ? 4 * rounds : rounds;
    await using project = await openProject({
      workers: {
        attacker: {
          image: "corral/python",
          command: python(ATTACKER),
          sandbox: { zones: [writable("work")] },
          calls: ["peek", "inheritor", "reader"],
          limits: { timeout: "2m" },
        },
        peek: { command: sh("cat /work/f/sub/*"), sandbox: { allow_read: ["/work/f/sub"] } },
        inheritor: { command: sh("cat /work/f/sub/*"), sandbox: { inherit: true } },
        reader: { command: sh("cat /attachments/*") },
      },
      zones: { work: "rw" },
      files: { "work/f/sub/note": "inside" },
      yaml: { delegation: { max_parallel: 8, max_calls: 200 } },
    });
    const ends = new Set<string>();
    // Until both ends were seen, so that the race took place: on a busy machine one side can be late in a whole run.
    for (let runs = 0; runs < MAX_RUNS && ends.size < 2; runs += 1) {
      const result = await project.run("attacker", { input: { outside, requests: Array(count).fill(request) } });
      expect(result, result.stderr).toMatchObject({ status: "succeeded", stdout: "0\n" });
      expect(JSON.stringify(result)).not.toContain(CANARY);
      expect(result.calls).toHaveLength(count);
      for (const { status, stdout } of result.calls) ends.add(`${status} ${stdout}`.trim());
    }
    expect([...ends].sort()).toEqual(["refused", "succeeded inside"]);
    expect(await project.traces()).toEqual([]);
  },
);
