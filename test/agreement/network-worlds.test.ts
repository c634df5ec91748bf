import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { derive } from "../../src/sandbox/derive.ts";
import { addressAllowed, judgeRequest } from "../../src/sandbox/network/judge.ts";
import { project } from "../sandbox/sandboxes.ts";
import { networkWorlds } from "./network-worlds.ts";

const ARENA = { hosts: ["a.test", "b.a.test", "c.test"], ports: [8080, 9090], address: "127.0.0.1" };

describe("random allow lists and requests", () => {
  it("are judged as they are meant, after derivation", () => {
    const seen = { allowed: 0, refused: 0, narrowed: 0 };
    fc.assert(
      fc.property(networkWorlds(ARENA), ({ project: given, asked, tries }) => {
        const derivation = derive(project([], { network: given }), { network: asked }, "w");
        if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations));
        const { network } = derivation.sandbox;
        if (typeof network === "boolean") throw new Error("there is no list");
        if (JSON.stringify(asked) !== JSON.stringify(given)) seen.narrowed += 1;
        for (const { host, port, method, path, allowed } of tries) {
          const judgement = judgeRequest(network, { host, port, method, path });
          const isAllowed = judgement.ok && addressAllowed(judgement.rule, ARENA.address);
          expect(isAllowed, `${method} ${host}:${port}${path}`).toBe(allowed);
          seen[allowed ? "allowed" : "refused"] += 1;
        }
      }),
      { numRuns: 200 },
    );
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(20);
  });
});
