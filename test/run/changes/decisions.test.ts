import { readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../../src/approval/approver.ts";
import { openProject, sh } from "../project-fixture.ts";

function person(decide: (request: ApprovalRequest) => Decision["outcome"]) {
  const asked: string[] = [];
  const approver: Approver = {
    async decide(request) {
      asked.push(`${request.operations} ${request.paths}`);
      return { outcome: decide(request), scope: "once", reason: "the test says so" };
    },
  };
  return { asked, person: approver };
}

const asking = { sandbox: { zones: [{ name: "out", mode: "rw" }] } };

describe("the rules of a project", () => {
  it("on deletions at one place say nothing of a write there and a deletion elsewhere", async () => {
    const { asked, person: agrees } = person(() => "approved");
    await using project = await openProject(
      {
        workers: { w: { command: sh("echo new > /out/keep; rm /out/other"), ...asking } },
        zones: { out: "rw" },
        files: { "out/keep": "old", "out/other": "o" },
        yaml: { approval: { rules: [{ operation: "delete", paths: ["/out/keep"], decide: "deny" }] } },
      },
      { person: agrees },
    );
    expect(await project.run("w")).toMatchObject({ status: "succeeded", changeset: { counts: { applied: 2 } } });
    expect(asked).toEqual(["write /out/keep", "delete /out/other"]);
  });

  it("that deny a called worker's writes hold for its commands, whatever its caller may", async () => {
    const deny = { worker: "child", operation: "write", paths: ["/out/**"], decide: "deny", why: "it reads documents" };
    const approve = { worker: "parent", operation: "write", paths: ["/out/**"], decide: "approve" };
    await using project = await openProject({
      workers: {
        parent: { command: sh("corral-call child > /dev/null; echo p > /out/p"), calls: ["child"], ...asking },
        child: { command: sh("echo c > /out/c"), ...asking },
      },
      zones: { out: "rw" },
      yaml: { approval: { rules: [deny, approve] } },
    });
    const result = await project.run("parent");
    expect(result).toMatchObject({
      status: "succeeded",
      calls: [{ status: "denied", changes: [{ outcome: "denied" }] }],
    });
    expect(result.calls[0]?.error?.message).toContain("it reads documents");
    expect(await readdir(join(project.dir, "out"))).toEqual(["p"]);
  });
});

describe("what a called worker brings back where its caller writes without a view", () => {
  it("changes the project itself, and is recorded as that", async () => {
    const direct = { sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] } };
    const parent = { command: sh("corral-call child > /dev/null"), calls: ["child"], ...direct };
    const apart = { sandbox: { zones: [{ name: "out", mode: "rw", stage: true }] } };
    await using project = await openProject(
      { workers: { parent, child: { command: sh("echo c > /out/c"), ...apart } }, zones: { out: "rw" } },
      { approvalMode: "approve_all" },
    );
    expect(await project.run("parent")).toMatchObject({ status: "succeeded", calls: [{ status: "succeeded" }] });
    expect(await readdir(join(project.dir, "out"))).toEqual(["c"]);
    const [id] = await readdir(join(project.stateDir, "audit"));
    const trail = await readFile(join(project.stateDir, "audit", id ?? "", "trail.ndjson"), "utf8");
    expect(trail).toMatch(/"type":"changes_applying".*"worker":"child"/);
    expect(trail).toMatch(/"type":"changes_applied".*"worker":"child"/);
  });
});

describe("what gives way to something else", () => {
  const script = "rm -r /out/now; ln -s";
  const files = { "out/now/precious": "p", "out/next/a": "a" };

  it("stays where that is refused", async () => {
    const zone = { name: "out", mode: "rw", approval: "pre_approved", stage: true };
    await using project = await openProject({
      workers: { w: { command: sh(`${script} /elsewhere /out/now`), sandbox: { zones: [zone] } } },
      zones: { out: "rw" },
      files,
    });
    expect(await project.run("w")).toMatchObject({
      status: "refused",
      changeset: { counts: { refused: 3, applied: 0 } },
    });
    expect(await readFile(join(project.dir, "out/now/precious"), "utf8")).toBe("p");
  });

  it("waits with it where nobody agrees to that", async () => {
    const zone = { name: "out", mode: "rw", approval: { write: "ask", delete: "pre_approved" } };
    await using project = await openProject({
      workers: { w: { command: sh(`${script} next /out/now; rm /out/next/a`), sandbox: { zones: [zone] } } },
      zones: { out: "rw" },
      files,
    });
    const counts = { held: 3, applied: 1 };
    expect(await project.run("w")).toMatchObject({ status: "denied", changeset: { counts } });
    expect(await readFile(join(project.dir, "out/now/precious"), "utf8")).toBe("p");
  });

  it("goes where somebody agrees", async () => {
    const { person: agrees } = person(() => "approved");
    const spec = {
      workers: { w: { command: sh(`${script} next /out/now`), ...asking } },
      zones: { out: "rw" },
      files,
    } as const;
    await using project = await openProject(spec, { person: agrees });
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
    expect(await readlink(join(project.dir, "out/now"))).toBe("next");
  });
});
