/** The settings of a `pip.conf` that count for an installation: of `[global]`, and those of `[install]`, which go first. */
export function parsePipConf(text: string): ReadonlyMap<string, string> {
  const sections = { global: new Map<string, string>(), install: new Map<string, string>() };
  let section: Map<string, string> | null = null;
  let key: string | null = null;
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*([#;].*)?$/.test(line)) continue;
    const header = /^\[([^\]]*)\]\s*$/.exec(line);
    const setting = /^([^\s=:][^=:]*?)\s*[=:]\s*(.*?)\s*$/.exec(line);
    if (header !== null) {
      section = header[1] === "global" || header[1] === "install" ? sections[header[1]] : null;
      key = null;
    } else if (/^\s/.test(line) && key !== null) {
      // A value may continue in further lines.
      section?.set(key, `${section.get(key) ?? ""} ${line.trim()}`.trim());
    } else if (setting !== null) {
      key = (setting[1] ?? "").toLowerCase().replaceAll("_", "-");
      section?.set(key, setting[2] ?? "");
    }
  }
  return new Map([...sections.global, ...sections.install]);
}
