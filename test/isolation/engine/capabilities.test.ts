import { expect, it } from "vitest";
import { holesOfRunc } from "../../../src/isolation/engine/capabilities.ts";

it.each(["1.1.5+ds1", "1.1.15+ds1", "1.2.7", "1.3.2", "1.4.0-rc.2"])("runc %s is known to have holes", (version) => {
  expect(holesOfRunc(version)).toEqual([expect.stringContaining(`runc ${version} has known holes (CVE-2025-31133`)]);
});

it.each(["1.2.8", "1.3.3", "1.3.6+ds1", "1.4.0-rc.3", "1.4.0", "1.5.1", "", "crun"])(
  "of runc %j none is known",
  (version) => {
    expect(holesOfRunc(version)).toEqual([]);
  },
);
