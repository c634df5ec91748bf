import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NetworkReport } from "../../../src/sandbox/network/judge.ts";
import type { AllowedNetwork } from "../../../src/sandbox/network/rule.ts";
import { openProject } from "../../run/project-fixture.ts";
import { type Attempt, attemptsJson, type Outcome, outcomesOf } from "./attempt.ts";
import { type Answers, countingResolver } from "./counting-resolver.ts";
import { CLIENT, environmentWith, runWith } from "./in-cell.ts";
import { openSites, type Sites } from "./sites.ts";

/** The hosts of the test, and the network of the cell that attacks them. */
export interface World {
  readonly network: AllowedNetwork;
  readonly answers: Answers;
  /** What every other name leads to. Absent: nothing. */
  readonly otherwise?: readonly string[];
  /** In PEM: who is trusted for hosts that are looked into. */
  readonly authority?: string;
  /** Values by name. */
  readonly secrets?: Readonly<Record<string, string>>;
}

export interface Attack {
  readonly title: string;
  readonly attempt: (canary: string) => Attempt;
  /** Absent: {@link refused}. */
  readonly check?: (tried: Tried) => void;
}

export interface Tried {
  readonly outcome: Outcome;
  /** A text of this attempt alone, to look for in what arrived. */
  readonly canary: string;
  /** All that this host of the test got, in the clear; without a name: any host. */
  readonly arrived: (site?: string) => string;
  /** The names that were looked up. */
  readonly asked: readonly string[];
  readonly report: NetworkReport;
}

interface Results extends Pick<Tried, "asked" | "report"> {
  readonly outcomes: ReadonlyMap<string, Outcome>;
}

/** A test for each attack. All of them are tried in one cell, at once. */
export function attacked(title: string, open: (sites: Sites) => Promise<World>, attacks: readonly Attack[]): void {
  describe(title, () => {
    let sites: Sites;
    let results: Results;

    beforeAll(async () => {
      sites = openSites();
      const attempts = attacks.map(({ attempt }, index) => [canaryOf(index), attempt(canaryOf(index))]);
      results = await triedInCell(await open(sites), Object.fromEntries(attempts));
    });
    afterAll(() => sites[Symbol.asyncDispose]());

    it.each(attacks.map((attack, index) => ({ ...attack, canary: canaryOf(index) })))("$title", (attack) => {
      const { canary, check = refused } = attack;
      const outcome = results.outcomes.get(canary);
      if (outcome === undefined) throw new Error("the client says nothing of this attempt");
      check({ ...results, outcome, canary, arrived: (site) => sites.arrived(site) });
    });
  });
}

/** Nothing arrived anywhere, and the client is told by an answer or by the end of its connection. */
export function refused({ outcome, canary, arrived }: Tried): void {
  expect(arrived()).not.toContain(canary);
  expect(outcome.end).not.toBe("open");
  expect(outcome.got).not.toMatch(/^HTTP\/1\.[01] [123]/);
}

/** It arrived, and an answer came back: so what is refused beside it is not refused because nothing works. */
export function allowed({ outcome, canary, arrived }: Tried): void {
  expect(arrived(), JSON.stringify(outcome)).toContain(canary);
  expect(outcome.got).toContain(canary);
}

/** This text did not arrive, whatever else did. */
export function absent(tried: Tried, text = tried.canary): void {
  expect(tried.arrived()).not.toContain(text);
  expect(tried.outcome.end).not.toBe("open");
}

/** Each is no part of another. */
const canaryOf = (index: number): string => `canary${index}z`;

async function triedInCell(world: World, attempts: Readonly<Record<string, Attempt>>): Promise<Results> {
  await using project = await openProject({
    workers: { client: { image: "corral/python", command: CLIENT } },
    policy: "default",
  });
  const resolver = countingResolver(world.answers, world.otherwise);
  const environment = environmentWith(project, { ...world, resolver });
  const result = await runWith(environment, "client", world.network, { attempts: attemptsJson(attempts) });
  expect(result, JSON.stringify(result.error ?? result.stderr)).toMatchObject({ status: "succeeded" });
  if (result.network === undefined) throw new Error("the run has no report of its network");
  expect(await project.traces()).toEqual([]);
  return { outcomes: outcomesOf(result.stdout), report: result.network, asked: resolver.asked };
}
