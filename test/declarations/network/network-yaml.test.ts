import { describe, expect, it } from "vitest";
import { parsePolicy } from "../../../src/declarations/policy/policy.ts";
import { parseWorker } from "../../../src/declarations/worker/worker.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";

function network(yaml: string) {
  return parseWorker(`---\ncommand: [a]\nsandbox:\n  network: ${yaml}\n---\n`, "workers/w.worker").needs.network;
}

function problemsOf(read: () => unknown): string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
  }
}

const problems = (yaml: string) => problemsOf(() => network(yaml));
const rule = (yaml: string) => network(`{ allow: [${yaml}] }`);

describe("network in a file", () => {
  it("has rules in every form, limits and hosts to ask for", () => {
    const text = `
    allow:
      - registry.example.org:443
      - "*.example.org:*"
      - { to: "api.example.org:443", methods: [get, POST], paths: [/v1/**], set: { X-Api-Key: { secret: example } } }
      - { to: "db.corp:5432", addresses: [10.1.0.0/16, "fd00::/8"] }
      - { to: "plain.corp:8080", tls: false }
    packages: [npm, { kind: pypi, addresses: [10.0.0.0/8] }]
    lockfiles: [package-lock.json]
    limits: { upload: 1m, download: 2g, requests: 5000, connections: 64 }
    dynamic: { within: ["*.Example.org:443"] }`;
    expect(network(text)).toEqual({
      allow: [
        { to: "registry.example.org:443" },
        { to: "*.example.org:*" },
        {
          to: "api.example.org:443",
          methods: ["GET", "POST"],
          paths: ["/v1/**"],
          set: { "x-api-key": { secret: "example" } },
        },
        { to: "db.corp:5432", addresses: ["10.1.0.0/16", "fd00::/8"] },
        { to: "plain.corp:8080", tls: false },
      ],
      packages: [{ kind: "npm" }, { kind: "pypi", addresses: ["10.0.0.0/8"] }],
      lockfiles: ["package-lock.json"],
      limits: { uploadBytes: 1024 ** 2, downloadBytes: 2 * 1024 ** 3, requests: 5000, connections: 64 },
      dynamic: { within: ["*.example.org:443"], max: 8 },
    });
    expect(network("{ packages: [npm] }")).toEqual({ allow: [], packages: [{ kind: "npm" }] });
    expect(network("true")).toBe(true);
  });

  it.each([
    ["API.Example.ORG.:443", "api.example.org:443"],
    ["bücher.example:443", "xn--bcher-kva.example:443"],
    ["'*.Bücher.example:*'", "*.xn--bcher-kva.example:*"],
    ["'[2001:4860:4860:0:0:0:0:8888]:443'", "[2001:4860:4860::8888]:443"],
    ["1.1.1.1:53", "1.1.1.1:53"],
  ])("writes the host %s in its one form", (raw, to) => {
    expect(rule(raw)).toEqual({ allow: [{ to }] });
  });

  it.each([
    ["example.org", "a port is missing; write `host:port`"],
    ["https://example.org/a", "is a URL; write `example.org:443`"],
    ["http://example.org", "is a URL; write `example.org:80`"],
    ["https://user:x@example.org:8443/", "is a URL; write `example.org:8443`"],
    ["example.org:443/a", "write paths below `paths`"],
    ["me@example.org:443", "must be only host and port"],
    ["'2001:db8::1:443'", "an IPv6 address must be in brackets"],
    ["'[2001:db8::g]:443'", "the host must be a name"],
    ["'[::1%eth0]:443'", "the host must be a name"],
    ["'[1.2.3.4]:443'", "the host must be a name"],
    ["'*:443'", "the host must be a name"],
    ["'a.*.org:443'", "the host must be a name"],
    ["'*.1.1.1.1:443'", "the host must be a name"],
    ["127.1:80", "the host must be a name"],
    ["0x7f000001:80", "the host must be a name"],
    ["010.0.0.1:80", "the host must be a name"],
    ["exa mple.org:80", "the host must be a name"],
    ["example..org:80", "the host must be a name"],
    ["example.org:0", "the port must be 1 to 65535"],
    ["example.org:http", "the port must be 1 to 65535"],
    [
      "'localhost:8080'",
      '`localhost` is not public; write `{ to: "localhost:8080", addresses: ["127.0.0.1/32", "::1/128"] }`',
    ],
    ["'10.0.0.1:5432'", '`10.0.0.1` is not public; write `{ to: "10.0.0.1:5432", addresses: ["10.0.0.1/32"] }`'],
    ["'[::1]:80'", 'addresses: ["::1/128"]'],
    ["{ methods: [GET] }", "allow.0.to is missing"],
    ["{ to: 'a.org:1', methods: [CONNECT] }", "allow.0.methods.0 cannot be allowed: CONNECT is not passed on"],
    ["{ to: 'a.org:1', methods: [trace] }", "cannot be allowed"],
    ["{ to: 'a.org:1', methods: ['G ET'] }", "must be a method such as GET"],
    ["{ to: 'a.org:1', methods: [] }", "must not be empty"],
    ["{ to: 'a.org:1', paths: [a] }", "allow.0.paths.0 must begin with `/`"],
    ["{ to: 'a.org:1', paths: ['/a*'] }", "must have `*` only as a whole segment"],
    ["{ to: 'a.org:1', paths: ['/**/a'] }", "must have `**` only at its end"],
    ["{ to: 'a.org:1', paths: ['/a/../b'] }", "must not have `//`"],
    ["{ to: 'a.org:1', paths: ['/a?b'] }", "must be a path without `?`"],
    ["{ to: 'a.org:1', paths: ['/é'] }", "printable ASCII"],
    ["{ to: 'a.org:1', set: {} }", "must name at least one header"],
    ["{ to: 'a.org:1', set: { Host: { secret: a } } }", "cannot be set: Corral or the connection decides it"],
    ["{ to: 'a.org:1', set: { Transfer-Encoding: { secret: a } } }", "cannot be set"],
    ["{ to: 'a.org:1', set: { 'a b': { secret: a } } }", "must be the name of a header"],
    ["{ to: 'a.org:1', set: { A: { secret: a }, a: { secret: b } } }", "`a` is set twice"],
    ["{ to: 'a.org:1', set: { a: sk-1234 } }", "allow.0.set.a must be a map"],
    ["{ to: 'a.org:1', addresses: [10.1.2.3/16] }", "must be written from its first address: `10.1.0.0/16`"],
    ["{ to: 'a.org:1', addresses: ['::ffff:10.0.0.0/104'] }", "must be written as IPv4"],
    ["{ to: 'a.org:1', addresses: [10.0.0.0/33] }", "must be addresses such as"],
    ["{ to: 'a.org:1', tls: true }", "can only be `false`"],
    ["{ to: 'a.org:1', header: a }", "unknown key `header`"],
    ["5", "must be `host:port` or a map with `to`"],
    [
      "{ to: 'a.org:443', methods: [GET] }, 'a.org:80'",
      "allow.1 `a.org:80` and `a.org:443` would both be `http://a.org/`",
    ],
    ["'a.org:80', { to: 'a.org:443', tls: false }", "would both be `http://a.org/`"],
  ])("refuses the rule %s", (yaml, message) => {
    expect(problems(`{ allow: [${yaml}] }`)).toEqual([expect.stringContaining(message)]);
  });

  it("names the place of each problem", () => {
    expect(problems("{ allow: ['a.org', { to: 'b.org:443', paths: [b] }], limits: { upload: lots } }")).toEqual([
      expect.stringMatching(/^4:22 sandbox\.network\.allow\.0 "a\.org": a port is missing/),
      expect.stringMatching(/^4:58 sandbox\.network\.allow\.1\.paths\.0 must begin/),
      expect.stringMatching(/sandbox\.network\.limits\.upload must be a size/),
    ]);
  });

  it("may have a tunnel at port 443 beside port 80, and two rules for one port", () => {
    expect(problems("{ allow: ['a.org:443', 'a.org:80'] }")).toEqual([]);
    expect(problems("{ allow: [{ to: 'a.org:443', methods: [GET] }, { to: 'a.org:443', paths: [/a] }] }")).toEqual([]);
    expect(problems("{ allow: [{ to: '*.a.org:443', methods: [GET] }, '*.a.org:80'] }")).toEqual([]);
  });

  it.each([
    ["{ dynamic: { within: [] } }", "must not be empty"],
    ["{ dynamic: { within: [a] } }", "a port is missing"],
    ["{ dynamic: { within: ['a:1'], max: 65 } }", "must be at most 64"],
    ["{ limits: { connections: 0 } }", "must be at least 1"],
    ["{ packages: [nmp] }", 'must be "npm"'],
    ["{ packages: [npm, { kind: npm }] }", "`npm` is there twice"],
    ["{ alow: [] }", "did you mean `allow`"],
  ])("refuses %s", (yaml, message) => {
    expect(problems(yaml)).toEqual([expect.stringContaining(message)]);
  });
});

