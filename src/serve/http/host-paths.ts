export type HidePaths = (text: string) => string;

/** What stands for a folder of the host in texts for clients. */
export interface NamedFolder {
  readonly path: string;
  readonly name: string;
}

/**
 * Replaces folders of the host that the service knows in messages of Corral: they name what failed, and a client has no use for where it
 * is. What workers print is not looked at.
 */
export function hidingHostPaths(folders: readonly NamedFolder[]): HidePaths {
  const longestFirst = folders
    .filter(({ path }) => path.length > 1)
    .toSorted((a, b) => b.path.length - a.path.length)
    .map(
      ({ path, name }) =>
        [new RegExp(`(?<![\\w.-])${path.replaceAll(/[^\w/-]/g, "\\$&")}(?![\\w-])`, "g"), name] as const,
    );
  return (text) => longestFirst.reduce((shown, [pattern, name]) => shown.replaceAll(pattern, () => name), text);
}
