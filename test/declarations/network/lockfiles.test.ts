import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import {
  type LockParse,
  parseCargoLock,
  parseNpmLock,
  parseRequirements,
  parseUvLock,
} from "../../../src/declarations/network/lock-rules.ts";

const MAIN = "https://npm.example/base/";
const ACME = "https://npm.acme.example/";
const REGISTRIES = { main: MAIN, scopes: new Map([["@acme", ACME]]) };
const [SHA512, SHA256] = ["sha512", "sha256"].map((kind) => `${kind}-${createHash(kind).update("a").digest("base64")}`);
const HEX = createHash("sha256").update("a").digest("hex");

function npm(packages: Record<string, unknown>, lockfileVersion: unknown = 3): LockParse {
  return parseNpmLock(JSON.stringify({ lockfileVersion, packages }, null, 2), REGISTRIES);
}

function faults(parsed: LockParse): string[] {
  return parsed.ok ? [] : parsed.faults.map(({ line, entry, message }) => `${line} ${entry} ${message}`);
}

describe("a lock file of npm", () => {
  it("names each file by its address, also below other packages", () => {
    const parsed = npm({
      "": { name: "project" },
      "node_modules/a": { resolved: `${MAIN}a/-/a-1.0.0.tgz`, integrity: SHA512, dev: true },
      "node_modules/a/node_modules/@acme/b": { resolved: `${ACME}@acme/b/-/b-2.0.0.tgz`, integrity: SHA256 },
      "packages/workspace": { version: "1.0.0" },
      "node_modules/workspace": { resolved: "packages/workspace", link: true },
      "node_modules/a/node_modules/bundled": { version: "1.0.0", inBundle: true },
      "node_modules/for-another-system": { version: "1.0.0", optional: true },
      "node_modules/local": { resolved: "file:local.tgz", integrity: "sha1-x" },
    });
    expect(parsed).toEqual({
      ok: true,
      locked: {
        files: [
          { registry: MAIN, path: "/base/a/-/a-1.0.0.tgz", digests: [SHA512] },
          { registry: ACME, path: "/@acme/b/-/b-2.0.0.tgz", digests: [SHA256] },
        ],
        indexes: [],
      },
    });
  });

  it("takes the public registry for the one that npm is configured for", () => {
    const parsed = npm({
      "node_modules/a": { resolved: "https://registry.npmjs.org/a/-/a-1.0.0.tgz", integrity: SHA512 },
    });
    expect(parsed).toMatchObject({ locked: { files: [{ registry: MAIN, path: "/base/a/-/a-1.0.0.tgz" }] } });
  });

  it("has an address for an entry without one, and then needs the index of the package", () => {
    const parsed = npm({
      "node_modules/alias": { name: "a", version: "1.0.0-rc.1", integrity: SHA512 },
      "node_modules/@acme/b": { version: "2.0.0", integrity: SHA512 },
      "node_modules/@other/c": { version: "3.0.0", integrity: SHA512 },
    });
    expect(parsed).toEqual({
      ok: true,
      locked: {
        files: [
          { registry: MAIN, path: "/base/a/-/a-1.0.0-rc.1.tgz", digests: [SHA512] },
          { registry: ACME, path: "/@acme/b/-/b-2.0.0.tgz", digests: [SHA512] },
          { registry: MAIN, path: "/base/@other/c/-/c-3.0.0.tgz", digests: [SHA512] },
        ],
        indexes: [
          { registry: MAIN, path: "/base/a" },
          { registry: ACME, path: "/@acme/b" },
          { registry: MAIN, path: "/base/@other/c" },
        ],
      },
    });
  });

  it("is checked by its strongest digests alone", () => {
    const integrity = `sha1-${Buffer.alloc(20).toString("base64")} ${SHA256} ${SHA512}?opt`;
    const parsed = npm({ "node_modules/a": { version: "1.0.0", integrity } });
    expect(parsed).toMatchObject({ locked: { files: [{ digests: [SHA512] }] } });
  });

  it("refuses what cannot be checked or is elsewhere, each at its line, and says no more than the host", () => {
    const sha1 = `sha1-${Buffer.alloc(20).toString("base64")}`;
    const parsed = npm({
      "node_modules/foreign": { resolved: "https://evil.example/canary.tgz", integrity: SHA512 },
      "node_modules/lookalike": { resolved: "https://npm.example.evil/base/x.tgz", integrity: SHA512 },
      "node_modules/beside": { resolved: "https://npm.example/other/x.tgz", integrity: SHA512 },
      "node_modules/git": { resolved: "git+ssh://git@git.example/a.git#canary" },
      "node_modules/weak": { version: "1.0.0", integrity: sha1 },
      "node_modules/cut": { version: "1.0.0", integrity: "sha512-AAAA" },
      "node_modules/none": { version: "1.0.0" },
      "node_modules/../x": { version: "1.0.0", integrity: SHA512 },
      "node_modules/version": { version: "../../canary", integrity: SHA512 },
      "node_modules/user": { resolved: "https://canary:canary@npm.example/base/x.tgz", integrity: SHA512 },
    });
    expect(faults(parsed)).toEqual([
      expect.stringMatching(/^4 node_modules\/foreign is at evil\.example, which is not a registry/),
      expect.stringMatching(/^8 node_modules\/lookalike is at npm\.example\.evil/),
      expect.stringMatching(/^12 node_modules\/beside is at npm\.example/),
      // Its missing digest is the first thing wrong with it.
      expect.stringMatching(/^16 node_modules\/git has no `integrity`/),
      expect.stringMatching(/^19 node_modules\/weak .*sha1 does not protect/),
      expect.stringMatching(/^23 node_modules\/cut has an `integrity` without/),
      expect.stringMatching(/^27 node_modules\/none has no `integrity`/),
      expect.stringMatching(/^30 node_modules\/\.\.\/x has a name that no package has/),
      expect.stringMatching(/^34 node_modules\/version has no `version`/),
      expect.stringMatching(/^38 node_modules\/user has a `resolved` with a user/),
    ]);
    expect(JSON.stringify(parsed)).not.toContain("canary");
  });

  it("refuses another format, and reports a bounded number of faults", () => {
    expect(faults(npm({}, 1))).toEqual([expect.stringContaining("of version 2 or 3")]);
    expect(faults(parseNpmLock('{\n"canary": canary', REGISTRIES))).toEqual([
      "2  is not a lock file of npm: it is not JSON",
    ]);
    expect(faults(parseNpmLock("[]", REGISTRIES))).toHaveLength(1);
    const many = npm(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`node_modules/p${i}`, {}])));
    expect(faults(many)).toHaveLength(21);
    expect(faults(many).at(-1)).toContain("80 further entries");
    const tooMany = npm(Object.fromEntries(Array.from({ length: 20_001 }, (_, i) => [`node_modules/p${i}`, {}])));
    expect(faults(tooMany)).toEqual(["1  has 20001 entries; at most 20000 are taken"]);
  });
});