describe("network in a policy", () => {
  const policy = (value: string) =>
    parsePolicy(
      `name: p\ndescription: d\nnetwork: { value: ${value}, why: "it is needed" }\nhardening: {}\nlimits: { timeout: { default: 1s, max: 1s }, memory: { default: 1m, max: 1m }, cpus: { default: 1, max: 1 }, pids: { default: 1, max: 1 }, output: { default: 1, max: 1 }, disk: { default: 1, max: 1 } }\ntmp: 1m\nhome: 1m\nnofile: 1\n`,
      "p.yaml",
      "p",
    );

  it("has rules, limits and hosts to ask for", () => {
    const value =
      "{ allow: [{ to: 'a.org:443', methods: [GET] }], limits: { upload: 1m }, dynamic: { within: ['b.org:443'] } }";
    expect(policy(value).network).toEqual({
      allow: [{ to: "a.org:443", methods: ["GET"] }],
      limits: { uploadBytes: 1024 ** 2 },
      dynamic: { within: ["b.org:443"], max: 8 },
    });
  });

  it.each([
    ["{ allow: [{ to: 'a.org:443', set: { a: { secret: b } } }] }", "unknown key `set`"],
    ["{ allow: [], packages: [npm] }", "unknown key `packages`"],
    ["{ allow: [], lockfiles: [a] }", "unknown key `lockfiles`"],
  ])("has nothing that only a project has: %s", (value, message) => {
    expect(problemsOf(() => policy(value))).toEqual([expect.stringContaining(message)]);
  });
});
