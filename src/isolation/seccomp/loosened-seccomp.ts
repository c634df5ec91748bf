interface Rule {
  readonly names: readonly string[];
  readonly action: string;
}

/** A seccomp profile like `profile`, under which programs may watch files (`file_watches` of a policy). */
export function watchingSeccomp(profile: string): string {
  return allowing(profile, "inotify_init1");
}

/** The same, under which programs may make files in memory that can be executed (`tmp_exec` of a policy). */
export function executingSeccomp(profile: string): string {
  return allowing(profile, "memfd_create");
}

/** The rules of a system call become one that allows it, and what is beside it in them. */
function allowing(profile: string, name: string): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly Rule[] };
  const own = parsed.syscalls.find(({ names }) => names.includes(name));
  if (own === undefined) throw new Error(`the seccomp profile has no rule of ${name}`);
  const others = parsed.syscalls.filter(({ names }) => !names.includes(name));
  return JSON.stringify({ ...parsed, syscalls: [...others, { names: own.names, action: "SCMP_ACT_ALLOW" }] });
}
