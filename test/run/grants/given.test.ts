import { mkdir, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { type GivenDirectory, giveDirectory, takersIn } from "../../../src/state/live-grants.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { roomy, shown } from "../../sandbox/sandboxes.ts";
import { codeOf, KEY, openTree, type Tree } from "./tree.ts";

const given = (path: string, mode: GivenDirectory["mode"] = "read") => ({ path, mode, by: "a user" });

async function give(tree: Tree, run: string, what: GivenDirectory, key = KEY) {
  const taker = (await takersIn(tree.liveDir, currentOwner())).find((one) => one.run === run);
  return taker === undefined ? undefined : await giveDirectory(taker, what, key);
}

it("what a user gives without being asked is granted as if the worker had asked, and no one is asked", async () => {
  const tree = await openTree({ "src/main.py": "" });
  const w = await tree.open("w");
  const src = join(tree.base, "src");
  const answer = { granted: true, directory: src };
  expect(await give(tree, "run-w", given(src))).toEqual({ ...answer, mode: "read", id: expect.any(String) });
  expect(shown(w.sandbox)).toEqual([`${src} ro`]);
  expect(await give(tree, "run-w", given(src))).toEqual({ ...answer, mode: "read", id: null });
  expect(await give(tree, "run-w", given(src, "write"))).toMatchObject({ ...answer, mode: "write" });
  expect(shown(w.sandbox)).toEqual([`${src} rw`]);
  expect(tree.asked).toEqual([]);
  expect(tree.granted).toMatchObject([
    { mode: "read", scope: "tree" },
    { mode: "write", scope: "tree" },
  ]);
});

it("what is given while the worker's own question for it waits answers that question, and less than was asked does not", async () => {
  const tree = await openTree({ "src/main.py": "" });
  const w = await tree.open("w");
  const src = join(tree.base, "src");
  tree.answers = ["denied"];
  tree.meanwhile = async () => void (await give(tree, "run-w", given(src)));
  expect(codeOf(await tree.ask(w, src, "write"))).toBe("APPROVAL_DENIED");
  expect(shown(w.sandbox)).toEqual([`${src} ro`]);
  tree.meanwhile = async () => void (await give(tree, "run-w", given(src, "write")));
  expect(await tree.ask(w, src, "write")).toMatchObject({ ok: true, directory: src, scope: null, sandbox: w.sandbox });
  expect(shown(w.sandbox)).toEqual([`${src} rw`]);
  expect(tree.asked).toHaveLength(2);
});

it("the rules for what is asked for refuse what is given", async () => {
  const tree = await openTree({ "src/a": "", "other/a": "" });
  const inside = await tree.open("inside", { dynamic: { within: ["../src"] } });
  await tree.open("any");
  const codes = async (run: string, ...what: GivenDirectory[]) => {
    const answers = [];
    for (const one of what) answers.push(await give(tree, run, one));
    return answers.map((answer) => (answer?.granted === false ? answer.code : answer));
  };
  expect(
    await codes(
      "run-inside",
      given(join(tree.base, "other")),
      given(join(tree.base, "src/a")),
      given("/inbox", "write"),
      given("../../etc"),
    ),
  ).toEqual(["GRANT_OUTSIDE", "APPROVAL_DENIED", "GRANT_NOT_ABOVE", "PATH_NOT_IN_SANDBOX"]);
  expect(await codes("run-any", given(join(tree.base, "s")), given("/inbox", "write"))).toEqual([
    "GRANT_SOURCE_REFUSED",
    "GRANT_NOT_ABOVE",
  ]);
  expect(shown(inside.sandbox)).toEqual([]);
  expect(tree.granted).toEqual([]);
});

it("a directory whose files programs of the host execute is not given for writing without a question", async () => {
  const tree = await openTree({ "src/.git/hooks/": "", "src/.git/config": "" }, undefined, true, {
    ...roomy,
    hardening: { ...roomy.hardening, hostExecuted: "ask" },
  });
  const w = await tree.open("w");
  const git = join(tree.base, "src/.git/hooks");
  expect(await give(tree, "run-w", given(git, "write"))).toMatchObject({ granted: false, code: "APPROVAL_DENIED" });
  expect(shown(w.sandbox)).toEqual([]);
  expect(await give(tree, "run-w", given(git))).toMatchObject({ granted: true });
});

it("nothing is given to a worker that is not dynamic, that has ended, or by a file that Corral has not sealed", async () => {
  const tree = await openTree({ "src/a": "" });
  const src = join(tree.base, "src");
  await tree.open("still", { dynamic: false });
  expect(await give(tree, "run-still", given(src))).toBeUndefined();
  const w = await tree.open("w", { ends: true });
  const [taker] = await takersIn(tree.liveDir, currentOwner());
  if (taker === undefined) throw new Error("it can be given nothing");
  const forged = join(taker.dir, "run-w.0123456789ab.given");
  await writeFile(forged, `${"0".repeat(64)}\n${JSON.stringify(given(src))}\n`);
  await expect.poll(() => readdir(taker.dir)).toEqual(["run-w"]);
  // It was looked at before this one.
  expect(await give(tree, "run-w", given("/inbox"))).toMatchObject({ granted: true });
  expect(shown(w.sandbox)).toEqual(["/inbox ro"]);
  await tree.end(w);
  expect(await give(tree, "run-w", given(src))).toBeUndefined();
  expect(await readdir(dirname(taker.dir))).not.toContain("given");
  await mkdir(taker.dir);
  expect(await giveDirectory(taker, given(src), KEY)).toBeNull();
});
