import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ApiError, ServiceClient } from "../../../../client/client.ts";
import type { AnswerOf, AskOf } from "../../../../operations/contract/table.ts";
import { useApp } from "../../app/resource.ts";

type FleetItem = AnswerOf<"fleets.items">["items"][number];

const PAGE = 200;
/** Pages that are kept: those farthest from what is in sight are forgotten. */
const MAX_PAGES = 60;
const EVERY_MS = 2500;

/** Which items are shown. Empty: all. */
export interface Filter {
  readonly search: string;
  /** `failures`, a state or a status. */
  readonly show: string;
  /** Failed as the item with this key did. */
  readonly alike: string;
}

export interface Items {
  /** Rows of the list: all items, or those that were found until now. */
  readonly count: number;
  /** Null until the first answer. Whether more will be found. */
  readonly isWhole: boolean | null;
  readonly error: ApiError | null;
  readonly at: (row: number) => FleetItem | undefined;
  readonly see: (from: number, to: number) => void;
}

/** Items in pages, as they come into sight. While the fleet runs (`isLive`), what is in sight is asked for again. */
export function useItems(
  fleet: string,
  filter: Filter,
  { total, isLive }: { readonly total: number; readonly isLive: boolean },
): Items {
  const { client } = useApp();
  const [, draw] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const asked = askedBy(filter);
  const query = queryText(asked);
  const book = useRef<Book | null>(null);
  if (book.current === null || book.current.query !== query || book.current.fleet !== fleet) {
    book.current?.close();
    book.current = new Book(client, fleet, asked);
  }
  const current = book.current;
  const load = useCallback(
    async (isAgain: boolean): Promise<void> => {
      const isChanged = await current.load(isAgain).catch((fault: unknown) => {
        if (!current.isClosed) setError(fault as ApiError);
        return false;
      });
      if (isChanged && !current.isClosed) {
        setError(null);
        draw((count) => count + 1);
      }
    },
    [current],
  );
  useEffect(() => {
    const since = performance.now();
    // Seen in the browser's own tools, and by the test of a large fleet.
    void load(false).then(() => afterDrawing(() => performance.measure("items shown", { start: since })));
    return () => current.close();
  }, [current, load]);
  useEffect(() => {
    if (!isLive) return;
    const timer = setInterval(() => {
      if (!document.hidden) void load(true);
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [isLive, load]);
  const see = useCallback(
    (from: number, to: number) => {
      if (current.see(from, to)) void load(false);
    },
    [current, load],
  );
  const isAll = query === "";
  return {
    count: isAll ? total : current.found,
    isWhole: current.pages.size === 0 ? null : isAll || current.isWhole,
    error,
    at: (row) => current.pages.get(Math.floor(row / PAGE))?.[row % PAGE],
    see,
  };
}

/** The pages of one list. Without a filter, the place of an item is its index; with one, each page says where the next begins. */
class Book {
  readonly query: string;
  readonly fleet: string;
  readonly pages = new Map<number, readonly FleetItem[]>();
  readonly #client: ServiceClient;
  readonly #filter: ItemQuery;
  readonly #over = new AbortController();
  /** Where each page begins. */
  readonly #cursors = [0];
  #sight = { from: 0, to: 0 };
  #loading: Promise<boolean> | null = null;
  #end: number | null = null;

  constructor(client: ServiceClient, fleet: string, filter: ItemQuery) {
    this.#client = client;
    this.fleet = fleet;
    this.#filter = filter;
    this.query = queryText(filter);
  }

  get isClosed(): boolean {
    return this.#over.signal.aborted;
  }

  get isWhole(): boolean {
    return this.#end !== null;
  }

  /** How many were found until now. */
  get found(): number {
    return this.#end ?? (this.#cursors.length - 1) * PAGE;
  }

  close(): void {
    this.#over.abort();
  }

  /** Whether something in sight has not been asked for. */
  see(from: number, to: number): boolean {
    this.#sight = { from: Math.floor(from / PAGE), to: Math.floor(Math.max(from, to) / PAGE) };
    return this.#wanted(false).length > 0;
  }

  /** What is in sight and missing, or all of it again. Answers whether there was anything, also if it was loaded already. */
  load(isAgain: boolean): Promise<boolean> {
    this.#loading ??= this.#load(isAgain).finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #load(isAgain: boolean): Promise<boolean> {
    let wanted = this.#wanted(isAgain);
    const isChanged = wanted.length > 0;
    // What came into sight meanwhile is loaded as well.
    while (wanted.length > 0 && !this.isClosed) {
      for (const page of wanted) await this.#loadPage(page);
      wanted = this.#wanted(false);
    }
    return isChanged;
  }

  #wanted(isAgain: boolean): number[] {
    const { from, to } = this.#sight;
    const last = this.query === "" ? to : Math.min(to, this.#cursors.length - 1);
    const pages = Array.from({ length: Math.max(0, last - from + 1) }, (_, index) => from + index);
    const isPast = (page: number): boolean => this.#end !== null && page * PAGE >= Math.max(1, this.#end);
    return pages.filter((page) => !isPast(page) && (isAgain || !this.pages.has(page)));
  }

  async #loadPage(page: number): Promise<void> {
    const cursor = this.query === "" ? page * PAGE : (this.#cursors[page] ?? 0);
    const ask = { fleet: this.fleet, limit: PAGE, cursor, ...this.#filter };
    const { items, next } = await this.#client.call("fleets.items", ask, { signal: this.#over.signal });
    this.pages.set(page, items);
    if (next !== null) {
      this.#cursors[page + 1] = next;
      if (this.#end !== null && this.#end <= (page + 1) * PAGE) this.#end = null;
    } else if (this.query !== "") this.#end = page * PAGE + items.length;
    if (this.pages.size > MAX_PAGES) this.#forget(page);
  }

  #forget(near: number): void {
    const farthest = [...this.pages.keys()].toSorted((a, b) => Math.abs(b - near) - Math.abs(a - near))[0];
    if (farthest !== undefined) this.pages.delete(farthest);
  }
}

/** After the frame that has what was drawn last. */
function afterDrawing(act: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(act));
}

type ItemQuery = Omit<AskOf<"fleets.items">, "fleet" | "limit" | "cursor">;

function askedBy({ search, show, alike }: Filter): ItemQuery {
  const found = search === "" ? {} : { search };
  if (alike !== "") return { ...found, alike };
  if (show === "failures") return { ...found, failed: true };
  if (show === "queued" || show === "running") return { ...found, state: show };
  // Of items that ended so, and not of those that wait to be run again: they are what is counted, and have an index.
  return show === "" ? found : { ...found, state: "done", status: show };
}

/** Empty: all items are asked for. */
function queryText(asked: ItemQuery): string {
  return Object.keys(asked).length === 0 ? "" : JSON.stringify(asked);
}
