import type { ItemRequest } from "./item.ts";

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
