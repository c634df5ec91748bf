export type HidePaths = (text: string) => string;

/** The placeholder of a host folder in texts for clients. */
export interface NamedFolder {
  readonly path: string;
  readonly name: string;
}

/**
 * Replaces folders of the host that the service knows in messages of Corral: they name what failed, and a client has no use for where it
 * is. What workers print is left as it is.
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

/** The same in every text of a value, as it is in JSON, and in the names of its members. */
export function hiddenIn(value: unknown, hide: HidePaths): unknown {
  return JSON.parse(JSON.stringify(value), (_, one: unknown) => {
    if (typeof one === "string") return hide(one);
    if (typeof one !== "object" || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).map(([name, member]) => [hide(name), member]));
  });
}

/**
 * An absolute path of the host, or the URL of a socket there, up to the next part of the sentence: a path may have blanks, so with it
 * goes what is said about it. A name such as `corral/base` is none.
 */
const HOST_PATH = /(?<![\w.-])(?:[a-z]+:\/\/)?\/[^,;]*?(?=[,;]|: | \(|$)/g;

/** A message without any path of the host. `known`: one that may be in it, whatever characters it has. */
export function withoutHostPaths(message: string, known: string): string {
  return message.replaceAll(known, () => "/").replaceAll(HOST_PATH, "…");
}
