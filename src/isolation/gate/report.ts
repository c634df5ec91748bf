/** What a cell says of itself before its worker runs. Written by Corral's own binary, with no code of the image's run yet. */
export interface GateReport {
  readonly mounts: readonly ReportedMount[];
  /** Fields of /proc/self/status, by name. */
  readonly status: ReadonlyMap<string, string>;
  /** Limits of /proc/self/limits, by the kernel's names; both where the soft one, which a process may raise, is another. */
  readonly limits: ReadonlyMap<string, string>;
  readonly interfaces: readonly string[];
  /** Control group files that could be read, by their name below /sys/fs/cgroup. */
  readonly cgroup: ReadonlyMap<string, string>;
  /** `device:inode` of each mount point. */
  readonly identities: ReadonlyMap<string, string>;
  /** The program that the worker's command names, absolute in the cell; empty where the image has none. */
  readonly command: string;
}

export interface ReportedMount {
  readonly path: string;
  readonly readOnly: boolean;
  readonly type: string;
  readonly options: readonly string[];
  /** Options of the file system itself, such as a tmpfs's size. */
  readonly superOptions: readonly string[];
}

export const END_OF_REPORT = "\n== end\n";
/** A report is some thirty lines of mounts; one that grows beyond this is not ours. */
export const MAX_REPORT_BYTES = 1_000_000;

/** Reads a complete report (up to and with {@link END_OF_REPORT}). A section that is missing is empty, which no check accepts. */
export function parseGateReport(text: string): GateReport {
  const sections = new Map<string, string[]>();
  let lines: string[] = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("== ")) {
      lines = [];
      sections.set(line.slice(3), lines);
    } else if (line !== "") lines.push(line);
  }
  const section = (name: string): readonly string[] => sections.get(name) ?? [];
  return {
    mounts: section("mountinfo").map(parseMount),
    status: new Map(section("status").map((line) => splitAt(line, ":"))),
    limits: new Map(section("limits").slice(1).map(parseLimit)),
    interfaces: section("interfaces")
      .slice(2)
      .map((line) => splitAt(line, ":")[0]),
    cgroup: new Map(section("cgroup").map((line) => splitAt(line, " "))),
    identities: new Map(
      section("identities")
        .map((line) => splitAt(line, " "))
        .map(([id, path]) => [path, id]),
    ),
    command: section("command")[0] ?? "",
  };
}

/** `36 35 98:0 /root /mount/point ro,noatime master:1 - ext4 /dev/vda rw` (proc(5)). */
function parseMount(line: string): ReportedMount {
  const [before = "", after = ""] = line.split(" - ");
  const fields = before.split(" ");
  const options = (fields[5] ?? "").split(",");
  return {
    path: unescapeOctal(fields[4] ?? ""),
    readOnly: options.includes("ro"),
    type: after.split(" ")[0] ?? "",
    options,
    superOptions: (after.split(" ")[2] ?? "").split(","),
  };
}

/** `Max open files            1024                 1024                 files`: name, soft limit, hard limit. */
function parseLimit(line: string): [string, string] {
  const [name = "", soft = "", hard = ""] = line.split(/\s{2,}/);
  return [name, soft === hard ? soft : `${soft}, at most ${hard}`];
}

function splitAt(line: string, separator: string): [string, string] {
  const at = line.indexOf(separator);
  return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

function unescapeOctal(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
