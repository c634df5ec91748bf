import { inject } from "vitest";

/** Whether `auto` makes cells of runc in this project of the tests. */
export const onRunc = (): boolean => inject("cellsBy") === "runc";
