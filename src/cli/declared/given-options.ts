import type { ApprovalMode } from "../../sandbox/approval.ts";

/** The options that say what a command gets without a project. */
export interface ImpliedOptions {
  readonly image?: string;
  readonly ro?: readonly string[];
  readonly rw?: readonly string[];
  readonly allow?: readonly string[];
  readonly packages?: readonly string[];
  readonly policy?: string;
  readonly approve?: ApprovalMode;
  readonly apply?: boolean;
  readonly save?: string;
}

/** Those of its options that a worker of a project does not take, as they are typed. */
export function impliedOptionsIn(options: ImpliedOptions): string[] {
  const { ro = [], rw = [], allow = [], packages = [] } = options;
  const given = {
    "--image": options.image !== undefined,
    "--ro": ro.length > 0,
    "--rw": rw.length > 0,
    "--allow": allow.length > 0,
    "--packages": packages.length > 0,
    "--apply": options.apply === true,
    "--save": options.save !== undefined,
  };
  return Object.entries(given).flatMap(([option, isGiven]) => (isGiven ? [option] : []));
}