describe("requirements with hashes", () => {
  const INDEX = "https://pypi.example/simple/";
  const FILES = { registry: "https://files.example/", path: "/packages/**" };
  const read = (text: string) => parseRequirements(text, [{ registry: INDEX, files: FILES }]);

  it("take the index of each name, and files by their contents alone", () => {
    const text = `# comment\n--require-hashes\nFoo.Bar[extra] == 1.0 ; python_version < "4" \\\n    --hash=sha256:${HEX} \\\n    --hash sha256:${HEX.toUpperCase()}\nbaz==2 --hash=md5:00 --hash=sha256:${HEX}  # why\n`;
    expect(read(text)).toEqual({
      ok: true,
      locked: {
        files: [{ ...FILES, digests: [SHA256] }],
        indexes: [
          { registry: INDEX, path: "/simple/foo-bar/" },
          { registry: INDEX, path: "/simple/baz/" },
        ],
      },
    });
  });

  it("refuse whatever has no hash, or leads elsewhere", () => {
    const text = `foo==1.0\n-r other.txt\n--index-url https://evil.example/simple\nbar @ https://evil.example/bar.whl --hash=sha256:${HEX}\n./local --hash=sha256:${HEX}\nbaz==1 --hash=sha1:${"0".repeat(40)}\n`;
    expect(faults(read(text))).toEqual([
      expect.stringMatching(/^1 foo has no `--hash`/),
      expect.stringMatching(/^2 -r is an option/),
      expect.stringMatching(/^3 --index-url is an option/),
      expect.stringMatching(/^4 bar names a place of its own/),
      expect.stringMatching(/^5 {2}is not a requirement/),
      expect.stringMatching(/^6 baz has no `--hash`/),
    ]);
  });
});

