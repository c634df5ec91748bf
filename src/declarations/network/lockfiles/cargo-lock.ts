import { isTable, parseToml, type TomlTable } from "../../toml/toml.ts";
import {
  digestOf,
  type LockedFile,
  type LockParse,
  LockReading,
  lineAt,
  MAX_LOCK_ENTRIES,
  refusedFile,
} from "./locked.ts";

/** The public registry: the addresses of its index and of its files. */
export interface CratesRegistry {
  readonly index: string;
  readonly crates: string;
}

/** How lock files name crates.io. */
const CRATES_IO = ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/** A `Cargo.lock` with a checksum for every crate, as cargo has written it since 2020. */
export function parseCargoLock(text: string, { index, crates }: CratesRegistry): LockParse {
  const parsed = parseToml(text);
  if (!parsed.ok) return refusedFile("is not a lock file of cargo", parsed.line);
  const { package: list = [] } = parsed.table;
  const packages = Array.isArray(list) ? list.filter((one): one is TomlTable => isTable(one)) : [];
  if (packages.length > MAX_LOCK_ENTRIES)
    return refusedFile(`has ${packages.length} entries; at most ${MAX_LOCK_ENTRIES} are taken`);
  const reading = new LockReading();
  const files: LockedFile[] = [];
  const paths = new Set(["/config.json"]);
  for (const { name, version, source, checksum } of packages) {
    // Without a source it is a crate of the project.
    if (source === undefined) continue;
    const fault = (message: string): void =>
      reading.fault(lineAt(text, text.indexOf(`name = "${name}"`)), String(name), message);
    if (typeof name !== "string" || !/^[A-Za-z0-9_-]{1,64}$/.test(name))
      reading.fault(1, "", "has a crate without a name");
    else if (typeof version !== "string" || !/^[0-9A-Za-z.+-]{1,100}$/.test(version)) fault("has no version");
    else if (typeof source !== "string" || !CRATES_IO.includes(source))
      fault("does not come from crates.io; no other place is reached for a lock file");
    else {
      const digest = typeof checksum === "string" ? digestOf("sha256", checksum, "hex") : null;
      if (digest === null) fault("has no checksum of sha256; `cargo update` writes it");
      else {
        paths.add(indexPath(name));
        // The index names the first of them; tools other than cargo use the second.
        for (const path of [`/crates/${name}/${version}/download`, `/crates/${name}/${name}-${version}.crate`])
          files.push({ registry: crates, path, digests: [digest] });
      }
    }
  }
  return reading.end({ files, indexes: [...paths].map((path) => ({ registry: index, path })) });
}

/** `/se/rd/serde`: the folders of a sparse index. */
function indexPath(raw: string): string {
  const name = raw.toLowerCase();
  if (name.length < 3) return `/${name.length}/${name}`;
  if (name.length === 3) return `/3/${name[0]}/${name}`;
  return `/${name.slice(0, 2)}/${name.slice(2, 4)}/${name}`;
}
