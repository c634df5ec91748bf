import { describe, expect, it } from "vitest";
import { itemFit } from "../../../src/fleet/scrubbed/shape.ts";
import { mount, project, rooted } from "../../sandbox/sandboxes.ts";

describe("a cell that serves many items", () => {
  it.each(["/tmp/checkout", "/root/checkout"])("has no mount at %s: it empties what is around that", (path) => {
    const sandbox = project([mount(path, "ro")]);
    expect(itemFit(sandbox, sandbox)).toMatchObject({ ok: false, reason: expect.stringContaining("is emptied after") });
  });

  it("has any other, and with the root form that too", () => {
    const sandbox = project([mount("/srv/checkout", "ro")]);
    expect(itemFit(sandbox, sandbox)).toMatchObject({ ok: true });
    const inRoot = { ...rooted(), mounts: [mount("/tmp/x", "ro")] };
    expect(itemFit(inRoot, inRoot)).toMatchObject({ ok: true });
  });

  it("has no staged mount, and says that the stage is why", () => {
    const free = { write: "pre_approved", delete: "pre_approved" } as const;
    const sandbox = project([mount("/out", "rw", { approval: free, stage: true })]);
    expect(itemFit(sandbox, sandbox)).toMatchObject({ ok: false, reason: expect.stringContaining("`stage`") });
  });
});
