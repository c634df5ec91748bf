import type { BlobStore } from "../../blobs/blob.ts";
import type { MachineNeeds } from "../../declarations/fleet-yaml.ts";
import type { ItemRequest, ItemResult } from "./item.ts";
import type { ClaimedItem, NewAttempt, Settlement, Taken } from "./queue.ts";

/** A question of a run of an attempt: its number among those of the attempt, from 0. */
export interface QuestionName {
  readonly fleet: string;
  readonly index: number;
  readonly attempt: number;
  readonly number: number;
}

/** The most questions of one attempt. */
export const MAX_QUESTIONS = 500;
/** Of one question, as JSON in UTF-8. The store refuses more. */
export const MAX_QUESTION_BYTES = 256 * 1024;

/** What one machine asks a coordinator at once, and the bytes of that; a larger question alone. The others wait in the store. */
export const MAX_ASKED_BY_MACHINE = 100;
export const MAX_ASKED_BYTES_BY_MACHINE = 4 * 1024 ** 2;

/** A question that is not read yet. */
export interface UnreadQuestion extends QuestionName {
  /** Of its text and of the request of its item, as JSON in UTF-8. */
  readonly bytes: number;
}

/** A question that waits for the coordinator of its fleet. `json` is the machine's word. */
export interface AskedElsewhere extends QuestionName {
  readonly request: ItemRequest;
  /** The root run of the attempt. */
  readonly run: string;
  /** The name of the machine. */
  readonly machine: string;
  readonly json: string;
}

/** What a coordinator answered to a question. */
export interface Answered extends QuestionName {
  readonly json: string;
}

/** Between a machine and the coordinators of what it runs. Every call that changes something counts only for an attempt of this machine. */
export interface AsksCoordinators {
  /** Asks. `fenced`: the attempt no longer counts, or it has asked too much. */
  ask(
    question: QuestionName,
    json: string,
  ): Promise<{ readonly ok: true } | { readonly ok: false; readonly reason: string }>;
  /** No run waits for the answer any more. */
  unask(question: QuestionName): Promise<void>;
  /** The answers that it has not taken by {@link unask} yet. */
  answers(): Promise<readonly Answered[]>;
}

/**
 * How processes on many machines share the items of fleets. A _coordinator_ owns a fleet: it has the project, decides and
 * applies. A _machine_ runs items of fleets that others own, and delivers what its attempts brought. Only a store that machines
 * can reach has it. All times are the store's own: no clock of a machine counts.
 */
export interface WorkStore {
  /** Where content goes between machines that share no directory. */
  blobs(): Promise<BlobStore>;
  /** The blobs that fleets of all projects refer to: lists of directories and of changes, and files. What lists have is not said here. */
  referred(): Promise<Referred>;
  /** Replaces requests of failed items of a fleet that this process owns, before they are retried. */
  replace(fleet: string, requests: AsyncIterable<ItemRequest>): Promise<void>;

  /** Registers this process as a machine. Its lease is renewed until the membership is disposed. */
  join(machine: NewMachine): Promise<Membership>;
  /** The machines whose leases have not ended, in the order of their names. */
  machines(): Promise<MemberMachine[]>;
  /** The machines that run items of this fleet now, by name, those that run most first; at most {@link MAX_RUNNERS}. */
  runners(fleet: string): Promise<readonly Runner[]>;

  /**
   * From now on machines may take items of this fleet, which this process owns, if they agree with it. Its spec has `machines`.
   * It may be called again, with another agreement. False if this process does not own the fleet.
   */
  offer(fleet: string, agreement: Agreement): Promise<boolean>;
  /**
   * From now on machines claim no item of this fleet, which this process owns: it starts no further one. What waits on a machine is given
   * back, and running items continue. It ends when the fleet is offered again.
   */
  drain(fleet: string): Promise<void>;
  /** Items of this fleet, which this process owns, that wait for their first attempt, in order, after that with the index `after`. */
  waiting(fleet: string, page: { readonly after: number; readonly limit: number }): Promise<readonly ItemRequest[]>;
  /**
   * Ends items of this fleet, which this process owns, without an attempt: their results are those of earlier ones. One that is not waiting
   * for its first attempt any more stays as it is. Returns the indexes of the others.
   */
  settleWaiting(fleet: string, results: readonly ItemResult[]): Promise<readonly number[]>;
  /**
   * Deliveries of machines for this fleet that have no recorded result yet, the oldest first. Each is returned again until its attempt
   * is begun, settled or queued again by {@link FleetQueue}.
   */
  deliveries(fleet: string, limit: number): Promise<readonly Delivered[]>;
  /**
   * Questions of this fleet's runs on machines that have no answer yet, the oldest first, of each machine at most
   * {@link MAX_ASKED_BY_MACHINE} and {@link MAX_ASKED_BYTES_BY_MACHINE}. Only of a fleet that this process owns.
   */
  questions(fleet: string, limit: number): Promise<readonly UnreadQuestion[]>;
  /** Those of these questions that still wait, with their texts, in the same order. */
  readQuestions(fleet: string, names: readonly QuestionName[]): Promise<readonly AskedElsewhere[]>;
  /** Answers a question. False: its attempt no longer counts, no run waits for it, or it is answered already. */
  answer(question: QuestionName, json: string): Promise<boolean>;
  /**
   * Queues the items again whose machine's lease has ended, and those that a machine has had for longer than `longestMs`. Returns their
   * number. Only of a fleet that this process owns.
   */
  reclaim(fleet: string, longestMs: number): Promise<number>;

