import { describe, expect, it } from "vitest";
import { readRegistries } from "../../../src/declarations/network/registries/read-registries.ts";
import { parseRegistryUrl } from "../../../src/declarations/network/registries/registry.ts";
import type { PackageKind } from "../../../src/sandbox/network/rule.ts";
import { machineWith } from "./machine-folder.ts";

async function read(kind: PackageKind, files: Record<string, string>, env: Record<string, string> = {}) {
  const found = (await readRegistries([kind], await machineWith(files, env))).get(kind);
  return { urls: found?.registries.map(({ url }) => url), use: found?.registries.flatMap(({ use }) => use), ...found };
}

describe("an address of a registry", () => {
  it("is canonical, without user, query and usual port", () => {
    for (const [raw, url] of [
      ["HTTPS://Registry.Example:443", "https://registry.example/"],
      ["https://u:p@registry.example/npm//", "https://registry.example/npm/"],
      ["http://registry.example:8080/a/b?x=1#y", "http://registry.example:8080/a/b/"],
    ])
      expect(parseRegistryUrl(raw ?? "")).toEqual({ ok: true, url });
  });

  it("is refused if it is not on the network or could mean two places, without repeating it", () => {
    for (const raw of [
      "file:///srv/simple",
      "ftp://h/",
      "nonsense",
      "https://h.example/a%2fb/",
      "https://h.example/a b",
    ]) {
      const parsed = parseRegistryUrl(raw);
      expect(parsed.ok, raw).toBe(false);
      expect(JSON.stringify(parsed)).not.toContain("srv");
    }
  });
});

describe("npm", () => {
  it("has the public registry without settings", async () => {
    const { urls, use, registries } = await read("npm", {});
    expect(urls).toEqual(["https://registry.npmjs.org/"]);
    expect(use).toEqual(["http://registry.npmjs.org/"]);
    expect(registries?.[0]).not.toHaveProperty("paths");
  });

  it("takes the variable before the user's file, and that before the system's", async () => {
    const files = {
      "etc/npmrc": "registry=https://system.example/",
      "~/.npmrc": 'registry = "https://user.example/npm"',
    };
    expect((await read("npm", { "etc/npmrc": files["etc/npmrc"] })).urls).toEqual(["https://system.example/"]);
    const user = await read("npm", files);
    expect(user.registries).toEqual([
      { kind: "npm", url: "https://user.example/npm/", paths: ["/npm/**"], use: ["http://user.example/npm/"] },
    ]);
    expect((await read("npm", files, { NPM_CONFIG_REGISTRY: "http://env.example:4873" })).use).toEqual([
      "http://env.example:4873/",
    ]);
  });

  it("has the registries of scopes, with variables replaced", async () => {
    const { use } = await read(
      "npm",
      { "~/.npmrc": `; mine\n@acme:registry=https://\${WHERE}.example/\n@Bad:registry=https://bad.example/\n` },
      { WHERE: "acme" },
    );
    expect(use).toEqual(["http://registry.npmjs.org/", "@acme http://acme.example/"]);
  });

  it("passes no key on, and says so", async () => {
    const found = await read("npm", {
      "~/.npmrc": "registry=https://u:canary@npm.example/\n//npm.example/:_authToken=canary\n",
    });
    expect(found.urls).toEqual(["https://npm.example/"]);
    expect(found.notes).toHaveLength(2);
    expect(JSON.stringify(found)).not.toContain("canary");
  });
});

describe("pip", () => {
  it("has the public index and the host of its files without settings", async () => {
    const { registries } = await read("pypi", {});
    expect(registries).toEqual([
      { kind: "pypi", url: "https://pypi.org/simple/", paths: ["/simple/**"], use: ["http://pypi.org/simple/"] },
      { kind: "pypi", url: "https://files.pythonhosted.org/", paths: ["/packages/**"], use: [] },
    ]);
  });

  it("has the index of the settings with the files beside it, and further indexes", async () => {
    const found = await read("pypi", {
      "etc/pip.conf": "[global]\nindex-url = https://system.example/simple\n",
      "~/.config/pip/pip.conf":
        "[global]\nindex-url: https://user.example/root/pypi/+simple/\nextra-index-url =\n  https://more.example/simple\n  file:///srv/simple\n[list]\nindex-url = https://other.example/\n",
    });
    expect(found.registries).toEqual([
      {
        kind: "pypi",
        url: "https://user.example/root/pypi/+simple/",
        paths: ["/root/pypi/**"],
        use: ["http://user.example/root/pypi/+simple/"],
      },
      { kind: "pypi", url: "https://more.example/simple/", use: ["http://more.example/simple/"] },
    ]);
    expect(found.notes).toEqual(["An index of pip is a file: address, which is not on the network; it is not used."]);
  });

  it("takes the variables first, and no file if there is to be none", async () => {
    const files = { "etc/pip.conf": "[install]\nindex-url = https://system.example/simple\n" };
    expect((await read("pypi", files)).urls).toEqual(["https://system.example/simple/"]);
    expect((await read("pypi", files, { PIP_INDEX_URL: "http://env.example:3141/simple" })).urls).toEqual([
      "http://env.example:3141/simple/",
    ]);
    expect((await read("pypi", files, { PIP_CONFIG_FILE: "/dev/null" })).urls?.[0]).toBe("https://pypi.org/simple/");
  });
});

