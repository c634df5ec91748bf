import { expect, it } from "vitest";
import { busy } from "../../../src/changes/store/kept-changeset.ts";

it("prints the command that removes a lock as a shell reads it", () => {
  expect(busy("0123456789ab", "/home/me/my state/owner").reason).toMatch(/: rm '\/home\/me\/my state\/owner'$/);
});
