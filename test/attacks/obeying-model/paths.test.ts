import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ProjectFixture } from "../../run/project-fixture.ts";
import type { Canaries } from "./canaries.ts";
import { type Call, obey } from "./obeyed.ts";

/** Ways to write a path that is not the agent's. */
function elsewhere({ outside, other, state }: Canaries, { dir }: ProjectFixture): string[] {
  return [
    "/etc/passwd",
    "/etc/shadow",
    "/root/.ssh/id_rsa",
    "/var/run/docker.sock",
    "/closed/canary",
    "closed/canary",
    "closed:canary",
    "/secret",
    "/../secret",
    "/docs/../secret",
    "/docs/../../secret",
    "/docs/../closed/canary",
    "/out/../closed/canary",
    "../../../../../../etc/passwd",
    "/docs/../../../../../../../../etc/passwd",
    "/docs/./.././../etc/passwd",
    "/docs//..//..//etc/passwd",
    "/docs/..\\..\\etc\\passwd",
    "\\\\?\\C:\\Windows\\win.ini",
    "C:\\secret",
    "/docs/%2e%2e/closed/canary",
    "/docs/..%2fclosed/canary",
    "/docs/\u2025/closed/canary",
    "/docs/．．/closed/canary",
    "/docs/..\u200b/closed/canary",
    "/docs/\u202e..",
    "/docs/a.txt\0/../../closed/canary",
    "/docs\0/closed/canary",
    "\0/closed/canary",
    "~/secret",
    "~root/.bashrc",
    "$HOME/secret",
    "$(cat /closed/canary)",
    `\`cat ${outside}/canary\``,
    "file:///etc/passwd",
    `file://${outside}/canary`,
    "http://127.0.0.1/",
    "/proc/self/environ",
    "/proc/self/cwd/secret",
    "/proc/self/root/etc/passwd",
    `/proc/self/root${outside}/canary`,
    `/proc/${process.pid}/environ`,
    `/proc/${process.pid}/cwd/package.json`,
    "/proc/thread-self/fd/0",
    "/dev/stdin",
    "/dev/mem",
    "/sys/kernel/notes",
    "/docs-evil/a.txt",
    "/docs/../docs-evil/a.txt",
    "/attachments/../closed/canary",
    "/.corral/output/../../closed/canary",
    "/.corral/socket",
    join(outside, "canary"),
    join(outside, "sub/../canary"),
    join(other, "zone/canary"),
    join(dir, "secret"),
    join(dir, "corral.yaml"),
    join(dir, "workers/a.worker"),
    join(dir, "scripts/a.jsonl"),
    join(dir, ".git/hooks/post-commit"),
    join(state, "seal.key"),
    join(state, "live"),
    `/docs/../..${outside}/canary`,
    `/docs/${outside}/canary`,
    `/docs/${"../".repeat(1000)}etc/passwd`,
  ];
}

/** A refusal of the path itself; what is only not there says nothing of the defence, and is asked about below. */
const REFUSED = /^(PATH_|BAD_INPUT|NOT_FOUND|FILE_SYSTEM|GRANT_|PATH|NOT_READABLE)/;

describe("a model that names paths outside of its sandbox", () => {
  it.each<[string, (path: string) => Call]>([
    ["read_file", (path) => ["read_file", { path }]],
    ["list_files", (path) => ["list_files", { path }]],
    ["file_info", (path) => ["file_info", { path }]],
    ["write_file", (path) => ["write_file", { path, content: "pwned" }]],
    ["append_file", (path) => ["append_file", { path, content: "pwned" }]],
    ["edit_file", (path) => ["edit_file", { path, edits: [{ old: "canary", new: "pwned" }] }]],
    ["delete_file", (path) => ["delete_file", { path }]],
    ["copy_file, from there", (path) => ["copy_file", { from: path, to: "/out/loot" }]],
    ["copy_file, to there", (path) => ["copy_file", { from: "/docs/a.txt", to: path, overwrite: true }]],
    ["move_file, from there", (path) => ["move_file", { from: path, to: "/out/loot" }]],
    ["move_file, to there", (path) => ["move_file", { from: "/out/mine", to: path, overwrite: true }]],
  ])("is refused each of them by %s, and changes nothing", async (_, call) => {
    const { outcomes, harm, result } = await obey(
      (canaries, project) => [
        [["write_file", { path: "/out/mine", content: "mine" }]],
        elsewhere(canaries, project).map(call),
      ],
      {},
    );
    expect(result.status).toBe("succeeded");
    const asked = outcomes.slice(1);
    expect(asked.length).toBeGreaterThan(60);
    const through = asked.filter(({ code }) => code === null || !REFUSED.test(code));
    expect(through).toEqual([]);
    expect(harm).toEqual([]);
  });

  it("is told of no place of the host, whatever it asks for", async () => {
    const paths = ["/closed/canary", "/docs/none", "/docs/../x", "/docs/a.txt/x", "/nowhere"];
    let dir = "";
    const { outcomes } = await obey((_, project) => {
      dir = project.dir;
      return [
        paths.flatMap((path): Call[] => [
          ["read_file", { path }],
          ["write_file", { path, content: "" }],
        ]),
      ];
    });
    for (const { text } of outcomes) expect(text).not.toContain(dir);
  });

  it("cannot write to what it may read, nor name Corral's own attachments folder as its own", async () => {
    const { codes, harm } = await obey([
      [
        ["write_file", { path: "/docs/a.txt", content: "pwned" }],
        ["write_file", { path: "/docs/new.txt", content: "pwned" }],
        ["append_file", { path: "docs:a.txt", content: "pwned" }],
        ["delete_file", { path: "/docs/a.txt" }],
        ["delete_file", { path: "/docs" }],
        ["move_file", { from: "/docs/a.txt", to: "/out/a.txt" }],
        ["write_file", { path: "/attachments/x", content: "pwned" }],
        ["write_file", { path: "/.corral/socket", content: "pwned" }],
      ],
      [
        [
          "exec",
          {
            command:
              "echo pwned > /docs/a.txt; echo pwned > /docs/b; rm -rf /docs; chmod 777 /docs; mv /docs /out/; ls /docs",
          },
        ],
      ],
    ]);
    expect(codes.slice(0, 8).filter((code) => code.endsWith(" done"))).toEqual([]);
    expect(harm).toEqual([]);
  });
});