describe("apt", () => {
  it("uses the image's list if the machine has the public hosts, or no apt at all", async () => {
    const found = await read("debian", {});
    expect(found.urls).toEqual([
      "http://deb.debian.org/debian/",
      "http://deb.debian.org/debian-security/",
      "http://security.debian.org/debian-security/",
    ]);
    expect(new Set(found.use)).toEqual(new Set(["image"]));
    const public_ = await read("debian", { "etc/apt/sources.list": "deb http://deb.debian.org/debian stable main\n" });
    expect(new Set(public_.use)).toEqual(new Set(["image"]));
  });

  it("uses the machine's list in both forms if that has a host of its own", async () => {
    const found = await read("debian", {
      "etc/apt/sources.list":
        "# comment\ndeb-src http://mirror.example/debian stable main\ndeb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] https://mirror.example/debian stable main contrib # end\ndeb file:/srv/debian stable main\n",
      "etc/apt/sources.list.d/more.sources":
        "Types: deb deb-src\nURIs: http://mirror.example/security\nSuites: stable-security\nComponents: main\nSigned-By:\n /usr/share/keyrings/a.gpg\n\nTypes: deb\nEnabled: no\nURIs: http://off.example/\nSuites: stable\nComponents: main\n\nTypes: deb\nURIs: http://own.example/\nSuites: stable\nComponents: main\nSigned-By: /etc/apt/keyrings/own.gpg\n",
      "etc/apt/sources.list.d/old.list.disabled": "deb http://disabled.example/ stable main\n",
    });
    expect(found.urls).toEqual(["https://mirror.example/debian/", "http://mirror.example/security/"]);
    expect(found.use).toEqual([
      "deb [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian/ stable main contrib",
      "deb [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/security/ stable-security main",
    ]);
    expect(found.notes).toHaveLength(2);
  });
});

describe("cargo", () => {
  it("has crates.io without settings", async () => {
    expect(await read("crates", {})).toMatchObject({
      urls: ["https://index.crates.io/", "https://static.crates.io/"],
      use: ["sparse+http://index.crates.io/"],
    });
  });

  it("follows what replaces crates.io", async () => {
    const others = `[env]\nNOTE = """two\nlines"""\nAT = 2025-01-31T12:00:00Z\nMASK = 0xff\n`;
    const settings = `${others}[source.crates-io]\nreplace-with = "one"\n[source]\none = { replace-with = "two" }\n[registries.two]\nindex = "sparse+https://cargo.example/index/"\n`;
    const found = await read("crates", { "~/.cargo/config.toml": settings });
    expect(found.registries).toEqual([
      { kind: "crates", url: "https://cargo.example/index/", use: ["sparse+http://cargo.example/index/"] },
    ]);
  });

  it("has no registry if what replaces it cannot be used, and says so", async () => {
    for (const text of [
      '[source.crates-io]\nreplace-with = "v"\n[source.v]\ndirectory = "vendor"\n',
      '[source.crates-io]\nreplace-with = "g"\n[source.g]\nregistry = "https://git.example/index"\n',
      '[source.crates-io]\nreplace-with = "a"\n[source.a]\nreplace-with = "crates-io"\n',
      "[source",
    ]) {
      const found = await read("crates", { "~/.cargo/config.toml": text });
      expect(found.registries, text).toEqual([]);
      expect(found.notes, text).toHaveLength(1);
    }
  });
});

describe("go", () => {
  it("has the public proxy and checksum database without settings", async () => {
    expect(await read("go", {})).toMatchObject({
      urls: ["https://proxy.golang.org/", "https://sum.golang.org/"],
      use: ["http://proxy.golang.org", "sumdb sum.golang.org http://sum.golang.org"],
    });
  });

  it("reads what `go env -w` wrote, after the variables", async () => {
    const files = { "~/.config/go/env": "GOPROXY=https://a.example/go|https://b.example,direct\nGOSUMDB=off\n" };
    expect(await read("go", files)).toMatchObject({
      urls: ["https://a.example/go/", "https://b.example/"],
      use: ["http://a.example/go,http://b.example", "sumdb off"],
    });
    const env = {
      GOPROXY: "https://env.example",
      GOSUMDB: "sum.example+1a2b+Ck/= https://sum.example/db",
      GOPRIVATE: "*.corp.example",
    };
    expect((await read("go", files, env)).use).toEqual([
      "http://env.example",
      "sumdb sum.example+1a2b+Ck/= http://sum.example/db",
      "nosumdb *.corp.example",
    ]);
  });
});
