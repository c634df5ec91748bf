import { describe, expect, it } from "vitest";
import { judgeHost, parseAskedHost } from "../../../src/run/grants/request-host.ts";
import type { Grantee } from "../../../src/run/model/grantee.ts";
import type { AllowedNetwork, Network } from "../../../src/sandbox/network/rule.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import { listLiveGrants, revokeLiveGrant } from "../../../src/state/live-grants.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { roomy } from "../../sandbox/sandboxes.ts";
import { codeOf, openTree, type RunSpec, type Tree } from "./tree.ts";

const API = "api.example.org:443";

/** A network that reaches `allow` and may be granted what lies in `within`. */
const asking = (within: readonly string[], allow: readonly string[] = [], max = 8): AllowedNetwork => ({
  allow: allow.map((to) => ({ to })),
  dynamic: { within, max },
});
const EXAMPLES = asking(["*.example.org:443"]);

const opened = (network: Network = true, policy = roomy) => openTree({}, () => [], network, policy);
const reached = ({ sandbox: { network } }: Grantee) =>
  typeof network === "boolean" ? network : network.allow.map(({ to }) => to);

describe("a request for a host", () => {
  it("is asked once, by its one name, and reached by the run that asked from then on", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: asking(["*.example.org:443"], ["a.example.net:443"]) });
    expect(codeOf(await tree.reach(w, API))).toBe("session");
    expect(reached(w)).toEqual(["a.example.net:443", API]);
    for (const same of [
      "API.Example.ORG:443",
      "api.example.org.:443",
      "ａｐｉ.example.org:443",
      "api。example.org:443",
    ])
      expect(codeOf(await tree.reach(w, same)), same).toBe("had");
    expect(tree.asked).toEqual([
      {
        run: "run-w",
        root: "run-w",
        worker: "w",
        operations: ["grant_network"],
        paths: [],
        to: API,
        reaches: ["a.example.net:443"],
        through: ["w"],
        why: "for its work",
      },
    ]);
  });

  it("is told and recorded with what was granted of it", async () => {
    const tree = await opened({ allow: [{ to: API, methods: ["GET"], addresses: ["10.0.0.0/8"] }] });
    const w = await tree.open("w", { network: EXAMPLES });
    await tree.reach(w, API);
    expect(tree.granted).toMatchObject([
      { to: API, worker: "w", granted: ["w"], scope: "session", rules: [{ to: API, methods: ["GET"] }] },
    ]);
    expect(w.sandbox.network).toMatchObject({ allow: [{ to: API, methods: ["GET"], addresses: ["10.0.0.0/8"] }] });
    expect(w.sandbox.narrowings.at(-1)).toEqual({ by: "approval (a person agreed)", kind: "grant_network", to: API });
    expect(tree.ledger.told).toEqual(tree.granted);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toMatchObject([{ to: API, scope: "session" }]);
  });

  it("is denied or times out, and is asked about again the next time", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: EXAMPLES });
    tree.answers = ["denied", "timed_out", "tree"];
    expect(codeOf(await tree.reach(w, API))).toBe("APPROVAL_DENIED");
    expect(codeOf(await tree.reach(w, API))).toBe("APPROVAL_TIMED_OUT");
    expect(reached(w)).toEqual([]);
    expect(codeOf(await tree.reach(w, API))).toBe("tree");
  });

  it("is not granted unrecorded", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: EXAMPLES });
    tree.records = false;
    expect(codeOf(await tree.reach(w, API))).toBe("APPROVAL_DENIED");
    expect(reached(w)).toEqual([]);
  });
});

