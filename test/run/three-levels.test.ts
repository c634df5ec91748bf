import { stat } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/index.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { openProject, sh, WORKER_UID, type WorkerSpec, writable } from "./project-fixture.ts";

/** What a cell says of itself, by commands of its own. */
interface Said {
  readonly mountinfo: readonly (readonly string[])[];
  readonly status: Readonly<Record<string, string>>;
  readonly id: string;
  readonly interfaces: readonly string[];
  readonly identities: Readonly<Record<string, string>>;
  readonly env: readonly string[];
}

/** Prints it as JSON, and then lets the next one do the same, handing on the one attachment. */
const tell = (next?: string): string[] =>
  sh(`jq -n --rawfile mountinfo /proc/self/mountinfo --rawfile status /proc/self/status --rawfile dev /proc/net/dev \\
  --arg id "$(id -u):$(id -g):$(id -G)" --arg env "$(env)" \\
  --arg stat "$(awk '{print $5}' /proc/self/mountinfo | sort -u | xargs -I{} stat -c '%n %d:%i' {} 2>/dev/null)" '{
    mountinfo: [$mountinfo | split("\\n")[] | select(. != "") | split(" ")],
    status: [$status | split("\\n")[] | select(contains(":")) | split(":") | {(.[0]): (.[1] | ltrimstr("\\t"))}] | add,
    id: $id, env: ($env | split("\\n")),
    interfaces: [$dev | split("\\n")[2:][] | select(. != "") | split(":")[0] | gsub(" "; "")],
    identities: [$stat | split("\\n")[] | split(" ") | {(.[0]): .[1]}] | add}'
  ${next === undefined ? ":" : `corral-call ${next} --attach /data/a/note > /tmp/answer 2>&1 || { cat /tmp/answer >&2; exit 1; }`}`);

const worker = (zones: readonly unknown[], next?: string, more: WorkerSpec = {}): WorkerSpec => ({
  command: tell(next),
  output: "json",
  sandbox: { zones },
  ...(next === undefined ? {} : { calls: [next] }),
  ...more,
});

const LEVELS = ["top", "middle", "bottom"] as const;
const said = new Map<string, Said>();
const plans = new Map<string, Plan>();
const results = new Map<string, RunResult>();
let dataIdentity: string;

/** Rows of mountinfo that every container has: kernel file systems and the Engine's own files. */
function isSystems(path: string): boolean {
  return (
    /^\/(proc|sys|dev)(\/|$)/.test(path) ||
    [
      "/",
      "/etc/hosts",
      "/etc/hostname",
      "/etc/resolv.conf",
      "/sbin/docker-init",
      "/usr/sbin/docker-init",
      "/.corral/docker-init",
    ].includes(path)
  );
}

beforeAll(async () => {
  const data = { name: "data" };
  await using project = await openProject({
    workers: {
      top: worker([writable("out"), writable("logs"), data], "middle"),
      middle: worker([writable("out"), data], "bottom", { limits: { memory: "100m", pids: 40 } }),
      bottom: worker([data], undefined, { limits: { memory: "50m", cpus: 0.5 } }),
    },
    zones: { out: "rw", logs: "rw", data: "ro" },
    files: { "data/a/note": "N" },
  });
  const top = await project.run("top");
  const { dev, ino } = await stat(join(project.dir, "data"));
  dataIdentity = `${dev}:${ino}`;
  for (let result: RunResult | undefined = top; result !== undefined; result = result.calls[0]) {
    expect(result, result.stderr).toMatchObject({ status: "succeeded" });
    results.set(result.worker, result);
    said.set(result.worker, result.output as Said);
    plans.set(result.worker, project.planOf(result.worker));
  }
});

describe.each(LEVELS)("the cell of %s, three levels deep", (name) => {
  const own = (): { said: Said; plan: Plan } => ({ said: said.get(name) as Said, plan: plans.get(name) as Plan });

  it("has exactly the planned mounts, each in its mode", () => {
    const { said, plan } = own();
    const seen = said.mountinfo
      .map((row) => ({ path: row[4] ?? "", mode: row[5]?.split(",")[0] }))
      .filter(({ path }) => !isSystems(path));
    const planned = [
      ...plan.mounts.map(({ path, mode }) => ({ path, mode: mode as string })),
      ...plan.tmpfs.map(({ path }) => ({ path, mode: "rw" })),
    ];
    const sorted = (list: { path: string; mode: string | undefined }[]): string[] =>
      list.map(({ path, mode }) => `${path} ${mode}`).sort();
    expect(sorted(seen)).toEqual(sorted(planned));
    expect(said.mountinfo.find((row) => row[4] === "/")?.[5]).toMatch(/^ro,/);
  });

  it("sees at each of them the file or directory that was checked", () => {
    const { said, plan } = own();
    for (const { path, identity } of plan.mounts)
      expect(said.identities[path]).toBe(`${identity.device}:${identity.inode}`);
    expect(said.identities["/data"]).toBe(dataIdentity);
  });

  it("runs as the planned user, without a capability, unable to gain any, and filtered", () => {
    const { said, plan } = own();
    expect(said.id).toBe(`${plan.user.uid}:${plan.user.gid}:${plan.user.gid}`);
    expect(plan.user).toEqual({ uid: WORKER_UID, gid: WORKER_UID });
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
      expect(said.status[set]).toBe("0000000000000000");
    expect(said.status).toMatchObject({ NoNewPrivs: "1", Seccomp: "2" });
  });

  it("has no interface but loopback", () => {
    const { said, plan } = own();
    expect(plan.network).toBe("none");
    const fallback = /^(tunl|sit|ip6tnl|gre|gretap|erspan|ip6gre|ip_vti|ip6_vti)0$/;
    expect(said.interfaces.filter((device) => !fallback.test(device))).toEqual(["lo"]);
  });

  it("has the planned environment and no other", () => {
    const { said, plan } = own();
    const own_ = said.env.filter((line) => !/^(PWD|_|SHLVL|OLDPWD|HOSTNAME)=/.test(line)).sort();
    expect(own_).toEqual(
      Object.entries(plan.env)
        .map(([key, value]) => `${key}=${value}`)
        .sort(),
    );
  });

  it("is reported as enforced line by line", () => {
    const enforcement = results.get(name)?.enforcement;
    expect(enforcement?.actual).toEqual(enforcement?.requested);
  });
});

describe("each level", () => {
  it("has no more than the one above", () => {
    const paths = (name: string, mode?: string): string[] =>
      (plans.get(name) as Plan).mounts
        .filter((mount) => mount.origin === "sandbox" && (mode === undefined || mount.mode === mode))
        .map(({ path }) => path)
        .sort();
    expect(LEVELS.map((name) => paths(name))).toEqual([["/data", "/logs", "/out"], ["/data", "/out"], ["/data"]]);
    expect(LEVELS.map((name) => paths(name, "rw"))).toEqual([["/logs", "/out"], ["/out"], []]);
    const memory = LEVELS.map((name) => (plans.get(name) as Plan).limits.memoryBytes / 2 ** 20);
    expect(memory).toEqual([256, 100, 50]);
    expect((plans.get("bottom") as Plan).limits).toMatchObject({ pids: 40, cpus: 0.5 });
  });
});