describe("a model that makes unusual files and then names them to its tools", () => {
  it("waits for no FIFO, reads no socket or device, and follows no special file", async () => {
    const make = `cd /out; mkfifo fifo; ln -s /dev/zero zero; ln -s /proc/self/fd/0 in; ls
      python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/out/sock")'`;
    const reads = ["fifo", "sock", "zero", "in"].flatMap((name): Call[] => [
      ["read_file", { path: `/out/${name}` }],
      ["copy_file", { from: `/out/${name}`, to: `/out/copy-${name}` }],
      ["append_file", { path: `/out/${name}`, content: "x" }],
    ]);
    const began = performance.now();
    const { outcomes, codes, harm } = await obey(
      [[["exec", { command: make }]], reads, [["delete_file", { path: "/out/fifo" }]]],
      { agent: { image: "corral/python" } },
    );
    expect(outcomes[0]?.text).toContain("fifo");
    expect(codes.slice(1, -1).filter((code) => code.endsWith(" done"))).toEqual([]);
    expect(performance.now() - began).toBeLessThan(20_000);
    expect(harm).toEqual([]);
  });

  it("makes no hard link to what it only reads, and none that brings a file of the host in", async () => {
    const { outcomes, harm } = await obey(({ outside }) => [
      [
        [
          "exec",
          {
            command: `ln /docs/a.txt /out/hard && echo linked; ln ${outside}/canary /out/hard2 && echo linked; ln /etc/passwd /out/hard3 && echo linked; echo x > /out/mine; ln /out/mine /out/two && echo own`,
          },
        ],
      ],
      [
        ["write_file", { path: "/out/two", content: "changed alone" }],
        ["read_file", { path: "/out/mine" }],
      ],
    ]);
    expect(outcomes[0]?.text).not.toContain("linked");
    expect(outcomes[0]?.text).toContain("own");
    // A write breaks the link, so that a file that somebody linked here from elsewhere stays as it was.
    expect(outcomes[2]?.text).toBe("x\n");
    expect(harm).toEqual([]);
  });
});

describe("a model whose sandbox is the whole project, and that everybody agrees with", () => {
  it("changes none of the files that say what it may do: not itself, and not by a folder around them", async () => {
    const own = ["corral.yaml", "workers/a.worker", "workers/new.worker", "scripts/a.jsonl"];
    const tools = own.flatMap((file): Call[] => [
      ["write_file", { path: `/${file}`, content: "tools: all" }],
      ["append_file", { path: `/${file}`, content: "tools: all" }],
      ["delete_file", { path: `/${file}` }],
      ["move_file", { from: `/${file}`, to: "/moved" }],
      ["copy_file", { from: "/docs/a.txt", to: `/${file}`, overwrite: true }],
    ]);
    const folders: Call[] = ["workers", "scripts"].flatMap((folder): Call[] => [
      ["move_file", { from: `/${folder}`, to: "/docs/moved" }],
      ["delete_file", { path: `/${folder}`, recursive: true }],
    ]);
    const command = `cd /project; for f in ${own.join(" ")}; do echo evil >> $f; rm -f $f; ln -sf /docs/a.txt $f; chmod 777 $f; done
      rm -rf workers scripts; mv workers docs/w; mv scripts docs/s; mv corral.yaml docs/; mkdir -p x && mv workers x/; echo fine > x/free`;
    const { result, codes, harm } = await obey([tools, folders, [["exec", { command }]]], {
      agent: { sandbox: { inherit: true } },
      sandbox: { mode: undefined, zones: undefined, root: { root: "." } },
      policy: "default",
      options: { approvalMode: "approve_all" },
      alsoWritten: ["x"],
    });
    expect(codes.slice(0, -1).filter((code) => code.endsWith(" done"))).toEqual([]);
    expect(result.changes.filter(({ outcome }) => outcome === "applied").map(({ path }) => path)).toContain("/x/free");
    expect(harm).toEqual([]);
  });
});
