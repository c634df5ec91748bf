import { inject } from "vitest";

/** Whether cells are runc's in this project of the tests. */
export const onRunc = (): boolean => inject("cellsBy") === "runc";
