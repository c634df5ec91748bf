import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { Declaration } from "./declaration.ts";
import { placeName, type Scenario } from "./sandboxes.ts";

/** What is tried of one scenario: texts as a worker writes them, for places that are there and for others. */
export function textsFor(scenario: Scenario, { directories }: Declaration, sandbox: Sandbox): string[] {
  const base = scenario.form === "root" && scenario.rootAt === "." ? "/area" : "";
  const found = scenario.parts.flatMap(({ entries, places }, index) =>
    entries.map(({ place, dir, name }) => {
      const top = placeName(places[place % places.length]?.name ?? "", index);
      return [base, top, ...(dir === "" ? [] : [dir]), name].join("/");
    }),
  );
  const texts = [
    ...directories.flatMap((path) => [path, `${path}/a.md`, `${path}/new.md`, `${path}/new/deep.md`]),
    ...found.flatMap((path) => [path, `${path}/a.md`, `${path}/new.md`]),
    ...sandbox.mounts.flatMap(({ path }) => [path, `${path}-evil/a.md`, `${path}s`, `${path}/`, path.toUpperCase()]),
    ...["/", ".", "/nowhere", "/nowhere/a.md", "/area", "/note", "/note/a.md", "/inner/a.md", "/corral.yaml"],
    ...["/workers", "/workers/probed.worker", "/workers/new.worker", "/note.md", "/project/data/a.md"],
    ...["/etc/passwd", "/etc/new", "/tmp", "/tmp/new", "/proc/self/environ", "/outside.txt"],
    ...["data:a.md", "data/a.md", "./data//sub/./a.md", "/data/../data-evil/a.md", "/data/sub/../../datas/a.md"],
    ...["/data/%2e%2e/outside.txt", "..", "/../etc/passwd", "~", "~/a.md", "C:/a.md", `/data/${"n".repeat(256)}`],
  ];
  return [...new Set(texts)];
}
