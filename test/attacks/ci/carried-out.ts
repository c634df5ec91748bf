/** What the runner carries out: it takes the lines of standard error first, and both streams for the same step. */
export function carriedOut({ stdout, stderr }: { readonly stdout: string; readonly stderr: string }): string[] {
  const done: string[] = [];
  let token: string | null = null;
  for (const line of [...stderr.split(/\r?\n|\r/), ...stdout.split(/\r?\n|\r/)]) {
    const [, name, data = ""] =
      /^\s*::([^\s:]+)(?: [^:]*)?::(.*)$/.exec(line) ?? /##\[([^\s\];]+)[^\]]*\](.*)/.exec(line) ?? [];
    if (name === undefined) continue;
    if (token !== null) {
      if (name.toLowerCase() === token) token = null;
    } else if (name === "stop-commands") token = data;
    else done.push(line);
  }
  return done;
}
