import { afterEach } from "vitest";

/** Closes what a test opened, the latest first. To be called once in a file. */
export function openedByTests(): <Opened extends AsyncDisposable>(opened: Opened | Promise<Opened>) => Promise<Opened> {
  const all: AsyncDisposable[] = [];
  afterEach(async () => {
    for (const each of all.splice(0).reverse()) await each[Symbol.asyncDispose]();
  });
  return async (opened) => {
    const each = await opened;
    all.push(each);
    return each;
  };
}
