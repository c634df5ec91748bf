import fs from "node:fs";

/** What stands at a path of the host, itself or behind its links; null where nothing does, whatever the reason. */
export function lookAt(host: string, links: "itself" | "behind" = "itself"): fs.Stats | null {
  try {
    return links === "itself" ? fs.lstatSync(host) : fs.statSync(host);
  } catch {
    return null;
  }
}
