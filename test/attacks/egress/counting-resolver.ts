/** A resolver of the test: it knows the test's hosts, and counts what it is asked. */
export interface CountingResolver {
  readonly resolve: (host: string) => Promise<readonly string[]>;
  /** Every name that was asked for, in order. */
  readonly asked: readonly string[];
}

/** What names lead to. A function gets how often the name was asked for before. */
export type Answers = Readonly<Record<string, readonly string[] | ((time: number) => Promise<readonly string[]>)>>;

/** `otherwise`: for every other name; absent: there is none. */
export function countingResolver(answers: Answers, otherwise: readonly string[] = []): CountingResolver {
  const asked: string[] = [];
  return {
    asked,
    async resolve(host) {
      const time = asked.filter((name) => name === host).length;
      asked.push(host);
      const answer = Object.hasOwn(answers, host) ? answers[host] : undefined;
      if (typeof answer === "function") return await answer(time);
      if (answer === undefined && otherwise.length === 0) throw new Error(`no such name: ${host}`);
      return answer ?? otherwise;
    },
  };
}
