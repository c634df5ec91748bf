import { mkdir, rename, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { canRead } from "../../../src/sandbox/access.ts";
import { listLiveGrants, revokeLiveGrant } from "../../../src/state/live-grants.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { at, child, shown } from "../../sandbox/sandboxes.ts";
import { codeOf, openTree } from "./tree.ts";

describe("a request for a directory", () => {
  it("asks for reading, then for writing, then not again, and anew for the folder beside it", async () => {
    const tree = await openTree({ "src/main.py": "", "docs/a.md": "" });
    const w = await tree.open("w");
    const [src, docs] = [join(tree.base, "src"), join(tree.base, "docs")];
    expect(codeOf(await tree.ask(w, `${src}/main.py`))).toBe("session");
    expect(shown(w.sandbox)).toEqual([`${src} ro`]);
    expect(codeOf(await tree.ask(w, `${src}/main.py`, "write"))).toBe("session");
    expect(shown(w.sandbox)).toEqual([`${src} rw`]);
    expect(codeOf(await tree.ask(w, `${src}/other.py`, "write"))).toBe("had");
    expect(codeOf(await tree.ask(w, docs))).toBe("session");
    expect(tree.asked.map(({ operations, directory }) => [...operations, directory])).toEqual([
      ["grant_read", src],
      ["grant_write", src],
      ["grant_read", docs],
    ]);
  });

  it("tells whom it asks who would be granted it, through whom, and what for", async () => {
    const tree = await openTree({ "src/": "" });
    const root = await tree.open("root");
    const leaf = await tree.open("leaf", { parent: await tree.open("middle", { parent: root }) });
    const src = join(tree.base, "src");
    await tree.ask(leaf, src);
    expect(tree.asked).toEqual([
      {
        run: "run-leaf",
        root: "run-root",
        worker: "leaf",
        operations: ["grant_read"],
        paths: [src],
        directory: src,
        through: ["root", "middle", "leaf"],
        why: "for read_file",
      },
    ]);
  });
});

describe("what is not agreed to", () => {
  it("is denied, or timed out, and is asked about again the next time", async () => {
    const tree = await openTree();
    const w = await tree.open("w");
    tree.answers = ["denied", "timed_out", "session"];
    expect(codeOf(await tree.ask(w, "/inbox"))).toBe("APPROVAL_DENIED");
    expect(codeOf(await tree.ask(w, "/inbox"))).toBe("APPROVAL_TIMED_OUT");
    expect(shown(w.sandbox)).toEqual([]);
    expect(codeOf(await tree.ask(w, "/inbox"))).toBe("session");
    expect(tree.granted).toHaveLength(1);
  });

  it("is not even asked about where it cannot be granted", async () => {
    const tree = await openTree();
    const w = await tree.open("w");
    expect(codeOf(await tree.ask(w, "/inbox", "write"))).toBe("GRANT_NOT_ABOVE");
    expect(codeOf(await tree.ask(w, join(tree.base, "s")))).toBe("GRANT_SOURCE_REFUSED");
    expect(codeOf(await tree.ask(w, tree.base))).toBe("GRANT_SOURCE_REFUSED");
    expect(codeOf(await tree.ask(w, join(tree.base, "p"), "write"))).toBe("GRANT_SOURCE_REFUSED");
    expect(codeOf(await tree.ask(await tree.open("still", { dynamic: false }), "/inbox"))).toBe("GRANT_NOT_DYNAMIC");
    expect(tree.asked).toEqual([]);
  });
});

describe("the directory of a path", () => {
  it("is itself where it is one, and the one around a file, also around one that does not exist yet", async () => {
    const tree = await openTree({ "src/deep/a.py": "" });
    const w = await tree.open("w");
    for (const path of ["src/deep/a.py", "src/deep/new.py", "src/deep"]) {
      tree.answers = ["once"];
      await tree.ask(w, join(tree.base, path));
    }
    expect(tree.asked.map(({ directory }) => directory)).toEqual(Array(3).fill(join(tree.base, "src/deep")));
  });

  it("is none where a link stands in the path, where it is missing, or where it is no directory", async () => {
    const tree = await openTree({ "src/a.py": "", "secret/key": "" });
    await symlink("../secret", join(tree.base, "src/planted"));
    await symlink("secret", join(tree.base, "planted"));
    const w = await tree.open("w");
    for (const path of ["src/planted/key", "src/planted", "planted/key", "missing/a", "src/a.py/b"]) {
      expect(codeOf(await tree.ask(w, join(tree.base, path)))).toBe("GRANT_NO_DIRECTORY");
    }
    expect(tree.asked).toEqual([]);
  });

  it("is found in the project's folder where it is named as the project names it", async () => {
    const tree = await openTree({ "p/inbox/2024/a.pdf": "" });
    const w = await tree.open("w");
    await tree.ask(w, "/inbox/2024/a.pdf");
    expect(shown(w.sandbox)).toEqual(["/inbox/2024 ro"]);
    expect(tree.granted).toMatchObject([{ host: join(tree.base, "p/inbox/2024"), mount: "inbox" }]);
  });
});

describe("the folders that a worker's file allows", () => {
  it("are relative to the project, and hold what is below them alone", async () => {
    const tree = await openTree({ "src/a": "", "src-evil/a": "" });
    const w = await tree.open("w", { dynamic: { within: ["../src"] } });
    expect(codeOf(await tree.ask(w, join(tree.base, "src/a")))).toBe("session");
    expect(codeOf(await tree.ask(w, join(tree.base, "src-evil/a")))).toBe("GRANT_OUTSIDE");
    expect(codeOf(await tree.ask(w, "/inbox"))).toBe("GRANT_OUTSIDE");
  });

  it("hold nothing where a worker may have put a link in their place", async () => {
    const tree = await openTree({ "src/a": "", "secret/a": "" });
    await symlink("../../secret", join(tree.base, "p/out/link"));
    await symlink("../src", join(tree.base, "p/linked"));
    const planted = await tree.open("planted", { dynamic: { within: ["./out/link"] } });
    const own = await tree.open("own", { dynamic: { within: ["./linked"] } });
    expect(codeOf(await tree.ask(planted, join(tree.base, "secret")))).toBe("GRANT_OUTSIDE");
    expect(codeOf(await tree.ask(own, join(tree.base, "src")))).toBe("session");
  });

  it("do not tell what there is outside of them", async () => {
    const tree = await openTree({ "src/": "", "secret/there": "" });
    const w = await tree.open("w", { dynamic: { within: ["../src"] } });
    const told = async (path: string) => {
      const outcome = await tree.ask(w, join(tree.base, path));
      return outcome.ok ? "" : outcome.refusal.message.replaceAll(path, "");
    };
    expect(await told("secret/there")).toBe(await told("secret/missing"));
    expect(await told("secret/there")).toBe(await told("nothing/at-all"));
  });
});

describe("a grant for one operation", () => {
  it("is that operation's alone, and counts for nothing", async () => {
    const tree = await openTree({ "src/a": "" });
    const w = await tree.open("w", { dynamic: { max: 1 } });
    tree.answers = ["once"];
    const outcome = await tree.ask(w, join(tree.base, "src/a"));
    expect(outcome.ok && shown(outcome.sandbox)).toEqual([`${join(tree.base, "src")} ro`]);
    expect([shown(w.sandbox), w.directories.size]).toEqual([[], 0]);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toEqual([]);
    expect(tree.granted).toMatchObject([{ scope: "once" }]);
  });

  it("stands beside another that the same operation was granted", async () => {
    const tree = await openTree({ "from/a": "", "to/": "" });
    const w = await tree.open("w");
    tree.answers = ["once", "session"];
    const first = await tree.ask(w, join(tree.base, "from/a"));
    if (!first.ok) throw new Error("refused");
    const second = await tree.ask(w, join(tree.base, "to"), "write", first.sandbox);
    const [from, to] = [join(tree.base, "from"), join(tree.base, "to")];
    expect(second.ok && shown(second.sandbox)).toEqual([`${from} ro`, `${to} rw`]);
    expect(shown(w.sandbox)).toEqual([`${to} rw`]);
  });
});

describe("a tree of runs", () => {
  it("is granted a directory at every level that lacks it, and nothing above that", async () => {
    const tree = await openTree();
    const root = await tree.open("root", { needs: { allowRead: [at("/inbox")] }, dynamic: false });
    const middle = await tree.open("middle", { parent: root });
    const leaf = await tree.open("leaf", { parent: middle });
    const beside = await tree.open("beside", { parent: root });
    expect(codeOf(await tree.ask(leaf, "/inbox"))).toBe("session");
    expect([root, middle, leaf, beside].map((grantee) => shown(grantee.sandbox))).toEqual([
      ["/inbox ro"],
      ["/inbox ro"],
      ["/inbox ro"],
      [],
    ]);
    expect(tree.granted).toMatchObject([{ through: ["root", "middle", "leaf"], granted: ["middle", "leaf"] }]);
    expect(root.directories.size).toBe(0);
  });

  it("refuses where one of it may not be granted it, and names that one", async () => {
    const tree = await openTree({ "src/a": "" });
    const root = await tree.open("root", { dynamic: { within: ["./inbox"] } });
    const leaf = await tree.open("leaf", { parent: root });
    const outcome = await tree.ask(leaf, join(tree.base, "src/a"));
    expect(codeOf(outcome)).toBe("GRANT_OUTSIDE");
    expect(!outcome.ok && outcome.refusal.message).toContain("The worker 'root', through which it would come,");
    expect(codeOf(await tree.ask(leaf, "/inbox"))).toBe("session");
  });

  it("hands on what it was granted to whom it calls later, and to nobody that runs", async () => {
    const tree = await openTree({ "src/a": "" });
    const root = await tree.open("root");
    const running = await tree.open("running", { parent: root, needs: { inherit: true } });
    await tree.ask(root, join(tree.base, "src"));
    const later = await tree.open("later", { parent: root, needs: { inherit: true } });
    expect(shown(running.sandbox)).toEqual([]);
    expect(shown(later.sandbox)).toEqual([`${join(tree.base, "src")} ro`]);
  });

  it("asks twenty times at once, and no sandbox is lost", async () => {
    const tree = await openTree(Object.fromEntries([...Array(20).keys()].map((n) => [`d${n}/`, ""])));
    const w = await tree.open("w", { dynamic: { max: 19 } });
    const outcomes = await Promise.all([...Array(20).keys()].map((n) => tree.ask(w, join(tree.base, `d${n}`))));
    expect(outcomes.map(codeOf).toSorted()).toEqual(["GRANT_LIMIT", ...Array(19).fill("session")]);
    expect(w.sandbox.mounts).toHaveLength(19);
  });
});

describe("a tree that asks without end", () => {
  it("is not asked about for ever, whichever of its runs asks", async () => {
    const tree = await openTree();
    tree.answers = ["denied"];
    const root = await tree.open("root");
    const leaf = await tree.open("leaf", { parent: root });
    for (let times = 0; times < 250; times += 1) for (const grantee of [root, leaf]) await tree.ask(grantee, "/inbox");
    expect(tree.asked).toHaveLength(500);
    expect(codeOf(await tree.ask(leaf, "/inbox"))).toBe("GRANT_LIMIT");
  });
});

describe("a grant that is taken back", () => {
  it("is gone at the next look, with all that came from it, and is not asked about again", async () => {
    const tree = await openTree({ "src/a": "" });
    const src = join(tree.base, "src");
    const root = await tree.open("root");
    await tree.ask(root, src);
    const heir = await tree.open("heir", { parent: root, needs: { inherit: true } });
    const asker = await tree.open("asker", { parent: root });
    await tree.ask(asker, src);
    const [first, second] = await listLiveGrants(tree.liveDir, currentOwner());
    expect([first?.worker, second?.worker]).toEqual(["root", "asker"]);

    expect(await revokeLiveGrant(tree.liveDir, currentOwner(), first?.id ?? "")).toBe(true);
    await tree.ledger.look();
    expect([root, heir, asker].map((grantee) => shown(grantee.sandbox))).toEqual([[], [], []]);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toEqual([]);
    const questions = tree.asked.length;
    expect(codeOf(await tree.ask(root, src))).toBe("GRANT_REVOKED");
    expect(tree.asked).toHaveLength(questions);
  });

  it("does not come back with a directory around it that was agreed to before", async () => {
    const tree = await openTree({ "src/a/b": "" });
    const w = await tree.open("w");
    await tree.ask(w, join(tree.base, "src/a"));
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
    expect(codeOf(await tree.ask(w, join(tree.base, "src")))).toBe("GRANT_REVOKED");
    expect(codeOf(await tree.ask(w, join(tree.base, "src/a")))).toBe("GRANT_REVOKED");
    expect(tree.asked).toHaveLength(1);
  });

  it("is not there for a call that was made before and begins only now", async () => {
    const tree = await openTree({ "src/a": "" });
    const root = await tree.open("root");
    await tree.ask(root, join(tree.base, "src"));
    const { sandbox: asItWas } = root;
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
    await tree.ledger.look();
    const late = await tree.open("late", { parent: root, given: asItWas, needs: { inherit: true } });
    expect(shown(asItWas)).not.toEqual([]);
    expect(shown(late.sandbox)).toEqual([]);
  });

  it("is noticed without anybody looking", async () => {
    const tree = await openTree();
    const w = await tree.open("w");
    await tree.ask(w, "/inbox");
    const { promise, resolve } = Promise.withResolvers<string>();
    w.onChange(resolve);
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
    expect(await promise).toBe("revoked");
    expect(canRead(w.sandbox, at("/inbox"))).toBe(false);
  });

  it("leaves what was there before, and what else was granted", async () => {
    const tree = await openTree({ "src/a": "" });
    const w = await tree.open("w", { needs: { zones: [{ name: "out" }] } });
    await tree.ask(w, "/out", "write");
    await tree.ask(w, "/inbox");
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
    await tree.ledger.look();
    expect(shown(w.sandbox)).toEqual(["/inbox ro", "/out ro"]);
  });

  describe("leaves a folder read-only that lies in one which may be written", () => {
    const [before, after] = [
      ["/out rw", "/out/locked rw"],
      ["/out rw", "/out/locked ro"],
    ];
    const opened = async () => {
      const tree = await openTree({ "p/out/locked/": "" });
      const paths = [
        { name: "out", host: join(tree.base, "p/out"), mode: "rw" },
        { name: "locked", at: at("/out/locked"), host: join(tree.base, "p/out/locked"), mode: "ro" },
      ] as const;
      const root = await tree.open("root", { needs: { paths } });
      expect(shown(root.sandbox)).toEqual(after);
      expect(codeOf(await tree.ask(root, "/out/locked", "write"))).toBe("session");
      const revoke = async (): Promise<void> => {
        await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
        await tree.ledger.look();
      };
      return { tree, root, revoke };
    };

    it("also for runs that were called with it", async () => {
      const { tree, root, revoke } = await opened();
      const heir = await tree.open("heir", { parent: root, needs: { inherit: true } });
      const below = await tree.open("below", { parent: heir, needs: { inherit: true } });
      const all = [root, heir, below];
      expect(all.map(({ sandbox }) => shown(sandbox))).toEqual([before, before, before]);
      await revoke();
      expect(all.map(({ sandbox }) => shown(sandbox))).toEqual([after, after, after]);
    });

    it("also for a run that was granted the one around it", async () => {
      const { tree, root, revoke } = await opened();
      const reader = await tree.open("reader", {
        parent: root,
        needs: { inherit: true, readonly: false, allowWrite: [] },
      });
      expect(shown(reader.sandbox)).not.toContain("/out rw");
      expect(codeOf(await tree.ask(reader, "/out", "write"))).toBe("session");
      expect(shown(reader.sandbox)).toEqual(before);
      await revoke();
      expect(shown(reader.sandbox)).toEqual(after);
    });

    it("or nothing of both, if it cannot be shown", async () => {
      const { tree, root, revoke } = await opened();
      const refused = [{ code: "MOUNT_SOURCE_REFUSED", path: "/out/locked", reason: "" }] as const;
      const heir = await tree.open("heir", {
        ...{ parent: root, needs: { inherit: true } },
        onAdopt: ({ mounts }) => (mounts.some(({ path }) => path === "/out/locked") ? refused : []),
      });
      await revoke();
      expect(shown(heir.sandbox)).toEqual([]);
    });
  });

  it("of an upgrade leaves the reading that was granted before", async () => {
    const tree = await openTree({ "src/a": "" });
    const src = join(tree.base, "src");
    const w = await tree.open("w");
    await tree.ask(w, src);
    await tree.ask(w, src, "write");
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[1]?.id ?? "");
    await tree.ledger.look();
    expect(shown(w.sandbox)).toEqual([`${src} ro`]);
    expect(codeOf(await tree.ask(w, src, "write"))).toBe("GRANT_REVOKED");
  });
});

