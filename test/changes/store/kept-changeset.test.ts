import { expect, it } from "vitest";
import { whyBusy } from "../../../src/changes/store/kept-folder.ts";

it("prints the command that removes a lock as a shell reads it", () => {
  expect(whyBusy("0123456789ab", "/home/me/my state/owner")).toMatch(/: rm '\/home\/me\/my state\/owner'$/);
});
