/** `asked`: it happens where a person agrees, and not where they do not. */
export type Verdict = "yes" | "asked" | "no";

/** One thing that a worker may try in a directory, in both ways. */
export interface Action {
  /** As the head of its column. */
  readonly name: string;
  byTool(dir: string): { readonly tool: string; readonly input: unknown };
  byShell(dir: string): string;
  /** True where its effect is what is read, and not what is on the host afterwards. */
  readonly reads: boolean;
  /** Whether it shows in what the directory holds afterwards. */
  hadEffect(contents: ReadonlyMap<string, string>): boolean;
}

function writes(name: string, file: string, content: string): Action {
  return {
    name,
    byTool: (dir) => ({ tool: "write_file", input: { path: `${dir}/${file}`, content } }),
    byShell: (dir) => `printf '%s' '${content}' > ${dir}/${file}`,
    reads: false,
    hadEffect: (contents) => contents.get(file) === content,
  };
}

function reads(name: string, file: string): Action {
  return {
    name,
    byTool: (dir) => ({ tool: "read_file", input: { path: `${dir}/${file}` } }),
    byShell: (dir) => `cat ${dir}/${file} > /dev/null`,
    reads: true,
    hadEffect: () => false,
  };
}

export const ACTIONS: readonly Action[] = [
  reads("read old.md", "old.md"),
  reads("read tool.exe", "tool.exe"),
  reads("read 20 bytes", "large.md"),
  writes("write new.md", "new.md", "new"),
  writes("change old.md", "old.md", "changed"),
  writes("write new.exe", "new.exe", "new"),
  writes("write 20 bytes", "big.md", "y".repeat(20)),
  {
    name: "delete gone.md",
    byTool: (dir) => ({ tool: "delete_file", input: { path: `${dir}/gone.md` } }),
    byShell: (dir) => `rm ${dir}/gone.md`,
    reads: false,
    hadEffect: (contents) => !contents.has("gone.md"),
  },
];
