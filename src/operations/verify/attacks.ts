import { isRunning, type ThrowAwayFolder } from "../../files/host/results-folder.ts";
import { textBeside } from "../../platform/text-beside.ts";
import type { RunResult } from "../../run/model/result.ts";
import type { Policy } from "../../sandbox/policy.ts";

/** What a worker may be after, in the order of the report. */
export const THREATS = {
  read: "reads what was not granted",
  write: "writes what it may only read",
  "kernel-files": "reads or sets the kernel by its files",
  kernel: "asks the kernel for more than it needs",
  privileges: "has or gains rights",
  devices: "reaches a device of the host",
  namespaces: "sees or shares what is the host's",
  engine: "reaches the Engine or another program",
  network: "reaches a network",
  "allow-list": "reaches what its allow list has not",
  execution: "executes what it wrote",
  memory: "uses more memory than its limit",
  processes: "starts more processes than its limit",
  disk: "writes more than its limit",
  output: "prints more than its limit",
  time: "runs longer than its limit",
  changes: "changes files before a person agreed",
  calls: "calls a worker that may do more",
  "next-item": "leaves something for the next item",
} as const;

export type Threat = keyof typeof THREATS;

/** One thing that was tried; `saw` is null if it held. */
export interface Attempt {
  readonly threat: Threat;
  readonly what: string;
  readonly saw: string | null;
}

/** What the attacks are told of the host, for them to find it or not. */
export interface Host {
  /** Of the project. */
  readonly folder: ThrowAwayFolder;
  /** A file beside what workers are given, and its text. */
  readonly canary: { readonly name: string; readonly text: string };
  readonly addresses: readonly string[];
  /** Of servers of this process that say `corral here`. */
  readonly port: number;
  readonly otherPort: number;
  /** A name in the abstract namespace of Unix sockets, where one listens. */
  readonly abstract: string;
  readonly namespaces: Readonly<Record<string, string>>;
  /** What its /proc/version has. */
  readonly kernel: string;
  /** What its cells have of it in place of an image. */
  readonly programs: readonly string[];
}

/** One cell, and how what came of it is judged. */
export interface Attack {
  readonly name: string;
  /** What is not tried if its cell cannot be made. */
  readonly threats: readonly Threat[];
  /** The worker's file. */
  readonly worker: Readonly<Record<string, unknown>>;
  /** Items of a fleet with scrubbed cells; absent: it is run once. */
  readonly items?: readonly string[];
  /** Its program says so when it has tried all. What it did not try has not held. */
  readonly saysEnd?: true;
  /** Of what it did beside what it printed. Empty: its program did not do what it should, and nothing is known. */
  judge?(result: RunResult): Promise<readonly Attempt[]> | readonly Attempt[];
}

const PROGRAM = textBeside(import.meta.url, "inside.pl");
const MIB = 1024 ** 2;

