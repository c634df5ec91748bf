interface Rule {
  readonly names: readonly string[];
  readonly action: string;
  readonly args?: readonly Argument[];
}

interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo: number;
  readonly op: string;
}

/** By system call, the arguments with which it is allowed: each list is a way. */
export type AllowedWays = Readonly<Record<string, readonly (readonly Argument[])[]>>;

/** An argument whose bits of `mask` are those of `value`. */
export const has = (index: number, mask: number, value: number): Argument => ({
  index,
  value: mask,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ",
});

/** The kernel reads 32 bits of such an argument, and ignores the bits above. */
export const is = (index: number, value: number): Argument => has(index, 0xffffffff, value);

/** A profile like `profile`, which allows these system calls in these ways alone, and no rule that `isLeftOut`. */
export function narrowedProfile(
  profile: string,
  ways: AllowedWays,
  isLeftOut: (rule: Rule) => boolean = () => false,
): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly Rule[] };
  const narrowed = parsed.syscalls.flatMap((rule): Rule[] => {
    if (rule.action !== "SCMP_ACT_ALLOW") return [rule];
    if (isLeftOut(rule)) return [];
    const others = rule.names.filter((name) => ways[name] === undefined);
    const own = rule.names.flatMap((name) =>
      (ways[name] ?? []).map((args): Rule => ({ ...rule, names: [name], args: [...(rule.args ?? []), ...args] })),
    );
    return others.length === 0 ? own : [{ ...rule, names: others }, ...own];
  });
  return JSON.stringify({ ...parsed, syscalls: narrowed });
}

/** True if the rule may allow this value of an argument. */
export function allows({ args = [] }: Rule, index: number, value: number): boolean {
  return args.every(
    (own) =>
      own.index !== index ||
      own.op !== "SCMP_CMP_MASKED_EQ" ||
      // BigInt: these are 64 bits.
      (BigInt(value) & BigInt(own.value)) === BigInt(own.valueTwo),
  );
}
