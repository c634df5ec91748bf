import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Approver } from "../../src/approval/approver.ts";
import type { Consent } from "../../src/sandbox/approval.ts";
import type { Mode } from "../../src/sandbox/mount.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";
import { ACTIONS, type Action, type Verdict } from "./consent-actions.ts";

/*
 * What a mount's mode, its consent, its suffixes and its size limit let a worker do, for every combination of them: once
 * with the file tools, once with a shell in the cell, and each time what came of it on the host. Both must be the same,
 * and the same as the table in docs/agreement.md, which is written from here.
 */

interface Combination {
  readonly mode: Mode;
  readonly write: Consent;
  readonly delete: Consent;
  readonly suffixes: boolean;
  readonly size: boolean;
}

const CONSENTS: readonly Consent[] = ["pre_approved", "ask", "blocked"];
const BOOLEANS = [false, true];

const COMBINATIONS: readonly Combination[] = BOOLEANS.flatMap((suffixes) =>
  BOOLEANS.flatMap((size) => [
    // What nobody can write, nobody has to be asked about.
    { mode: "ro" as const, write: "ask" as const, delete: "ask" as const, suffixes, size },
    ...CONSENTS.flatMap((write) =>
      CONSENTS.map((remove) => ({ mode: "rw" as const, write, delete: remove, suffixes, size })),
    ),
  ]),
);

const nameOf = (index: number): string => `m${index}`;
const TABLE = new URL("../../docs/agreement.md", import.meta.url);

function approver(outcome: "approved" | "denied"): Approver {
  return { decide: async () => ({ outcome, scope: "once", reason: "the test says so" }) };
}

async function open(outcome: "approved" | "denied"): Promise<SessionFixture> {
  const names = COMBINATIONS.map((_, index) => nameOf(index));
  const zones = COMBINATIONS.map(({ mode, write, delete: remove, suffixes, size }, index) => [
    nameOf(index),
    {
      path: `./${nameOf(index)}`,
      mode,
      approval: { write, delete: remove },
      ...(suffixes ? { suffixes: [".md"] } : {}),
      ...(size ? { max_file_bytes: 10 } : {}),
    },
  ]);
  const own = { "old.md": "old", "gone.md": "gone", "tool.exe": "exe", "large.md": "x".repeat(20) };
  const files = names.flatMap((name) => Object.entries(own).map(([file, text]) => [`${name}/${file}`, text]));
  return await openSessionIn(
    {
      workers: {
        w: {
          command: ["true"],
          sandbox: { zones: COMBINATIONS.map(({ mode }, index) => ({ name: nameOf(index), mode })) },
          shell_rules: { default: "pre_approved" },
        },
      },
      zones: Object.fromEntries(names.map((name) => [name, "rw"])),
      files: Object.fromEntries(files),
      sandbox: { zones: Object.fromEntries(zones) },
    },
    { person: approver(outcome) },
  );
}

type Happened = ReadonlyMap<string, boolean>;

const keyOf = (index: number, { name }: Action): string => `${index} ${name}`;

/** Whether each action had its effect, on the host or in what was read, once the session was over. */
async function happened(way: "tools" | "shell", outcome: "approved" | "denied"): Promise<Happened> {
  await using s = await open(outcome);
  const read = new Map<string, boolean>();
  if (way === "tools") {
    for (const [index] of COMBINATIONS.entries())
      for (const action of ACTIONS) {
        const { tool, input } = action.byTool(`/${nameOf(index)}`);
        const answer = await s.tool(tool, input);
        if (action.reads) read.set(keyOf(index, action), answer.ok);
      }
  } else {
    const lines = COMBINATIONS.flatMap((_, index) =>
      ACTIONS.map(
        (action) => `(${action.byShell(`/${nameOf(index)}`)}) 2> /dev/null && echo '${keyOf(index, action)}'`,
      ),
    );
    const answer = await s.tool("exec", { command: "sh", stdin: `${lines.join("\n")}\n` });
    if (!answer.ok) throw new Error(answer.message);
    const done = new Set(String(answer.data.stdout).split("\n"));
    for (const [index] of COMBINATIONS.entries())
      for (const action of ACTIONS.filter(({ reads }) => reads))
        read.set(keyOf(index, action), done.has(keyOf(index, action)));
  }
  await s.finish();
  const all = new Map<string, boolean>(read);
  for (const [index] of COMBINATIONS.entries()) {
    const dir = join(s.project.dir, nameOf(index));
    const contents = new Map<string, string>();
    for (const name of await readdir(dir)) contents.set(name, await readFile(join(dir, name), "utf8"));
    for (const action of ACTIONS.filter(({ reads }) => !reads))
      all.set(keyOf(index, action), action.hadEffect(contents));
  }
  return all;
}

function verdictsOf(approved: Happened, denied: Happened): Map<string, Verdict> {
  return new Map(
    [...approved].map(([key, yes]) => {
      if (!yes && denied.get(key)) throw new Error(`${key} happens only where it is denied`);
      return [key, yes ? (denied.get(key) ? "yes" : "asked") : "no"];
    }),
  );
}

function table(verdicts: ReadonlyMap<string, Verdict>): string {
  const heads = ["mode", "write", "delete", "suffixes", "largest", ...ACTIONS.map(({ name }) => name)];
  const rows = COMBINATIONS.map(({ mode, write, delete: remove, suffixes, size }, index) => {
    const consent = mode === "ro" ? ["—", "—"] : [write, remove];
    const limits = [suffixes ? ".md" : "any", size ? "10 bytes" : "any"];
    return [mode, ...consent, ...limits, ...ACTIONS.map((action) => verdicts.get(keyOf(index, action)) ?? "?")];
  });
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  return [line(heads), line(heads.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Formatters pad the cells of a table. */
function unpadded(text: string): string {
  return text.replace(/ +/g, " ").replace(/-{3,}/g, "---");
}

describe("what tools can do and what a shell in the cell can do", () => {
  it("is the same for every mode, consent, suffix and size, and what the table in the docs says", async () => {
    const byTools = verdictsOf(await happened("tools", "approved"), await happened("tools", "denied"));
    const byShell = verdictsOf(await happened("shell", "approved"), await happened("shell", "denied"));
    expect(table(byShell)).toBe(table(byTools));
    const docs = await readFile(TABLE, "utf8");
    const [before = "", , after = ""] = docs.split(/(?<=<!-- table -->\n)([\s\S]*)(?=<!-- end of table -->)/);
    // After a change that is meant: run this file with UPDATE_GOLDEN=1, and read each difference.
    if (process.env.UPDATE_GOLDEN) await writeFile(TABLE, `${before}\n${table(byTools)}\n\n${after}`);
    expect(unpadded(await readFile(TABLE, "utf8"))).toContain(unpadded(table(byTools)));
  });
});