export function attacksOn(host: Host, policy: Policy): Attack[] {
  const { folder, canary, port, otherPort } = host;
  const { rootUser, noNewPrivileges, capabilities, seccomp, tmpExec, limitScope } = policy.hardening;
  const allows = Object.entries({
    root_user: rootUser,
    new_privileges: !noNewPrivileges,
    capabilities: capabilities.length > 0,
    seccomp: seccomp === "engine",
    tmp_exec: tmpExec,
  }).flatMap(([line, isAllowed]) => (isAllowed ? [line] : []));
  const given = {
    canary: folder.path(canary.name),
    name: canary.name,
    text: canary.text,
    allows: allows.join(","),
    hosts: host.addresses.join(","),
    port: String(port),
    abstract: host.abstract,
    kernel: host.kernel,
    programs: host.programs.join(","),
    ...Object.fromEntries(Object.entries(host.namespaces).map(([kind, id]) => [`ns_${kind}`, id])),
  };
  const docs = { name: "docs" };
  const mark = `endless-${canary.text.slice(0, 12)}`;
  // Threads of a runtime may count beside those of the worker.
  const pids = policy.hardening.runtime === undefined ? {} : { pids: 256 };
  const worker = (
    mode: string,
    values: Readonly<Record<string, string | number>>,
    { limits, ...more }: Readonly<Record<string, unknown>> & { readonly limits?: object } = {},
  ) => ({
    image: "corral/base",
    command: ["perl", "-e", PROGRAM, mode, ...Object.entries(values).map(([name, value]) => `${name}=${value}`)],
    limits: { ...limits, ...pids },
    ...more,
  });
  const out = (name: string) => ({ sandbox: { zones: [{ name, mode: "rw", approval: "pre_approved" }] } });
  const attacks: Attack[] = [
    {
      name: "inside",
      threats: [
        ...(["read", "write", "kernel-files", "kernel", "privileges", "devices", "namespaces", "engine"] as const),
        ...(tmpExec ? (["network"] as const) : (["network", "execution"] as const)),
      ],
      saysEnd: true,
      worker: worker(
        "inside",
        { ...given, out: "/inside" },
        { sandbox: { zones: [docs, ...out("inside").sandbox.zones] } },
      ),
    },
    {
      name: "memory",
      threats: ["memory"],
      worker: worker("memory", { mib: 256 }, { limits: { memory: "64m" } }),
      judge({ status, stdout, stderr }) {
        // A process that has a limit of its own is told that there is no more.
        const isTold = limitScope === "process" && status === "failed" && stderr.startsWith("Out of memory");
        if (stdout !== "begun\n" || !(status === "oom_killed" || isTold)) return [];
        const what = isTold ? "use four times its limit in one process" : "use four times its limit";
        return [{ threat: "memory", what, saw: null }];
      },
    },
    {
      name: "processes",
      threats: ["processes"],
      worker: worker("processes", { count: 512 }, { limits: { pids: 32 } }),
      judge({ status, stdout }) {
        if (!stdout.startsWith("begun") || stdout.endsWith("end\n") || status === "succeeded") return [];
        return [
          { threat: "processes", what: `start more than its limit, which ended all of them (${status})`, saw: null },
        ];
      },
    },
    {
      name: "disk",
      threats: ["disk"],
      worker: worker("disk", { mib: 64, out: "/disk" }, { limits: { disk: "8m" }, ...out("disk") }),
      judge({ status }) {
        if (status !== "disk_limit" && status !== "succeeded") return [];
        const saw = status === "succeeded" ? "it had all of it" : null;
        return [{ threat: "disk", what: "write eight times its limit", saw }];
      },
    },
    {
      name: "output",
      threats: ["output"],
      worker: worker("output", { mib: 16 }, { limits: { output: "1m" } }),
      judge({ status, stdout }) {
        if (stdout.length < MIB / 2) return [];
        const saw = stdout.length > 2 * MIB ? `${Math.round(stdout.length / MIB)} MiB were kept` : null;
        return [{ threat: "output", what: `print sixteen times its limit (${status})`, saw }];
      },
    },
    {
      name: "endless",
      threats: ["time"],
      worker: worker("endless", { mark }, { limits: { timeout: "2s" } }),
      async judge({ status, stdout }) {
        if (!stdout.includes("hidden")) return [];
        const saw = (await isRunning(mark)) ? "it still runs" : status === "timed_out" ? null : `it ended: ${status}`;
        return [{ threat: "time", what: "hide in a session of its own and go on", saw }];
      },
    },
    {
      name: "staged",
      threats: ["changes"],
      worker: worker(
        "staged",
        { out: "/staged" },
        { sandbox: { zones: [{ name: "staged", mode: "rw", stage: true }] } },
      ),
      saysEnd: true,
      async judge() {
        const [text, names] = [await folder.text("staged/a.txt"), await folder.names("staged")];
        const saw = (is: boolean, what: string) => (is ? what : null);
        return [
          { threat: "changes", what: "change a file", saw: saw(text !== "as it was", "it is changed") },
          { threat: "changes", what: "remove a file", saw: saw(!names.includes("b.txt"), "it is gone") },
          { threat: "changes", what: "leave a link to /etc/shadow", saw: saw(names.includes("link"), "it is there") },
          { threat: "changes", what: "leave what git executes", saw: saw(names.includes(".git"), "it is there") },
        ];
      },
    },
    {
      name: "caller",
      threats: ["calls"],
      worker: {
        image: "corral/base",
        limits: pids,
        command: ["sh", "-c", "corral-call child; corral-call other; exit 0"],
        calls: ["child"],
        sandbox: { zones: [docs] },
      },
      judge({ calls }) {
        const [child] = calls;
        if (child === undefined) return [];
        const reached = (name: string) => calls.some((call) => call.worker === name && call.status === "succeeded");
        const more = child.status === "refused" ? null : `the call ended: ${child.status}`;
        return [
          { threat: "calls", what: "call one that may write, and may only read itself", saw: more },
          { threat: "calls", what: "call one that it does not name", saw: reached("other") ? "it ran" : null },
        ];
      },
    },
  ];
  if (policy.reuse === "scrubbed")
    attacks.push({
      name: "item",
      threats: ["next-item"],
      worker: worker("item", {}, { limits: { timeout: "30s" } }),
      items: ["leave", "look"],
    });
  if (policy.network !== false)
    attacks.push({
      name: "connections",
      threats: ["allow-list"],
      worker: worker(
        "connections",
        {
          to: [`localhost:${port}:allowed`, `localhost:${otherPort}`, `${host.addresses.at(-1)}:${port}`].join(","),
        },
        { sandbox: { network: allowList(port) } },
      ),
    });
  return attacks;
}

export function allowList(port: number) {
  return { allow: [{ to: `localhost:${port}`, addresses: ["127.0.0.1/32", "::1/128"] }] };
}

/** Null for a line that is none: the program was cut off, or did not run. */
export function attemptIn(line: string): Attempt | null {
  const [threat = "", what, outcome, saw = ""] = line.split("\t");
  if (!Object.hasOwn(THREATS, threat) || what === undefined) return null;
  if (outcome !== "held" && outcome !== "through") return null;
  return { threat: threat as Threat, what, saw: outcome === "held" ? null : saw };
}

/** What the program began and could not try to its end; null for any other line. */
export function untriedIn(line: string): { readonly threat: Threat; readonly why: string } | null {
  const [threat = "", what, outcome, reason = ""] = line.split("\t");
  if (!Object.hasOwn(THREATS, threat) || outcome !== "untried") return null;
  return { threat: threat as Threat, why: `${what}: ${reason}` };
}
