import { dirname, normalize } from "node:path/posix";
import { consentOf } from "../../sandbox/approval.ts";
import { asksForHostExecuted, isHostExecutedRoot } from "../../sandbox/host-executed.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { below, comparePaths, holds, MAX_PATH_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** What a profile is made for, beside the sandbox. Paths are absolute, without links, and spelled as on the disk. */
export interface SeatbeltPlaces {
  /** A directory of this command alone: its home and its temporary files. Nothing else of Corral's is in it. */
  readonly temporary: string;
  /** Corral's own, which no mount may be, contain or be inside of. */
  readonly own: readonly string[];
}

/** The text of a profile, or everything that Seatbelt could not keep of the sandbox, in words for people. */
export type SeatbeltProfile =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly missing: readonly string[] };

/** What no profile limits, in words for people. */
export const NOT_LIMITED =
  "memory, processors, processes and the disk are not limited (one file is), no system calls are filtered, and a process that leaves its group outlives the command";

/** Programs and libraries of macOS, of its command line tools and of Homebrew. */
const SYSTEM = [
  "/bin",
  "/sbin",
  "/usr",
  "/opt/homebrew",
  "/System/Library",
  "/System/Cryptexes",
  "/System/Volumes/Preboot/Cryptexes",
  "/Library/Apple",
  "/Library/Developer/CommandLineTools",
];
/** What they read beside themselves: the loader, time zones, which shell `sh` is, and which tools are chosen. */
const SYSTEM_DATA = ["/private/var/db/dyld", "/private/var/db/timezone", "/private/var/select"];
const SYSTEM_FILES = ["/private/etc/localtime", "/private/var/db/xcode_select_link"];
/** Links of macOS at the root, which only need to be followed. */
const LINKS = ["/etc", "/tmp", "/var"];
const READ_DEVICES = ["/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/** Never a mount, nor in one, nor around one: what is here belongs to the system or says what the user may. */
const REFUSED = [
  ...["/System", "/Library", "/bin", "/sbin", "/dev", "/cores", "/private/etc", "/private/var/db", "/private/var/root"],
  ...["bin", "lib", "libexec", "sbin", "share"].map((name) => `/usr/${name}`),
];

/** About the machine, and nothing about other processes: `kern.proc` and `kern.procargs2` list them with their arguments. */
const SYSCTLS = [
  ..."activecpu byteorder cachelinesize cpufamily cpusubtype cputype logicalcpu logicalcpu_max machine memsize ncpu"
    .split(" ")
    .concat("nperflevels packages pagesize pagesize_compat physicalcpu physicalcpu_max tbfrequency".split(" "))
    .map((name) => `hw.${name}`),
  ..."argmax bootargs maxfilesperproc osproductversion osrelease ostype osversion secure_kernel usrstack64 version"
    .split(" ")
    .map((name) => `kern.${name}`),
];

/**
 * The profile of macOS's `sandbox-exec` that allows a command what the sandbox does. Pure. Seatbelt has no mounts: the command sees the paths of the
 * host. Of the rules that fit an operation the last one counts, so mounts come in the order of their depth. Only `literal` and `subpath` are used, since
 * rules with other filters do not keep that order.
 */
export function seatbeltProfile(sandbox: Sandbox, places: SeatbeltPlaces): SeatbeltProfile {
  const missing = notForSeatbelt(sandbox, places);
  if (missing.length > 0) return { ok: false, missing };
  const { temporary } = places;
  const mounts = sandbox.mounts.toSorted((a, b) => comparePaths(a.host, b.host));
  const roots = [...mounts.map(({ host }) => host), temporary];
  const above = [...new Set(roots.flatMap(ancestors))].toSorted(comparePaths);
  const pinned = [...new Set([...roots, ...above])].toSorted(comparePaths);
  const runs = "process-exec* file-map-executable";
  const lines = [
    "(version 1)",
    "(deny default)",
    "; The default does not cover these on every version.",
    "(deny file-map-executable iokit-get-properties nvram* process-info*)",
    "; Its own processes, and nothing about others.",
    "(allow process-fork)",
    "(allow process-info* signal (target same-sandbox))",
    rule("allow", "sysctl-read", SYSCTLS.map(named("sysctl-name"))),
    "; The name of its user.",
    rule("allow", "mach-lookup", [named("global-name")("com.apple.system.opendirectoryd.libinfo")]),
    "; The system.",
    rule("allow", "file-read-data", [literal("/")]),
    rule("allow", "file-read-metadata", [...new Set([...LINKS, ...above])].toSorted(comparePaths).map(literal)),
    rule("allow", "file-read*", [...SYSTEM, ...SYSTEM_DATA].map(subpath)),
    rule("allow", "file-read*", [...SYSTEM_FILES, ...READ_DEVICES].map(literal)),
    rule("allow", "file-write-data", [literal("/dev/null")]),
    rule("allow", runs, SYSTEM.map(subpath)),
    "; Its home and its temporary files.",
    ...at(temporary, [
      ["allow", "file-read* file-write*"],
      ...(sandbox.policy.hardening.tmpExec ? [["allow", runs] as const] : []),
    ]),
    ...mounts.flatMap((mount) => [`; ${mount.mode}`, ...at(mount.host, rulesOf(mount, runs))]),
    "; No place of a rule becomes another directory: a path says what is allowed, and not the file.",
    rule("deny", "file-write-create file-write-unlink", pinned.map(literal)),
    "; A second name of a file would be a way around the rules of the first; and no file gives rights.",
    rule("deny", "file-link file-write-setugid", [subpath("/")]),
  ];
  return { ok: true, text: `${lines.join("\n")}\n` };
}

type Effect = "allow" | "deny";

/** What Seatbelt does not keep of the sandbox. Limits are apart: who asks for them is not known here. */
function notForSeatbelt({ policy, mounts, withheld = [], ...sandbox }: Sandbox, { temporary, own }: SeatbeltPlaces) {
  const { driver, runtime } = policy.hardening;
  const reasons = [
    [
      driver !== "seatbelt",
      `the policy ${policy.name} does not allow it: ${NOT_LIMITED}. A policy with \`driver: { value: seatbelt, why: … }\` takes that, such as \`seatbelt\` (\`--policy seatbelt\`)`,
    ],
    [runtime !== undefined, "the policy has a container runtime, and there is no container"],
    [sandbox.network !== false || sandbox.commandNetwork !== undefined, "a command here has no network"],
    [sandbox.secrets !== undefined, "a secret would be a file on the disk"],
    [sandbox.writableRoot === true, "the root file system is that of this machine"],
    [withheld.length > 0, "a person has to agree before some of its files are shown"],
  ] as const;
  return [
    ...reasons.flatMap(([is, reason]) => (is ? [reason] : [])),
    ...mounts.flatMap((mount) => mountFaults(mount, policy).map((fault) => `${mount.path}: ${fault}`)),
    ...mounts.flatMap((mount) =>
      placeFaults(mount, mounts, [...own, temporary]).map((fault) => `${mount.path}: ${fault}`),
    ),
    ...[temporary, ...own].flatMap((path) => pathFault(path) ?? []).map((fault) => `Corral's own directory ${fault}`),
  ];
}

/** What only a view has: see `deliveryOf`. */
function mountFaults(mount: Mount, policy: Sandbox["policy"]): string[] {
  const { suffixes, maxFileBytes, mode, stage, discard, approval } = mount;
  const changes = [consentOf(approval, "write"), consentOf(approval, "delete")];
  const isWritten = mode === "rw" && changes.includes("pre_approved");
  const reasons = [
    [suffixes !== undefined || maxFileBytes !== undefined, "files of some suffixes or sizes alone cannot be allowed"],
    [
      mode === "rw" && (stage === true || discard === true || changes.includes("ask")),
      "changes cannot be kept apart until a person agrees",
    ],
    [
      isWritten && isHostExecutedRoot(mount) && asksForHostExecuted({ policy }),
      "programs of this machine execute what is written there",
    ],
  ] as const;
  return reasons.flatMap(([is, reason]) => (is ? [reason] : []));
}

/** Virtual paths and those of the host have to be nested alike, or a rule for one mount would also be about another. */
function placeFaults(mount: Mount, mounts: readonly Mount[], own: readonly string[]): string[] {
  const fault = pathFault(mount.host);
  if (fault !== null) return [fault];
  const place = [...REFUSED, ...own].find((path) => holds(path, mount.host) || holds(mount.host, path));
  if (place !== undefined)
    return [`it is, holds or lies in ${own.includes(place) ? "a directory of Corral's own" : "one of the system"}`];
  const isElsewhere = (other: Mount): boolean =>
    below(other.path, mount.path) !== below(other.host as VirtualPath, mount.host as VirtualPath);
  return mounts.some(isElsewhere) ? ["on this machine it lies in another mount, or not where it is shown"] : [];
}

/** Null for an absolute, plain path that a profile can name. */
function pathFault(host: string): string | null {
  if (!host.startsWith("/") || normalize(host) !== host || (host.endsWith("/") && host !== "/"))
    return "its path is not absolute and plain";
  if (!host.isWellFormed() || host.includes("\ufffd")) return "its path is not UTF-8";
  if (/\p{Cc}/u.test(host)) return "its path has control characters";
  return Buffer.byteLength(host) > MAX_PATH_BYTES ? "its path is too long" : null;
}

/** Those of a mount inside of another say everything again. Moving away is deleting, and making is writing. */
function rulesOf({ mode, approval }: Mount, runs: string): (readonly [Effect, string])[] {
  const change = (operation: "write" | "delete"): Effect =>
    mode === "rw" && consentOf(approval, operation) === "pre_approved" ? "allow" : "deny";
  const [write, remove] = [change("write"), change("delete")];
  return [
    ["allow", `file-read* ${runs}`],
    [write, "file-write*"],
    ...(remove === write ? [] : [[remove, "file-write-unlink"] as const]),
  ];
}

/** A directory with all that is in it, or a single file, which `subpath` may not fit. */
function at(path: string, rules: readonly (readonly [Effect, string])[]): string[] {
  return rules.map(([effect, operations]) => rule(effect, operations, [literal(path), subpath(path)]));
}

function rule(effect: Effect, operations: string, filters: readonly string[]): string {
  const [only = ""] = filters;
  return `(${effect} ${operations}${filters.length === 1 ? ` ${only}` : filters.map((each) => `\n  ${each}`).join("")})`;
}

const literal = named("literal");
const subpath = named("subpath");

/** A filter by a text. In a text of the language, a quote and a backslash follow a backslash. */
function named(filter: string): (text: string) => string {
  return (text) => `(${filter} "${text.replaceAll(/["\\]/g, "\\$&")}")`;
}

/** `/` too; nothing of `/` itself. */
function ancestors(path: string): string[] {
  return path === "/" ? [] : [dirname(path), ...ancestors(dirname(path))];
}
