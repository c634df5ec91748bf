import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ApprovalOperation, ApprovalRequest } from "../../src/approval/approver.ts";
import { ApprovalMemory } from "../../src/approval/memory.ts";
import { covers, type VirtualPath } from "../../src/sandbox/virtual-path.ts";

const name = fc.oneof({ weight: 30, arbitrary: fc.constantFrom("a", "b", "a-evil") }, fc.constant(".."));
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => `/${names.join("/")}`);
const operation = fc.oneof(
  { weight: 20, arbitrary: fc.constantFrom<ApprovalOperation>("write", "delete", "exec", "grant_read", "grant_write") },
  fc.constant<ApprovalOperation>("push"),
);
const request: fc.Arbitrary<ApprovalRequest> = fc.record({
  run: fc.constant("r"),
  root: fc.constantFrom("one", "two"),
  worker: fc.constantFrom("v", "w"),
  operations: fc.uniqueArray(operation, { minLength: 1, maxLength: 2, size: "xsmall" }),
  paths: fc.array(path, { maxLength: 2 }),
  directory: path,
  command: fc.constantFrom("ls", "ls -l"),
});
const approved = fc.record({ request, scope: fc.constantFrom<"tree" | "session">("tree", "session") });
type Approved = { readonly request: ApprovalRequest; readonly scope: "tree" | "session" };

/** What one path of one operation may be approved by, said another way than the memory does. */
function isAgreed(operation: ApprovalOperation, place: string, asked: ApprovalRequest, approvals: readonly Approved[]) {
  return approvals.some(({ request: earlier, scope }) => {
    if (earlier.operations.includes("push")) return false;
    if (earlier.worker !== asked.worker || !earlier.operations.includes(operation)) return false;
    if (scope === "tree" && earlier.root !== asked.root) return false;
    if (operation === "grant_read" || operation === "grant_write") return below(earlier.directory ?? "", place);
    return earlier.paths.some(
      (one) => one === place || (parent(one) !== "/" && place !== parent(one) && below(parent(one), place)),
    );
  });
}

const below = (directory: string, place: string) => covers(directory as VirtualPath, place as VirtualPath);
const parent = (place: string) => place.slice(0, place.lastIndexOf("/")) || "/";

describe("ApprovalMemory, whatever was approved before", () => {
  it("never covers what no approved directory covers", () => {
    let covered = 0;
    fc.assert(
      fc.property(fc.array(approved, { minLength: 4, maxLength: 12 }), request, (approvals, asked) => {
        const memory = new ApprovalMemory();
        for (const { request: earlier, scope } of approvals) memory.remember(earlier, scope);
        if (memory.scopeOf(asked) === null) return;
        covered++;
        for (const one of asked.operations) {
          expect(one).not.toBe("push");
          if (one === "exec") {
            expect(approvals.some(({ request: { command } }) => command === asked.command)).toBe(true);
            continue;
          }
          const places = one.startsWith("grant_") ? [asked.directory ?? ""] : asked.paths;
          expect(places.length).toBeGreaterThan(0);
          for (const place of places) {
            expect(place).not.toContain("..");
            expect(isAgreed(one, place, asked, approvals), `${one} ${place}`).toBe(true);
          }
        }
      }),
      { numRuns: 10_000 },
    );
    expect(covered).toBeGreaterThan(100);
  });

  it("covers what was approved itself, unless that is asked about each time", () => {
    fc.assert(
      fc.property(request, fc.constantFrom<"tree" | "session">("tree", "session"), (asked, scope) => {
        const memory = new ApprovalMemory();
        memory.remember(asked, scope);
        const plain = [...asked.paths, asked.directory ?? ""].every((one) => one !== "/" && !one.includes(".."));
        if (!plain || asked.operations.includes("push") || asked.paths.length === 0) return;
        expect(memory.scopeOf(asked)).toBe(scope);
      }),
    );
  });
});