  /** Resolves if something may have changed, after `ms`, or when the signal is aborted. It never rejects. */
  wake(ms: number, signal: AbortSignal): Promise<void>;
}

export interface Referred {
  readonly trees: readonly string[];
  readonly changesets: readonly string[];
  /** Attachments of items that have not ended. */
  readonly files: readonly string[];
}

/** A process that joined the machines. Disposing gives its items back, and leaves. */
export interface Membership extends AsyncDisposable {
  /** Not to be shown: who knows it can speak for this machine. */
  readonly id: string;
  /**
   * Aborted if its lease could not be renewed for so long that others may soon take its items: everything that it runs must stop.
   * Nothing that it says counts any more.
   */
  readonly lost: AbortSignal;
  /** The running fleets whose labels this machine has, the most urgent first. */
  offers(): Promise<readonly Offer[]>;
  /** Says why this machine takes no items of a fleet; null: it takes some. For people. */
  refuses(fleet: string, why: string | null): Promise<void>;
  /**
   * Claims up to `count` items of these fleets, at most {@link MAX_CLAIM}: by priority, then of the fleet that runs fewest for its
   * weight, then of the oldest. Fleets whose labels it does not have give none. It holds no more than it runs at the same time, and four
   * more. `newAttempt` only names what is asked for, in case that the answer is lost: the ids of the runs are the store's. An item whose
   * request cannot be read is not returned, and is queued again later.
   */
  claim(fleets: readonly string[], count: number, newAttempt: () => NewAttempt): Promise<readonly ClaimedWork[]>;
  /** Brings what an attempt made. All of its blobs must be stored before. */
  deliver(fleet: string, index: number, attempt: number, delivery: AttemptDelivery): Promise<Taken>;
  /** Gives up an attempt: the item can be claimed again, by any process, after `afterMs`. */
  giveBack(fleet: string, index: number, attempt: number, afterMs: number): Promise<Taken>;
  /** How its runs ask the coordinators. */
  readonly questions: AsksCoordinators;
  /** The attempts of this machine that should end, and why. */
  withdrawn(): Promise<readonly Withdrawn[]>;
}

export interface NewMachine {
  /** For people; need not be unique. */
  readonly name: string;
  readonly labels: readonly string[];
  /** Items that it runs at the same time. */
  readonly slots: number;
  /** Of Corral. */
  readonly version: string;
}

/** The most machines that {@link WorkStore.runners} lists by name. */
export const MAX_RUNNERS = 100;

/** How many items of a fleet the machines with this name run. */
export interface Runner {
  readonly name: string;
  readonly running: number;
}

export interface MemberMachine extends NewMachine {
  /** 12 hex digits that tell machines with the same name apart. They say nothing of {@link Membership.id}. */
  readonly id: string;
  /** ISO 8601, UTC. */
  readonly joinedAt: string;
  /** When its lease was last renewed. */
  readonly seenAt: string;
  /** Items that it runs now. */
  readonly running: number;
  /** Items that it delivered per second in the last minute; null if none. */
  readonly recentRate: number | null;
  /** Those of this project of which it runs items, or takes none. */
  readonly fleets: readonly MachineFleet[];
}

/** What a machine does for one fleet. */
export interface MachineFleet {
  readonly fleet: string;
  readonly running: number;
  /** Why it takes no items of it; null: it does. */
  readonly why: string | null;
}

/** What must be the same on a machine before it may run items of a fleet. */
export interface Agreement {
  /** SHA-256, in hexadecimal, of each fact that the declarations say of the fleet, by a name for people. */
  readonly declarations: Readonly<Record<string, string>>;
  /** The ids of images, by their names. */
  readonly images: Readonly<Record<string, string>>;
  /** The digests of the manifests of directories, by the virtual paths of their mounts. */
  readonly trees: Readonly<Record<string, string>>;
}

/** A fleet of which a machine may take items. */
export interface Offer extends MachineNeeds {
  readonly fleet: string;
  /** The key of the coordinator's project: SHA-256, in hexadecimal. */
  readonly project: string;
  /** As its coordinator wrote it, like the agreement: to be checked like any input. Undefined if it cannot be read. */
  readonly spec: unknown;
  readonly agreement: unknown;
  /** Whether items wait. */
  readonly hasMore: boolean;
}

export interface ClaimedWork extends ClaimedItem {
  readonly fleet: string;
}

/** What an attempt on a machine brought. */
export interface AttemptDelivery {
  /** As far as the machine knows it: its changes are not applied, and are no part of it. */
  readonly result: ItemResult;
  readonly streams: Settlement["streams"];
  /** The digest of the blob that lists its changes; null: it has none. */
  readonly changeset: string | null;
  /** What else the coordinator records of the run, as JSON of at most 64 KiB. */
  readonly more: unknown;
}

/** A delivery that its coordinator has to judge. Everything in it is a machine's word. */
export interface Delivered extends Omit<AttemptDelivery, "result"> {
  /** Undefined if the machine delivered no JSON, or JSON that is too large or nested too deep. */
  readonly result: unknown;
  readonly index: number;
  readonly key: string;
  readonly attempt: number;
  /** Attempts before the item was last retried in place. */
  readonly earlier: number;
  readonly run: string;
  /** The name of the machine. */
  readonly machine: string;
}

export interface Withdrawn {
  readonly fleet: string;
  readonly index: number;
  readonly attempt: number;
  /** `cancelled`: the fleet was; `fenced`: another attempt counts; `drained`: its coordinator starts no further item. */
  readonly why: "cancelled" | "fenced" | "drained";
}