describe("a host that nobody is asked about", () => {
  const project: Network = asking(["*.example.org:443"], ["b.example.org:443"]);
  const cases: readonly (readonly [code: string, host: string, spec: RunSpec])[] = [
    ["GRANT_NOT_DYNAMIC", API, {}],
    ["GRANT_NOT_DYNAMIC", API, { network: { allow: [{ to: "x.example.org:443" }] } }],
    ["GRANT_LIMITED_CALL", API, { network: EXAMPLES, isLimited: true }],
    ["GRANT_OUTSIDE", "api.example.org:80", { network: EXAMPLES }],
    ["GRANT_OUTSIDE", "example.org:443", { network: EXAMPLES }],
    ["GRANT_OUTSIDE", "api.example.org.evil.test:443", { network: EXAMPLES }],
    ["GRANT_OUTSIDE", "evilexample.org:443", { network: EXAMPLES }],
    ["GRANT_NOT_ABOVE", "api.example.net:443", { network: asking(["*.example.net:443"]) }],
    ["GRANT_NO_HOST", "*.example.org:443", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "api.example.org", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "api.example.org:*", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "api.example.org:443:443", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "a@api.example.org:443", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "https://api.example.org:443", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "api.example.org\u0000.evil.test:443", { network: EXAMPLES }],
    ["GRANT_NO_HOST", "api.example.org:65536", { network: EXAMPLES }],
    ["GRANT_NO_HOST", `${"a".repeat(400)}:443`, { network: EXAMPLES }],
  ];
  it.each(cases)("%s %s", async (code, host, spec) => {
    const tree = await opened(project);
    const w = await tree.open("w", spec);
    const before = w.sandbox.network;
    expect(codeOf(await tree.reach(w, host))).toBe(code);
    expect(w.sandbox.network).toEqual(before);
    expect(tree.asked).toEqual([]);
  });

  it("is one beyond the policy, whatever project and worker say", async () => {
    const strict = { ...roomy, network: { allow: [{ to: "api.example.org:443", methods: ["GET"] }] } };
    const tree = await opened(asking(["*.example.org:443"]), strict);
    const w = await tree.open("w", { network: EXAMPLES });
    const outcome = await tree.reach(w, "other.example.org:443");
    expect(codeOf(outcome)).toBe("GRANT_NOT_ABOVE");
    expect(outcome.ok ? "" : outcome.refusal.message).toContain("The policy does not allow it.");
    expect(tree.asked).toEqual([]);
    expect(codeOf(await tree.reach(w, API))).toBe("session");
  });

  it("is one beyond the policy of the project, or of any run on the way", () => {
    const strict = { ...roomy, network: false };
    const level = { worker: { name: "w" }, limited: false, hosts: new Set<string>() };
    const judged = (project: Policy, ...policies: readonly Policy[]) => {
      const chain = policies.map((policy) => ({ ...level, sandbox: { network: EXAMPLES, policy } }));
      const outcome = judgeHost(API, chain, { network: EXAMPLES, policy: project });
      return outcome.ok ? "ok" : outcome.refusal.code;
    };
    expect(judged(roomy, roomy, roomy)).toBe("ok");
    expect(judged(strict, roomy, roomy)).toBe("GRANT_NOT_ABOVE");
    expect(judged(roomy, strict, roomy)).toBe("GRANT_NOT_ABOVE");
    expect(judged(roomy, roomy, strict)).toBe("GRANT_NOT_ABOVE");
  });

  it("is one that would be `http://NAME/` in the cell beside another that is", async () => {
    const [plain, secure] = ["api.example.org:80", API];
    const tree = await opened({ allow: [{ to: plain }, { to: secure, methods: ["GET"] }] });
    const within = ["*.example.org:*"];
    const one = await tree.open("one", { network: { ...asking(within), allow: [{ to: secure, methods: ["GET"] }] } });
    const other = await tree.open("other", { network: asking(within, [plain]) });
    expect(codeOf(await tree.reach(one, plain))).toBe("GRANT_RESERVED");
    expect(codeOf(await tree.reach(other, secure))).toBe("GRANT_RESERVED");
    expect(tree.asked).toEqual([]);
    const both = await opened();
    const w = await both.open("w", { network: asking(within, [plain]) });
    expect(codeOf(await both.reach(w, secure))).toBe("session");
  });

  it("is one more than the worker may be granted", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: asking(["*.example.org:443"], [], 2) });
    for (const name of ["a", "b"]) await tree.reach(w, `${name}.example.org:443`);
    expect(codeOf(await tree.reach(w, "c.example.org:443"))).toBe("GRANT_LIMIT");
    expect(codeOf(await tree.reach(w, "a.example.org:443"))).toBe("had");
    expect(tree.asked).toHaveLength(2);
  });

  it("is any after five hundred requests of one tree", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root });
    for (let count = 0; count < 500; count += 1) await tree.reach(count % 2 ? root : leaf, "x.test:1");
    expect(codeOf(await tree.reach(leaf, API))).toBe("GRANT_LIMIT");
  });
});