describe("a lock file of uv", () => {
  const INDEX = "https://pypi.example/simple/";
  const FILES = { registry: "https://files.example/", path: "/packages/**" };
  const read = (...packages: string[]) =>
    parseUvLock(`version = 1\n${packages.map((one) => `\n[[package]]\n${one}\n`).join("")}`, [
      { registry: INDEX, files: FILES },
    ]);
  const wheel = (hash = `sha256:${HEX}`) => `wheels = [{ url = "https://evil.example/x.whl", hash = "${hash}" }]`;
  const from = (name: string, source: string, more = "") => `name = "${name}"\nsource = { ${source} }\n${more}`;

  it("takes the index of each name, also for the public one, and wheels by their contents alone", () => {
    const parsed = read(
      from("app", 'virtual = "."'),
      from("part", 'editable = "packages/part"'),
      from("a", 'registry = "https://pypi.org/simple"', `sdist = { hash = "sha256:${"0".repeat(64)}" }\n${wheel()}`),
      from("b-c", `registry = "${INDEX}"`),
    );
    const indexes = ["/simple/a/", "/simple/b-c/"].map((path) => ({ registry: INDEX, path }));
    expect(parsed).toEqual({ ok: true, locked: { files: [{ ...FILES, digests: [SHA256] }], indexes } });
  });

  it("refuses other places, names that lead elsewhere, and wheels without a hash", () => {
    const pypi = `registry = "${INDEX}"`;
    expect(
      faults(
        read(
          from("a", 'registry = "https://evil.example/simple"', wheel()),
          from("b", 'git = "https://evil.example/b#1"'),
          from("c", 'url = "https://evil.example/c.whl"', wheel()),
          from("d", 'registry = "../folder"'),
          from("e/../f", pypi, wheel()),
          from("g", pypi, wheel("md5:0")),
        ),
      ),
    ).toEqual([
      expect.stringMatching(/^4 a is at evil\.example, which is not an index/),
      expect.stringMatching(/^\d+ b comes from git/),
      expect.stringMatching(/^\d+ c comes from url/),
      expect.stringMatching(/^\d+ d has an index that is not an address/),
      expect.stringMatching(/^1 {2}has a package without a name/),
      expect.stringMatching(/^\d+ g has a wheel without a hash/),
    ]);
    expect(faults(parseUvLock("a = [", []))).toEqual(["1  is not a lock file of uv"]);
  });
});

it("a lock file with thousands of faults far down costs no more than its size", () => {
  const empty = "\n".repeat(1000);
  const entries = Array.from({ length: 5000 }, (_, i) => i);
  const began = performance.now();
  const cargo = entries.map((i) => `[[package]]\nname = "p${i}"\nversion = "1"\nsource = "git"\n${empty}`).join("\n");
  expect(faults(parseCargoLock(cargo, { index: "https://a.example/", crates: "https://b.example/" }))).toHaveLength(21);
  const packages = entries.map((i) => `"node_modules/p${i}": {}${empty}`).join(",");
  const npm = parseNpmLock(`{"lockfileVersion": 3, "packages": {${packages}}}`, REGISTRIES);
  expect(faults(npm).at(-1)).toContain("4980 further entries");
  // To find each place took minutes.
  expect(performance.now() - began).toBeLessThan(10_000);
});

describe("a lock file of cargo", () => {
  const REGISTRY = { index: "https://index.crates.io/", crates: "https://static.crates.io/" };
  const SOURCE = "registry+https://github.com/rust-lang/crates.io-index";

  it("names each crate at both of its addresses, and its place in the index", () => {
    const text = `# generated\nversion = 4\n\n[[package]]\nname = "Serde_x"\nversion = "1.0.0+b"\nsource = "${SOURCE}"\nchecksum = "${HEX}"\ndependencies = [\n "a",\n "abc 1.0.0",\n]\n\n[[package]]\nname = "own"\nversion = "0.1.0"\n\n[[package]]\nname = "abc"\nversion = "1.0.0"\nsource = "sparse+https://index.crates.io/"\nchecksum = "${HEX}"\n`;
    const parsed = parseCargoLock(text, REGISTRY);
    expect(parsed).toEqual({
      ok: true,
      locked: {
        files: [
          "/crates/Serde_x/1.0.0+b/download",
          "/crates/Serde_x/Serde_x-1.0.0+b.crate",
          "/crates/abc/1.0.0/download",
          "/crates/abc/abc-1.0.0.crate",
        ].map((path) => ({ registry: REGISTRY.crates, path, digests: [SHA256] })),
        indexes: ["/config.json", "/se/rd/serde_x", "/3/a/abc"].map((path) => ({ registry: REGISTRY.index, path })),
      },
    });
  });

  it("refuses other sources, missing checksums and what is not TOML", () => {
    const text = `[[package]]\nname = "a"\nversion = "1.0.0"\nsource = "git+https://evil.example/a#1"\n\n[[package]]\nname = "b"\nversion = "1.0.0"\nsource = "${SOURCE}"\n`;
    expect(faults(parseCargoLock(text, REGISTRY))).toEqual([
      expect.stringMatching(/^2 a does not come from crates\.io/),
      expect.stringMatching(/^7 b has no checksum/),
    ]);
    expect(faults(parseCargoLock("a = 1\nb = [canary", REGISTRY))).toEqual(["2  is not a lock file of cargo"]);
  });
});
