import type { Changesets } from "../../operations/changesets.ts";
import type { AppliedChange, AppliedChangeset, ForeseenChangeset } from "../../operations/foreseen-changes.ts";
import { RequestError } from "../../operations/request-error.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type AtService, say, type Terminal } from "../terminal/terminal.ts";
import { idMeant, known } from "./at-service.ts";
import { fleetMeant } from "./fleets.ts";

interface OnlyRules {
  readonly only: readonly VirtualPath[] | null;
  readonly digest?: string | undefined;
}

/** Changes that wait, of this machine or of a service. */
export interface ChangesOffer
  extends Pick<Changesets, "list" | "idsOf" | "show" | "foresee" | "digest" | "diff" | "diffs" | "apply" | "discard">,
    AsyncDisposable {
  /** Of a service: applies what its project approves without a person. Absent: `apply` knows it by whom it is to ask. */
  applyRuled?(id: string, what: OnlyRules): Promise<AppliedChangeset>;
}

export async function openChangesets(terminal: Terminal): Promise<ChangesOffer> {
  if (terminal.service !== undefined) return changesetsAt(terminal.service);
  const { Changesets: Local } = await import("../../operations/changesets.ts");
  return await Local.open(stateDirFrom(terminal.env), terminal.env, (text) => say(terminal, `corral: ${text}`));
}

/** Of one answer of a service. */
const MAX_LISTED = 1000;

function changesetsAt({ client, project }: AtService): ChangesOffer {
  const list: ChangesOffer["list"] = async (place) => {
    const which = place === null ? {} : present({ project });
    const { changesets } = await client.call("changesets.list", { ...which, limit: MAX_LISTED });
    return known(changesets.map((one) => ({ ok: true, ...one })));
  };
  const foresee = async (changeset: string): Promise<ForeseenChangeset> =>
    known(await client.call("changesets.review", { changeset }));
  const digestOf = async (changeset: string): Promise<string> =>
    (await client.call("changesets.show", { changeset })).digest;
  return {
    list,
    foresee,
    digest: digestOf,
    idsOf: async (asked) =>
      await Promise.all(
        asked.map((one) => {
          const newest = async () => known<Listed[]>(await list("")).toReversed();
          const about = ({ worker, createdAt }: Listed) => `${worker}, ${createdAt}`;
          return idMeant(one, "UNKNOWN_CHANGESET", "changeset", newest, about);
        }),
      ),
    show: async (changeset) => known(await client.call("changesets.show", { changeset })),
    diff: async (changeset) => (await client.call("changesets.show", { changeset })).diff,
    async diffs(id) {
      const { digest, parts, unfit, notShown } = await foresee(id);
      const fits = parts.map(({ indexes: [index = 0], ...part }) => ({
        change: { ...part, index },
        verdict: null,
        lines: part.lines,
      }));
      const others = unfit.map(({ outcome, reason, ...change }) => ({
        change,
        verdict: { outcome, reason },
        lines: [],
      }));
      return known({ digest, diffs: [...fits, ...others], notShown });
    },
    async apply(changeset, { only, which, digest, hostExecuted }) {
      const what = present({ only: only && [...only], which: which && [...which] });
      const agreed = { digest: digest ?? (await digestOf(changeset)), hostExecuted: [...(hostExecuted ?? [])] };
      return known(await client.call("changesets.apply", { changeset, ...what, ...agreed }));
    },
    async applyRuled(changeset, { only, digest }) {
      const seen = await foresee(changeset);
      if (digest !== undefined && digest !== seen.digest)
        throw new RequestError(
          "CHANGESET_CHANGED",
          changeset,
          "the changeset is not what was shown any more: look at it again",
        );
      const isMeant = ({ path }: { readonly path: VirtualPath }) =>
        only === null || only.some((at) => covers(at, path));
      const parts = seen.parts.filter(isMeant);
      const unfit = seen.unfit.filter(isMeant);
      if (only !== null && parts.length + unfit.length === 0) {
        const places = only.map((path) => printableLine(path)).join(", ");
        throw new RequestError("UNKNOWN_CHANGE", changeset, `no change waits at ${places}`);
      }
      const isApproved = ({ ruled, hostExecuted }: (typeof parts)[number]) =>
        ruled === null ? seen.mode === "approve_all" && hostExecuted === null : ruled.outcome === "approved";
      const which = parts.filter(isApproved).flatMap(({ indexes }) => indexes);
      const done =
        which.length === 0
          ? { changes: [], left: seen.waiting }
          : await client.call("changesets.apply", { changeset, digest: seen.digest, which });
      const withheld = parts
        .filter((part) => !isApproved(part))
        .flatMap(({ indexes, path, kind, type, ruled }) =>
          indexes.map((index) => ({ index, path, kind, type, ...withheldBy(ruled, seen.mode) })),
        );
      return {
        id: changeset,
        left: done.left,
        changes: [...known<AppliedChange[]>(done.changes), ...withheld, ...unfit],
      };
    },
    async discard(changeset, { digest } = {}) {
      await client.call("changesets.discard", { changeset, digest: digest ?? (await digestOf(changeset)) });
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

interface Listed {
  readonly id: string;
  readonly worker: string;
  readonly createdAt: string;
}

function withheldBy(
  ruled: ForeseenChangeset["parts"][number]["ruled"],
  mode: string,
): Pick<AppliedChange, "outcome" | "reason"> {
  if (ruled !== null) return { outcome: "denied", reason: ruled.reason };
  if (mode === "auto_deny") return { outcome: "denied", reason: "the approval mode is auto_deny" };
  return { outcome: "held", reason: `the approval mode is ${mode}, and no person was asked: use --yes, or a terminal` };
}

/** The changes that items of a fleet left. `asked`: its id, a beginning of it, or `latest`. */
export async function fleetChangesAt(service: AtService, asked: string) {
  const { client, project } = service;
  const fleet = await fleetMeant(service, asked);
  const { changesets } = await client.call("changesets.list", { ...present({ project }), limit: MAX_LISTED });
  return { fleet, changesets: changesets.filter((one) => one.fleet === fleet) };
}