describe("a host for a called worker", () => {
  it("comes without the secrets that a caller's rule sets", async () => {
    const tree = await opened();
    const set = { "x-key": { secret: "key" } };
    const root = await tree.open("root", { network: { allow: [{ to: API, paths: ["/v1/**"], set }] } });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root });
    expect(codeOf(await tree.reach(leaf, API))).toBe("session");
    const { network } = leaf.sandbox;
    expect(network).toMatchObject({ allow: [{ to: API, paths: ["/v1/**"] }] });
    expect(JSON.stringify(network)).not.toContain("secret");
  });

  it("is one question for the chain, and every caller that lacked it has it afterwards", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    const middle = await tree.open("middle", { network: EXAMPLES, parent: root });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: middle });
    expect(codeOf(await tree.reach(leaf, API))).toBe("session");
    expect([root, middle, leaf].map(reached)).toEqual([[API], [API], [API]]);
    expect(tree.asked).toMatchObject([{ worker: "leaf", through: ["root", "middle", "leaf"] }]);
    expect(tree.granted).toMatchObject([{ granted: ["root", "middle", "leaf"] }]);
  });

  it("comes from the nearest caller that reaches it, with that caller's bounds", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: { allow: [{ to: API, paths: ["/v1/**"] }] } });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root });
    await tree.reach(leaf, API);
    expect(leaf.sandbox.network).toMatchObject({ allow: [{ to: API, paths: ["/v1/**"] }] });
    expect(tree.granted).toMatchObject([{ granted: ["leaf"] }]);
  });

  it("is refused if a caller is not dynamic, which is named, and the caller's list stays as it is", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: { allow: [{ to: "x.example.org:443" }] } });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root });
    const outcome = await tree.reach(leaf, API);
    expect(codeOf(outcome)).toBe("GRANT_NOT_DYNAMIC");
    expect(outcome.ok ? "" : outcome.refusal.message).toContain("The worker 'root', through which it would come,");
    expect(reached(root)).toEqual(["x.example.org:443"]);
    expect(tree.asked).toEqual([]);
  });

  it("is taken from all again if one of them cannot have it", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    let refuses = false;
    const onAdopt: RunSpec["onAdopt"] = () =>
      refuses ? [{ code: "MOUNT_SOURCE_REFUSED", path: "/x" as never, reason: "no" }] : [];
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root, onAdopt });
    refuses = true;
    expect(codeOf(await tree.reach(leaf, API))).toBe("GRANT_NOT_ABOVE");
    expect([reached(root), reached(leaf)]).toEqual([[], []]);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toEqual([]);
  });
});

const revokeAll = async (tree: Tree): Promise<void> => {
  for (const { id } of await listLiveGrants(tree.liveDir, currentOwner()))
    await revokeLiveGrant(tree.liveDir, currentOwner(), id);
  await tree.ledger.look();
};

