import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";

const file = (name: string): Promise<string> => readFile(new URL(`../../bench/peers/${name}`, import.meta.url), "utf8");

describe("the peers' packages", () => {
  it("are pinned, each by its content, with no address of a registry", async () => {
    const { packages } = JSON.parse(await file("package-lock.json")) as {
      packages: Record<string, { resolved?: string; integrity?: string }>;
    };
    const installed = Object.entries(packages).filter(([path]) => path !== "");
    expect(installed.length).toBeGreaterThan(2);
    for (const [path, { resolved, integrity }] of installed) {
      expect([path, resolved]).toEqual([path, undefined]);
      expect(integrity).toMatch(/^sha512-/);
    }
    expect(await file(".npmrc")).toContain("ignore-scripts=true");
  });

  it("are no dependency of Corral's, but for what its tests start servers with", async () => {
    const { dependencies, devDependencies } = JSON.parse(await file("../../package.json"));
    const peers = Object.keys(JSON.parse(await file("package.json")).dependencies);
    expect(Object.keys({ ...dependencies, ...devDependencies }).filter((name) => peers.includes(name))).toEqual([
      "testcontainers",
    ]);
    expect(Object.keys(dependencies)).not.toContain("testcontainers");
  });
});
