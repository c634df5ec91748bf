import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import { revokeLiveGrant } from "../../../src/state/live-grants.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { mount, shown } from "../../sandbox/sandboxes.ts";
import { codeOf, openTree, type RunSpec } from "./tree.ts";

const ASKS = { approval: { read: "ask", write: "ask", delete: "ask" } } as const;
const ALL: RunSpec = { dynamic: false, needs: { inherit: true } };
const OPEN = ["/inbox ro", "/out rw"];

/** A project with `/asks`, which is read after consent. */
const asking = (more: object = {}) =>
  openTree({ "p/asks/in/a": "" }, (base) => [mount("/asks", "rw", { host: join(base, "p/asks"), ...ASKS, ...more })]);

describe("reading that was agreed to", () => {
  it("is gone with the grant, and is not asked about again", async () => {
    const tree = await asking();
    const root = await tree.open("root", ALL);
    const leaf = await tree.open("leaf", { ...ALL, parent: root });
    expect(codeOf(await tree.ask(leaf, "/asks/in/a"))).toBe("session");
    for (const { sandbox } of [root, leaf]) expect(shown(sandbox)).toEqual(["/asks rw", ...OPEN]);
    await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
    await tree.ledger.look();
    for (const { sandbox } of [root, leaf]) {
      expect(shown(sandbox)).toEqual(OPEN);
      expect(sandbox.withheld?.map(({ path }) => path)).toEqual(["/asks"]);
    }
    expect(codeOf(await tree.ask(leaf, "/asks"))).toBe("GRANT_REVOKED");
    expect(tree.asked).toHaveLength(1);
  });

  it("once is for that operation, also if it was granted something else before", async () => {
    const tree = await asking();
    const w = await tree.open("w", ALL);
    tree.answers = ["once", "session"];
    const first = await tree.ask(w, "/asks");
    expect(first.ok && shown(first.sandbox)).toEqual(["/asks rw", ...OPEN]);
    expect(shown(w.sandbox)).toEqual(OPEN);

    const elsewhere: Sandbox = { ...w.sandbox, mounts: w.sandbox.mounts.filter(({ path }) => path === "/out") };
    const second = await tree.ask(w, "/asks", "read", elsewhere);
    expect(second.ok && shown(second.sandbox)).toEqual(["/asks rw", "/out rw"]);
  });

  it("once is not enough to write where writes are staged", async () => {
    const tree = await asking({ stage: true });
    const w = await tree.open("w", ALL);
    tree.answers = ["once"];
    expect(codeOf(await tree.ask(w, "/asks", "write"))).toBe("GRANT_FOR_ONE_OPERATION");
    expect(codeOf(await tree.ask(w, "/asks", "read"))).toBe("once");
    expect(tree.granted).toHaveLength(1);
  });

  it("is not granted unrecorded", async () => {
    const tree = await asking();
    const w = await tree.open("w", ALL);
    tree.records = false;
    expect(codeOf(await tree.ask(w, "/asks"))).toBe("APPROVAL_DENIED");
    expect(shown(w.sandbox)).toEqual(OPEN);
  });

  it("opens for a caller the nearest directory of those that it has around", async () => {
    const tree = await openTree({ "p/asks/in/a": "" }, (base) => [
      mount("/all", "ro", { host: join(base, "p"), ...ASKS }),
      mount("/asks", "ro", { host: join(base, "p/asks"), ...ASKS }),
    ]);
    const root = await tree.open("root", ALL);
    const paths = [{ name: "p", host: join(tree.base, "p/asks"), mode: "ro" }] as const;
    const leaf = await tree.open("leaf", { dynamic: false, parent: root, needs: { paths } });
    expect(codeOf(await tree.ask(leaf, "/p/in/a"))).toBe("session");
    expect([root, leaf].map(({ sandbox }) => shown(sandbox))).toEqual([["/asks ro", ...OPEN], ["/p ro"]]);
  });

  it("is nothing where one run of the chain cannot show it", async () => {
    const tree = await asking();
    const root = await tree.open("root", ALL);
    const refusal = { code: "MOUNT_SOURCE_REFUSED", path: "/asks", reason: "it is gone" } as const;
    const leaf = await tree.open("leaf", { ...ALL, parent: root, onAdopt: () => [refusal] });
    const outcome = await tree.ask(leaf, "/asks");
    expect(codeOf(outcome)).toBe("GRANT_SOURCE_REFUSED");
    expect(shown(root.sandbox)).toEqual(OPEN);
    const failing = (): never => {
      throw new Error("the disk is gone");
    };
    const broken = await tree.open("broken", { ...ALL, parent: root, onAdopt: failing });
    await expect(tree.ask(broken, "/asks")).rejects.toThrow("the disk is gone");
    expect(shown(root.sandbox)).toEqual(OPEN);
  });
});

describe("reading that no approval opens", () => {
  it("is that of a place that is never shown", async () => {
    const tree = await openTree({}, (base) => [mount("/state", "ro", { host: join(base, "s"), ...ASKS })]);
    const w = await tree.open("w", ALL);
    expect(codeOf(await tree.ask(w, "/state"))).toBe("GRANT_SOURCE_REFUSED");
    expect(tree.asked).toEqual([]);
  });

  it("is that of a directory which its caller has no more, before the question and after it", async () => {
    const tree = await openTree({ "src/a": "" });
    const src = join(tree.base, "src");
    const root = await tree.open("root");
    await tree.ask(root, src);
    const paths = [{ name: "p", host: src, mode: "ro", ...ASKS }] as const;
    const leaf = await tree.open("leaf", { parent: root, dynamic: false, needs: { paths } });
    tree.meanwhile = async () => {
      await revokeLiveGrant(tree.liveDir, currentOwner(), tree.granted[0]?.id ?? "");
      await tree.ledger.look();
    };
    expect(codeOf(await tree.ask(leaf, "/p"))).toBe("GRANT_NOT_ABOVE");
    expect(tree.asked).toHaveLength(2);
    expect(codeOf(await tree.ask(leaf, "/p")), "without a question").toBe("GRANT_NOT_ABOVE");
    expect(tree.asked).toHaveLength(2);
    expect([root, leaf].map(({ sandbox }) => shown(sandbox))).toEqual([[], []]);
  });
});

describe("before a command", () => {
  const nested = (read: "ask" | "blocked") =>
    openTree({ "p/asks/in/a": "" }, (base) => [
      mount("/asks", "ro", { host: join(base, "p/asks"), ...ASKS }),
      mount("/asks/in", "rw", { host: join(base, "p/asks/in"), approval: { ...ASKS.approval, read } }),
    ]);

  it("one question is for a directory with all that is in it", async () => {
    const tree = await nested("ask");
    const w = await tree.open("w", ALL);
    expect(await tree.first(w)).toEqual([]);
    expect(tree.asked.map(({ paths }) => paths)).toEqual([["/asks"]]);
    expect(shown(w.sandbox)).toEqual(["/asks ro", "/asks/in rw", ...OPEN]);
  });

  it("nobody is asked about a directory that holds what is blocked", async () => {
    const tree = await nested("blocked");
    const w = await tree.open("w", ALL);
    expect(await tree.first(w)).toEqual([]);
    expect(tree.asked).toEqual([]);
    expect(shown(w.sandbox)).toEqual(OPEN);
  });

  it("an approval for one operation is refused", async () => {
    const tree = await asking();
    tree.answers = ["once"];
    expect(await tree.first(await tree.open("w", ALL))).toMatchObject([{ code: "READ_NOT_APPROVED", path: "/asks" }]);
  });
});
