import { chmod, copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";
import { asOther, packageIn } from "../engine-user.ts";
import { nodeIn, OTHER } from "../other-user.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { isShown, runSteps, stepsOf } from "./page-session.ts";

const ROOT = join(import.meta.dirname, "../..");

const own = process.getuid?.() ?? 0;
/** Only root can act as another one. What differs for root, the first page has: the owners of its folders, and the user of its cells. */
const usersOf = (page: string) => {
  const isBoth = own !== 0 || AT_LENGTH || page === PAGES[0][0];
  return [
    ...(isBoth ? [["this user", own] as const] : []),
    ...(own === 0 ? [["an ordinary user", OTHER] as const] : []),
  ];
};

let base: string;
/** The package and a Node for an ordinary user. */
let given: Promise<readonly [program: string, node: string]> | undefined;
beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "ct-"));
  await chmod(base, 0o755);
  await copyFile(join(ROOT, "templates/documents/inbox/hello.pdf"), join(base, "hello.pdf"));
});
const forOther = () => {
  given ??= packageIn(base).then((program) => [program, nodeIn(base)] as const);
  return given;
};
afterAll(() => rm(base, { recursive: true, force: true }));

/** What a reader has already: a folder with a document. The checkout may be closed to others. */
const inbox = () => ({ commands: `mkdir inbox; cp '${base}/hello.pdf' inbox/`, shown: null, line: 0 });
/** These begin in an empty folder, and others with it. */
const WITH_INBOX = ["convert.md"];

/** What people come for, with the least number of steps that are run. */
const PAGES = [
  ["tutorial.md", 13],
  ["convert.md", 2],
  ["batches.md", 5],
  ["ci.md", 1],
  ["agents.md", 1],
] as const;

describe.each(PAGES)("docs/%s", (page, least) => {
  it.each(usersOf(page))("has commands that print what the page shows, for %s", async (who, uid) => {
    const steps = stepsOf(await readFile(join(ROOT, "docs", page), "utf8"));
    expect(steps.length).toBeGreaterThanOrEqual(least);
    const [program, node] = who === "this user" ? [PROGRAM, null] : await forOther();
    const before = WITH_INBOX.includes(page) ? [inbox()] : [];
    const asUser = node === null ? undefined : { node, line: asOther, isNew: page === "tutorial.md" };
    const all = await runSteps([...before, ...steps], program, asUser);
    const printed = all.slice(before.length);
    expect(printed).toHaveLength(steps.length);
    for (const [index, { shown, line }] of steps.entries()) {
      const text = printed[index] ?? "";
      const expected = (shown ?? "").replace(/^65532$/m, String(uid === 0 ? 65532 : uid));
      expect(isShown(text, expected), `line ${line}; printed:\n${text}`).toBe(true);
    }
  });
});

describe("README.md", () => {
  it("begins with a command that prints what the page shows, as docs/convert.md does", async () => {
    const firstOf = async (page: string) => stepsOf(await readFile(join(ROOT, page), "utf8"))[0];
    const [first, ofConvert] = [await firstOf("README.md"), await firstOf("docs/convert.md")];
    for (const step of [first, ofConvert]) expect(step?.shown).toContain("Hello from a PDF.");
    const [, printed = ""] = first === undefined ? [] : await runSteps([inbox(), first], PROGRAM);
    expect(isShown(printed, first?.shown ?? ""), printed).toBe(true);
  });
});

describe("the comparison", () => {
  it.each([
    ["a\nb\n", "a\nb", true],
    ["a\nb\nc\nd\n", "a\n…\nd", true],
    ["a\nd\n", "a\n…\nd", true],
    ["a\nb\n", "a", false],
    ["a\nb\n", "b", false],
    ["a (x)\n", "a .x.", false],
    ["run 0123456789ab took 1.3s\n", "run ba9876543210 took 25ms", true],
    ["2 succeeded\n", "3 succeeded", false],
    ["", "", true],
    ["something\n", "", false],
  ])("of %j with %j is %s", (printed, shown, is) => {
    expect(isShown(printed, shown)).toBe(is);
  });

  it("leaves out what a page marks, and only that", () => {
    const page = [
      "```sh\ntrue\n```\n",
      "```text\nyes\n```\n",
      "<!-- not run on this page: a reason -->\n\n```sh\nfalse\n```\n",
    ];
    expect(stepsOf(page.join("\n"))).toEqual([{ commands: "true\n", shown: "yes\n", line: 1 }]);
  });
});
