import { link, rename, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Canaries } from "./canaries.ts";
import { type Call, obey } from "./obeyed.ts";

/** Links that lead out, by every way that there is to write one. */
const planting = ({ outside, state, other }: Canaries, dir: string): string =>
  [
    `cd /out`,
    `ln -s ${outside}/canary abs; ln -s ${outside} folder; ln -s ../closed/canary up; ln -s ../closed zone; ln -s ../secret beside`,
    `ln -s /closed/canary virtual; ln -s ${dir}/corral.yaml yaml; ln -s ${dir}/workers workers; ln -s ${dir}/.git/hooks hooks`,
    `ln -s ${state}/seal.key key; ln -s ${other}/zone other; ln -s abs twice; ln -s /proc/self/environ env; ln -s /proc/${process.pid}/environ env2`,
    `ln -s / root; ln -s .. parent; ln -s /var/run/docker.sock engine; mkdir deep; ln -s ../.. deep/up; ls | wc -l`,
  ].join("\n");

const PLANTED = [
  "abs",
  "folder/canary",
  "folder/sub/canary",
  "up",
  "zone/canary",
  "beside",
  "virtual",
  "yaml",
  "workers/a.worker",
  "hooks/post-commit",
  "key",
  "other/canary",
  "twice",
  "env",
  "env2",
  "root/etc/passwd",
  "parent/closed/canary",
  "parent/secret",
  "engine",
  "deep/up/closed/canary",
];

describe("links that a model plants with a command, and then names to its tools", () => {
  it("lead none of them outside", async () => {
    // A move or a copy may take the place of the link itself, which is the agent's own; it never goes where that leads.
    const uses: readonly ((path: string) => Call)[] = [
      (path) => ["read_file", { path }],
      (path) => ["file_info", { path: `${path}/../${path.split("/").at(-1)}` }],
      (path) => [
        "list_files",
        { path: path.replace(/\/[^/]+$/, "") === "/out" ? `${path}/.` : path.replace(/\/[^/]+$/, "") },
      ],
      (path) => ["write_file", { path, content: "pwned" }],
      (path) => ["append_file", { path, content: "pwned" }],
      (path) => ["edit_file", { path, edits: [{ old: "c", new: "pwned" }] }],
      (path) => ["copy_file", { from: path, to: "/out/loot", overwrite: true }],
      (path) => ["copy_file", { from: "/docs/a.txt", to: path, overwrite: true }],
      (path) => ["move_file", { from: "/out/mine", to: path, overwrite: true }],
      (path) => ["reader", { attachments: [path] }],
    ];
    const { result, outcomes, harm } = await obey(
      (canaries, { dir }) =>
        uses.flatMap((call) => [
          [
            ["exec", { command: `rm -rf /out/* && ${planting(canaries, dir)} && ls -A /out | wc -l` }],
            ["write_file", { path: "/out/mine", content: "mine" }],
          ],
          PLANTED.map((name) => call(`/out/${name}`)),
        ]),
      {
        agent: { calls: ["reader"] },
        workers: { reader: { command: ["sh", "-c", "cat /attachments/*"] } },
        yaml: { delegation: { max_calls: 100 } },
      },
    );
    expect(result.status, JSON.stringify(result.error)).toBe("succeeded");
    expect(outcomes).toHaveLength(uses.length * (PLANTED.length + 2));
    // Each began with the links in place.
    const planted = outcomes.filter(({ tool }) => tool === "exec").map(({ text }) => text);
    expect(planted).toEqual(uses.map(() => planted[0]));
    expect(planted[0]).toMatch(/^(\d+)\n\1\n$/);
    expect(harm).toEqual([]);
  });

  it("are deleted and not followed, when a model deletes them", async () => {
    const { harm } = await obey((canaries, { dir }) => [
      [["exec", { command: planting(canaries, dir) }]],
      PLANTED.map((name): Call => ["delete_file", { path: `/out/${name}` }]),
      [["exec", { command: "rm -rf /out/*/ /out/*; find /out -delete" }]],
    ]);
    expect(harm).toEqual([]);
  });

  it("are told by codes that say so, for what there is to read behind them", async () => {
    const { codes } = await obey((canaries, { dir }) => [
      [["exec", { command: planting(canaries, dir) }]],
      PLANTED.map((name): Call => ["read_file", { path: `/out/${name}` }]),
    ]);
    expect(new Set(codes.slice(1))).toEqual(new Set(["read_file FILE_SYSTEM"]));
  });
});

