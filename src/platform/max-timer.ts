/** The longest delay of a timer in Node, about 24 days. A longer one would fire at once. Milliseconds. */
export const MAX_TIMER_MS = 2 ** 31 - 1;