describe("a revoked host", () => {
  it("is gone from the chain and from workers that were called with it, and stays gone", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    await tree.reach(root, API);
    const inherited = await tree.open("inherited", { parent: root, network: { ...EXAMPLES, allow: [{ to: API }] } });
    const asked = await tree.open("asked", { parent: root, network: EXAMPLES });
    await tree.reach(asked, API);
    const told: Network[] = [];
    asked.onNetwork(async (network) => void told.push(network));
    const first = (await listLiveGrants(tree.liveDir, currentOwner()))[0];
    await revokeLiveGrant(tree.liveDir, currentOwner(), first?.id ?? "");
    await tree.ledger.look();
    expect([root, inherited, asked].map(reached)).toEqual([[], [], []]);
    expect(told).toEqual([EXAMPLES]);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toEqual([]);
    expect(codeOf(await tree.reach(root, "API.example.org.:443"))).toBe("GRANT_REVOKED");
    expect(codeOf(await tree.reach(root, "other.example.org:443"))).toBe("session");
  });

  it("leaves the rest of what was granted", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: asking(["*.example.org:443"], ["own.example.net:443"]) });
    await tree.ask(w, "/inbox");
    await tree.reach(w, API);
    await tree.reach(w, "b.example.org:443");
    const [, host] = await listLiveGrants(tree.liveDir, currentOwner());
    await revokeLiveGrant(tree.liveDir, currentOwner(), host?.id ?? "");
    await tree.ledger.look();
    expect(reached(w)).toEqual(["b.example.org:443", "own.example.net:443"]);
    expect(w.sandbox.mounts.map(({ path }) => path)).toEqual(["/inbox"]);
  });

  it("stays if a directory is revoked", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: EXAMPLES });
    await tree.reach(w, API);
    await tree.ask(w, "/inbox");
    const directory = (await listLiveGrants(tree.liveDir, currentOwner())).find((grant) => "directory" in grant);
    await revokeLiveGrant(tree.liveDir, currentOwner(), directory?.id ?? "");
    await tree.ledger.look();
    expect(reached(w)).toEqual([API]);
    expect(w.sandbox.mounts).toEqual([]);
  });

  it("is not given by an answer that comes after the revocation", async () => {
    const tree = await opened();
    const [one, other] = [await tree.open("w", { network: EXAMPLES }), await tree.open("w", { network: EXAMPLES })];
    tree.meanwhile = async () => {
      tree.meanwhile = async () => {};
      await tree.reach(one, API);
      await revokeAll(tree);
    };
    expect(codeOf(await tree.reach(other, API))).toBe("GRANT_REVOKED");
    expect(reached(other)).toEqual([]);
  });

  it("is not kept by a run that joins after its caller lost it", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    await tree.reach(root, API);
    const given: AllowedNetwork = { ...EXAMPLES, allow: [{ to: API }] };
    await revokeAll(tree);
    expect(reached(await tree.open("late", { parent: root, network: given }))).toEqual([]);
  });
});

describe("what is true when the answer comes", () => {
  it("counts, and not what was true when it was asked", async () => {
    const tree = await opened();
    const w = await tree.open("w", { network: asking(["*.example.org:443"], [], 1) });
    tree.meanwhile = async () => {
      tree.meanwhile = async () => {};
      await tree.reach(w, "b.example.org:443");
    };
    expect(codeOf(await tree.reach(w, API))).toBe("GRANT_LIMIT");
    expect(reached(w)).toEqual(["b.example.org:443"]);
  });
});

describe("a host that was approved once", () => {
  it("is there until the run that asked has ended, also for its callers", async () => {
    const tree = await opened();
    const root = await tree.open("root", { network: EXAMPLES });
    const leaf = await tree.open("leaf", { network: EXAMPLES, parent: root, ends: true });
    tree.answers = ["once"];
    expect(codeOf(await tree.reach(leaf, API))).toBe("once");
    expect([root, leaf].map(reached)).toEqual([[API], [API]]);
    await tree.end(leaf);
    expect(reached(root)).toEqual([]);
    expect(await listLiveGrants(tree.liveDir, currentOwner())).toEqual([]);
  });
});

describe("a run that learns its network", () => {
  it("asks for any host, but for none beyond the policy, and not for more than it may be granted", async () => {
    const tree = await opened(false, { ...roomy, network: { allow: [{ to: "*.example.org:443" }] } });
    const w = await tree.open("w", { network: asking([], [], 2), learns: true });
    expect(codeOf(await tree.reach(w, API))).toBe("session");
    expect(codeOf(await tree.reach(w, "api.example.net:443"))).toBe("GRANT_NOT_ABOVE");
    tree.answers = ["denied"];
    expect(codeOf(await tree.reach(w, "b.example.org:443"))).toBe("APPROVAL_DENIED");
    expect(reached(w)).toEqual([API]);
    const leaf = await tree.open("leaf", { network: asking([], [], 2), parent: w });
    tree.answers = ["session"];
    expect(codeOf(await tree.reach(leaf, "c.example.org:443"))).toBe("session");
    expect(codeOf(await tree.reach(leaf, "d.example.org:443"))).toBe("GRANT_LIMIT");
  });
});

describe("the text of a host", () => {
  it.each([
    ["Bücher.Example.org:443", "xn--bcher-kva.example.org:443"],
    ["EXAMPLE.org.:443", "example.org:443"],
    ["[2001:db8::1]:443", "[2001:db8::1]:443"],
  ])("%s is %s", (raw, to) => {
    expect(parseAskedHost(raw)).toEqual({ ok: true, to });
  });
});
