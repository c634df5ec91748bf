import { describe, expect, it } from "vitest";
import { packageRewrites, packageSetup } from "../../../src/sandbox/network/package-environment.ts";
import type { NetworkRule, PackageKind } from "../../../src/sandbox/network/rule.ts";

function rule(to: string, kind: PackageKind, ...use: string[]): NetworkRule {
  return { to, methods: ["GET", "HEAD"], packages: { kind, use } };
}

describe("the set-up of package tools", () => {
  it("is empty without a network, with the whole one, and without rules of presets", () => {
    const nothing = { env: {}, files: {} };
    expect(packageSetup(false)).toEqual(nothing);
    expect(packageSetup(true)).toEqual(nothing);
    expect(packageSetup({ allow: [{ to: "registry.example:443" }, rule("files.example:443", "pypi")] })).toEqual(
      nothing,
    );
  });

  it("points npm at its registry, and each scope at its own", () => {
    const allow = [
      rule("npm.acme.example:443", "npm", "@acme http://npm.acme.example/"),
      rule("registry.example:443", "npm", "http://registry.example/npm/"),
    ];
    expect(packageSetup({ allow }).env).toEqual({
      npm_config_registry: "http://registry.example/npm/",
      npm_config_replace_registry_host: "always",
      "npm_config_@acme:registry": "http://npm.acme.example/",
      npm_config_audit: "false",
      npm_config_update_notifier: "false",
    });
  });

  it("points pip at every index, and makes it accept plain HTTP there", () => {
    const allow = [
      rule("a.example:443", "pypi", "http://a.example/simple/"),
      rule("b.example:8443", "pypi", "http://b.example:8443/simple/"),
    ];
    expect(packageSetup({ allow }).env).toEqual({
      PIP_INDEX_URL: "http://a.example/simple/",
      PIP_EXTRA_INDEX_URL: "http://b.example:8443/simple/",
      PIP_TRUSTED_HOST: "a.example b.example:8443",
      PIP_DISABLE_PIP_VERSION_CHECK: "1",
    });
  });

  it("gives apt and cargo files, because they read no variables for it", () => {
    const debian = packageSetup({ allow: [rule("d.example:80", "debian", "deb http://d.example/debian stable main")] });
    expect(debian.env).toEqual({ APT_CONFIG: "/.corral/apt.conf" });
    expect(debian.files["/.corral/apt.list"]).toBe("deb http://d.example/debian stable main\n");
    expect(debian.files["/.corral/apt.conf"]).toContain('Dir::Etc::sourcelist "/.corral/apt.list";');
    const image = packageSetup({ allow: [rule("deb.debian.org:80", "debian", "image")] });
    expect(image.env).toEqual(debian.env);
    expect(Object.keys(image.files)).toEqual(["/.corral/apt.conf"]);
    expect(image.files["/.corral/apt.conf"]).not.toContain("sourcelist");
    const crates = packageSetup({ allow: [rule("index.example:443", "crates", "sparse+http://index.example/")] });
    expect(crates.files["/.cargo/config.toml"]).toBe(
      '[source.crates-io]\nreplace-with = "corral"\n\n[source.corral]\nregistry = "sparse+http://index.example/"\n',
    );
  });

  it("points go at its proxies in their order, and at the checksum database", () => {
    const allow = [
      rule("p.example:443", "go", "http://p.example,http://q.example/go"),
      rule("q.example:443", "go"),
      rule("sum.example:443", "go", "sumdb sum.example http://sum.example", "nosumdb *.corp.example"),
    ];
    expect(packageSetup({ allow }).env).toEqual({
      GOPROXY: "http://p.example,http://q.example/go",
      GOSUMDB: "sum.example http://sum.example",
      GONOSUMDB: "*.corp.example",
    });
    const [proxy] = allow;
    expect(packageSetup({ allow: proxy === undefined ? [] : [proxy] }).env).not.toHaveProperty("GOSUMDB");
  });
});

describe("the rewriting of indexes", () => {
  it("covers the hosts of presets that speak TLS, each once", () => {
    const allow = [
      rule("files.example:443", "pypi"),
      { ...rule("files.example:443", "pypi"), paths: ["/a/**"] },
      rule("other.example:8443", "pypi"),
      rule("plain.example:80", "debian"),
      { ...rule("plain.example:8080", "pypi"), tls: false as const },
      { to: "api.example:443", methods: ["GET"] },
    ];
    expect(packageRewrites({ allow })).toEqual([
      { from: "https://files.example", to: "http://files.example" },
      { from: "https://other.example:8443", to: "http://other.example:8443" },
    ]);
    expect(packageRewrites(true)).toEqual([]);
  });
});