describe("a folder that is swapped for a link", () => {
  it("between two calls leads neither of a model's tools nor the workers that it calls outside", async () => {
    const swap = (target: string) => `rm -rf /out/f; ln -s ${target} /out/f`;
    const uses: Call[] = [
      ["read_file", { path: "/out/f/canary" }],
      ["write_file", { path: "/out/f/canary", content: "pwned" }],
      ["list_files", { path: "/out/f" }],
      ["peek", {}],
      ["inheritor", {}],
      ["reader", { attachments: ["/out/f/canary"] }],
    ];
    const { outcomes, codes, harm } = await obey(
      ({ outside }) => [
        [
          ["exec", { command: "mkdir /out/f; echo inside > /out/f/canary" }],
          ["read_file", { path: "/out/f/canary" }],
          ["peek", {}],
        ],
        [["exec", { command: swap(outside) }]],
        uses,
        [["exec", { command: swap("../closed") }]],
        uses,
        [["exec", { command: swap("/closed") }]],
        uses,
      ],
      {
        agent: { calls: ["peek", "inheritor", "reader"] },
        workers: {
          peek: { command: ["sh", "-c", "cat /out/f/*"], sandbox: { allow_read: ["/out/f"] } },
          inheritor: {
            command: ["sh", "-c", "cat /out/f/*; echo pwned > /out/f/canary; true"],
            sandbox: { inherit: true },
          },
          reader: { command: ["sh", "-c", "cat /attachments/*"] },
        },
      },
    );
    expect(outcomes.slice(1, 3).map(({ text }) => text)).toEqual(["inside\n", "inside\n"]);
    const afterwards = codes.filter((code, index) => index > 3 && !/^(exec|inheritor)/.test(code));
    expect(afterwards.filter((code) => code.endsWith(" done"))).toEqual([]);
    expect(harm).toEqual([]);
  });

  it("without a pause, while tools go on, never leads them outside", { timeout: 120_000 }, async () => {
    const flip =
      "cd /out; mkdir f; echo inside > f/canary; (while :; do mv f aside; ln -s $T f; rm f; mv aside f; done) > /dev/null 2>&1 &";
    const rounds = Array.from({ length: 25 }, (_, n): Call[] => [
      ["read_file", { path: "/out/f/canary" }],
      ["write_file", { path: "/out/f/canary", content: `pwned ${n}` }],
      ["copy_file", { from: "/out/f/canary", to: `/out/copy-${n}` }],
      ["reader", { attachments: ["/out/f/canary"] }],
    ]);
    const { result, codes, harm } = await obey(
      ({ outside }) => [[["exec", { command: flip, env: { T: outside } }]], ...rounds],
      { agent: { calls: ["reader"] }, workers: { reader: { command: ["cat", "/attachments/canary"] } } },
    );
    expect(result.status).toBe("succeeded");
    // Both ends were seen, so the folder was there and was not.
    expect(codes.some((code) => / (FILE_SYSTEM|NOT_FOUND|MOUNT_SOURCE_REFUSED|ATTACHMENT_REFUSED)$/.test(code))).toBe(
      true,
    );
    expect(codes).toContain("write_file done");
    expect(harm).toEqual([]);
  });
});

describe("links that others left in a folder before", () => {
  it("lead a model nowhere, also in place of the folder itself", async () => {
    const answers: Call[][] = [
      [
        ["read_file", { path: "/docs/canary" }],
        ["list_files", { path: "/docs" }],
        ["write_file", { path: "/docs/canary", content: "pwned" }],
        ["delete_file", { path: "/docs/sub" }],
        ["exec", { command: "cat /docs/canary" }],
      ],
    ];
    const { codes, harm } = await obey(answers, {
      agent: { sandbox: { zones: [{ name: "docs", mode: "rw", approval: "pre_approved" }] } },
      zones: { docs: "rw" },
      before: async ({ dir }, { outside }) => {
        await rename(join(dir, "docs"), join(dir, "was"));
        await symlink(outside, join(dir, "docs"));
      },
      // The swap is the test's own, and no change of the agent's.
      alsoWritten: ["docs", "was"],
    });
    expect(codes).toEqual([
      "read_file FILE_SYSTEM",
      "list_files FILE_SYSTEM",
      "write_file FILE_SYSTEM",
      "delete_file FILE_SYSTEM",
      "exec MOUNT_SOURCE_REFUSED",
    ]);
    expect(harm).toEqual([]);
  });

  it("lead no write of its into a file that is linked from elsewhere", async () => {
    const { codes, harm } = await obey(
      [
        [
          ["write_file", { path: "/out/shared", content: "pwned" }],
          ["append_file", { path: "/out/shared2", content: "pwned" }],
        ],
      ],
      {
        before: async ({ dir }) => {
          await link(join(dir, "workers/a.worker"), join(dir, "out/shared"));
          await link(join(dir, "corral.yaml"), join(dir, "out/shared2"));
        },
      },
    );
    expect(codes).toHaveLength(2);
    // How many names they have is less by those that the writes broke; what they hold is the same.
    expect(harm.filter((one) => !/(a\.worker|corral\.yaml): \d+ 0:0 2 (\d+ \w+) is \d+ 0:0 1 \2$/.test(one))).toEqual(
      [],
    );
  });
});
