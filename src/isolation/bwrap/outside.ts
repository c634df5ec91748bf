import { type GateReport, parseGateReport } from "../gate/report.ts";
import { ownNamespaces } from "../gate/verify.ts";
import { kernelText } from "../kernel/control-group.ts";
import type { Plan, PlannedUser } from "../plan/plan.ts";
import type { CellGroup } from "./groups.ts";

/** What bubblewrap says of a cell: its first process as this machine sees it, and the numbers of its namespaces, as `pid-namespace`. */
export interface Reported {
  readonly pid: number;
  readonly namespaces: Readonly<Record<string, unknown>>;
}

/** What a process cannot gain back, as the kernel shows it of the first one. */
const LASTING = ["NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NAMESPACES = ["mnt", "pid", "net", "ipc", "uts"];

/**
 * What the kernel shows of the cell from outside, in place of what its gate has said of that; and where the two differ, or the cell is not what
 * only the outside can see: its user is `outer`, by another number, and its namespaces are its own.
 */
export function differences(
  { pid, namespaces }: Reported,
  { user }: Plan,
  report: GateReport,
  outer: PlannedUser,
  group: CellGroup | null,
): { readonly seen: GateReport; readonly missing: readonly string[] } {
  const sections = ["mountinfo", "status", "limits"].map((name) => [name, kernelText(`/proc/${pid}/${name}`)] as const);
  const outside = parseGateReport(
    sections.map(([name, text]) => `==> /proc/${pid}/${name} <==\n${text ?? ""}`).join("\n"),
  );
  const missing: string[] = [];
  const mustBe = (what: string, planned: string, found: string): void => {
    if (planned !== found) missing.push(`${what}: planned ${planned}, found ${found}`);
  };
  const me = String(outer.uid);
  mustBe("users", `${user.uid} ${me} 1`, wordsIn(`/proc/${pid}/uid_map`));
  mustBe("groups", `${user.gid} ${outer.gid} 1`, wordsIn(`/proc/${pid}/gid_map`));
  mustBe("user outside", [me, me, me, me].join(" "), outside.status.get("Uid")?.split(/\s+/).join(" ") ?? "unknown");
  mustBe("first process", "1", outside.status.get("NSpid")?.split(/\s+/).at(-1) ?? "unknown");
  for (const name of LASTING)
    mustBe(`${name} from outside`, report.status.get(name) ?? "", outside.status.get(name) ?? "unknown");
  if (JSON.stringify(outside.mounts) !== JSON.stringify(report.mounts))
    missing.push("mounts: those that the cell reports are not those that the kernel shows from outside");
  const own = ownNamespaces();
  for (const kind of NAMESPACES) {
    const number = namespaces[`${kind}-namespace`];
    if (typeof number !== "number" || own[kind] === `${kind}:[${number}]`)
      missing.push(`namespace ${kind}: planned its own, found ${number === undefined ? "unknown" : "the host's"}`);
  }
  mustBe("namespace net", String(namespaces["net-namespace"]), report.namespaces.get("/proc/self/ns/net") ?? "unknown");
  if (group !== null && !group.has(pid)) missing.push("control group: planned its own, found another");
  const cgroup = group?.limits() ?? report.cgroup;
  const status = new Map([...report.status, ...LASTING.map((name) => [name, outside.status.get(name) ?? ""] as const)]);
  return { seen: { ...report, mounts: outside.mounts, status, cgroup }, missing };
}

function wordsIn(file: string): string {
  return (kernelText(file) ?? "unknown").trim().split(/\s+/).join(" ");
}