describe("what stands in the place of a granted directory later", () => {
  it("is not what a link there leads to: the mount names the directory itself", async () => {
    const tree = await openTree({ "src/a": "", "secret/a": "" });
    const w = await tree.open("w");
    await tree.ask(w, join(tree.base, "src"));
    await rename(join(tree.base, "src"), join(tree.base, "was"));
    await symlink("secret", join(tree.base, "src"));
    // Tools and cells open it from `/` without following any link; see test/attacks/grants.test.ts for both.
    expect(w.sandbox.mounts).toMatchObject([{ host: join(tree.base, "src") }]);
    await mkdir(join(tree.base, "was/b"));
    expect(codeOf(await tree.ask(w, join(tree.base, "src/b"), "write"))).toBe("GRANT_NO_DIRECTORY");
  });
});

describe("a sandbox that is derived from a granted one", () => {
  it("knows what was granted, for whoever explains it", async () => {
    const tree = await openTree();
    const w = await tree.open("w");
    await tree.ask(w, "/inbox");
    expect(child(w.sandbox, { inherit: true }).narrowings).toContainEqual({
      by: "approval (a person agreed)",
      kind: "grant",
      path: "/inbox",
      from: "none",
      to: "ro",
    });
  });
});

describe("a directory around the one that was asked for", () => {
  it("can be granted instead, if it could be asked for, and is then what is remembered", async () => {
    const tree = await openTree({ "data/deep/inner/a": "" });
    const w = await tree.open("w", { dynamic: { within: ["../data"] } });
    const inner = join(tree.base, "data/deep/inner");
    tree.wider = join(tree.base, "data");
    const outcome = await tree.ask(w, join(inner, "a"));
    expect(outcome).toMatchObject({ ok: true, directory: tree.wider, scope: "session" });
    // Not the folder around `within`, which could not be asked for.
    expect(tree.asked[0]?.wider).toEqual([join(tree.base, "data/deep"), join(tree.base, "data")]);
    expect(w.sandbox.mounts.map(({ path }) => path)).toContain(tree.wider);
    expect(await tree.ask(w, join(tree.base, "data/deep"))).toMatchObject({ ok: true, scope: null });
  });

  it("is not what an approver makes up: then the asked one is granted", async () => {
    const tree = await openTree({ "data/deep/a": "" });
    const w = await tree.open("w", { dynamic: { within: ["../data/deep"] } });
    tree.wider = tree.base;
    const outcome = await tree.ask(w, join(tree.base, "data/deep/a"));
    expect(outcome).toMatchObject({ ok: true, directory: join(tree.base, "data/deep") });
  });
});

describe("a refused request outside of the folders of `within`", () => {
  it("names the folders that are allowed, as the worker would ask for them", async () => {
    const tree = await openTree({ "data/deep/a": "", "other/": "", "p/inbox/sub/": "" });
    const w = await tree.open("w", { dynamic: { within: ["../data", "./inbox/sub"] } });
    const outcome = await tree.ask(w, join(tree.base, "other"));
    expect(outcome.ok ? "" : outcome.refusal.message).toContain(
      `Ask for a directory at or below one of: ${join(tree.base, "data")}, /inbox/sub.`,
    );
  });
});
