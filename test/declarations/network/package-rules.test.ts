import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { kindsOf, packageRules, resolveNetwork } from "../../../src/declarations/network/package-rules.ts";
import { readRegistries } from "../../../src/declarations/network/registries/read-registries.ts";
import type { PackageTerms } from "../../../src/declarations/network/rule-terms.ts";
import { projectFolder } from "../project-folder.ts";
import { machineWith } from "./machine-folder.ts";

const [SHA512, SHA256] = ["sha512", "sha256"].map((kind) => `${kind}-${createHash(kind).update("a").digest("base64")}`);
const HEX = createHash("sha256").update("a").digest("hex");

async function rulesFor(
  terms: PackageTerms,
  files: Record<string, string> = {},
  settings: Record<string, string> = {},
  env: Record<string, string> = {},
) {
  const registries = await readRegistries(kindsOf(terms), await machineWith(settings, env));
  return await packageRules(terms, { projectDir: await projectFolder(files), registries });
}

function lock(entries: Record<string, unknown>): string {
  return JSON.stringify({ lockfileVersion: 3, packages: entries });
}

describe("presets", () => {
  it("become rules that read only", async () => {
    const { rules, faults } = await rulesFor({
      packages: [{ kind: "npm" }, { kind: "go", addresses: ["10.0.0.0/8"] }],
    });
    expect(faults).toEqual([]);
    expect(rules[0]).toEqual({
      to: "registry.npmjs.org:443",
      methods: ["GET", "HEAD"],
      packages: { kind: "npm", use: ["http://registry.npmjs.org/"] },
    });
    expect(rules.slice(1).map(({ to, addresses }) => [to, addresses])).toEqual([
      ["proxy.golang.org:443", ["10.0.0.0/8"]],
      ["sum.golang.org:443", ["10.0.0.0/8"]],
    ]);
  });

  it("say if the registry itself speaks plain HTTP", async () => {
    const [own, usual] = await Promise.all(
      ["http://npm.example:4873/", "http://npm.example/"].map((url) =>
        rulesFor({ packages: [{ kind: "npm" }] }, {}, {}, { npm_config_registry: url }),
      ),
    );
    expect(own?.rules).toMatchObject([{ to: "npm.example:4873", tls: false }]);
    expect(usual?.rules[0]).toMatchObject({ to: "npm.example:80" });
    expect(usual?.rules[0]).not.toHaveProperty("tls");
  });

  it("are a fault if the registry would be where another host is already", async () => {
    const raw = { allow: [{ to: "npm.example:80" }], packages: [{ kind: "npm" as const }] };
    const env = { npm_config_registry: "https://npm.example/" };
    const registries = await readRegistries(kindsOf(raw), await machineWith({}, env));
    expect(await resolveNetwork(raw, { projectDir: await projectFolder({}), registries })).toMatchObject({
      ok: false,
      faults: [{ at: ["packages"], fault: expect.stringContaining("would both be `http://npm.example/` in the cell") }],
    });
  });

  it("are a fault if this machine has no registry of the kind that Corral can use", async () => {
    const { faults } = await rulesFor({ packages: [{ kind: "npm" }] }, {}, {}, { npm_config_registry: "file:///x" });
    expect(faults).toEqual([
      {
        in: "packages",
        index: 0,
        fault:
          "`npm` has no registry on this machine. npm's setting `registry` is a file: address, which is not on the network; it is not used.",
      },
    ]);
  });
});

describe("lock files", () => {
  it("leave of the preset only their files, whether it is named or not", async () => {
    const files = {
      "app/package-lock.json": lock({
        "node_modules/a": { version: "1.0.0", integrity: SHA512 },
        "node_modules/b": { resolved: "https://registry.npmjs.org/b/-/b-1.0.0.tgz", integrity: SHA512 },
      }),
    };
    const named = await rulesFor({ packages: [{ kind: "npm" }], lockfiles: ["app/package-lock.json"] }, files);
    const packages = { kind: "npm", use: ["http://registry.npmjs.org/"] };
    expect(named).toEqual({
      faults: [],
      rules: [
        {
          to: "registry.npmjs.org:443",
          methods: ["GET", "HEAD"],
          packages,
          artifacts: [
            { path: "/a/-/a-1.0.0.tgz", digests: [SHA512] },
            { path: "/b/-/b-1.0.0.tgz", digests: [SHA512] },
          ],
        },
        { to: "registry.npmjs.org:443", methods: ["GET", "HEAD"], packages, paths: ["/a"] },
      ],
    });
    expect(await rulesFor({ lockfiles: ["app/package-lock.json"] }, files)).toEqual(named);
  });

  it("find the files of an index of one's own beside it", async () => {
    const { rules } = await rulesFor(
      { lockfiles: ["requirements-dev.txt"] },
      { "requirements-dev.txt": `foo==1 --hash=sha256:${HEX}\n` },
      {},
      { PIP_INDEX_URL: "https://pypi.example/root/simple/" },
    );
    expect(rules.map(({ paths, artifacts }) => paths ?? artifacts)).toEqual([
      [{ path: "/root/**", digests: [SHA256] }],
      ["/root/simple/foo/"],
    ]);
  });

  it("of cargo need crates.io itself", async () => {
    const terms = { lockfiles: ["Cargo.lock"] };
    const text = `[[package]]\nname = "a"\nversion = "1.0.0"\nsource = "sparse+https://index.crates.io/"\nchecksum = "${HEX}"\n`;
    const { rules, faults } = await rulesFor(terms, { "Cargo.lock": text });
    expect(faults).toEqual([]);
    expect(rules.map(({ to }) => to)).toEqual(["index.crates.io:443", "static.crates.io:443"]);
    const settings = {
      "~/.cargo/config.toml": `[source.crates-io]\nreplace-with="m"\n[source.m]\nregistry="sparse+https://m.example/"\n`,
    };
    const replaced = await rulesFor(terms, { "Cargo.lock": text }, settings);
    expect(replaced.rules).toEqual([]);
    expect(replaced.faults[0]?.fault).toContain("can only be used with crates.io itself");
  });

  it("are refused with their place, and as a whole if they are no lock files", async () => {
    const files = {
      "package-lock.json": lock({ "node_modules/a": { resolved: "https://evil.example/a.tgz", integrity: SHA512 } }),
    };
    const { rules, faults } = await rulesFor({ lockfiles: ["package-lock.json", "yarn.lock", "Cargo.lock"] }, files);
    expect(rules).toEqual([]);
    expect(faults.map(({ in: part, index, fault }) => `${part}.${index}: ${fault.slice(0, 60)}`).sort()).toEqual([
      "lockfiles.0: package-lock.json:1: `node_modules/a` is at evil.example, wh",
      "lockfiles.1: is not a lock file that Corral knows: package-lock.json, npm",
      "lockfiles.2: Cargo.lock:1: the file does not exist",
    ]);
  });

  it("are regular files of a bounded size", async () => {
    const dir = await projectFolder({});
    await mkdir(join(dir, "folder/package-lock.json"), { recursive: true });
    await mkdir(join(dir, "large"));
    await writeFile(join(dir, "large/package-lock.json"), Buffer.alloc(32 * 1024 * 1024 + 1, " "));
    const terms = { lockfiles: ["folder/package-lock.json", "large/package-lock.json"] };
    const registries = await readRegistries(["npm"], await machineWith({}));
    const { faults } = await packageRules(terms, { projectDir: dir, registries });
    expect(faults.map(({ fault }) => fault)).toEqual([
      "folder/package-lock.json:1: the file is not a regular file",
      "large/package-lock.json:1: the file is larger than 33554432 bytes",
    ]);
  });
});
