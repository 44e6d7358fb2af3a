import { mavenOrder } from '../../base/versions/maven-version.ts'
import { pep440Order } from '../../base/versions/pep440-version.ts'
import { npmBuildOrder } from '../../base/versions/semantic-version.ts'
import type { VersionOrder } from '../../base/versions/version-order.ts'
import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'

/** An ecosystem whose artifacts are imported. */
export type KnownEcosystem = Exclude<(typeof Ecosystem)[keyof typeof Ecosystem], typeof Ecosystem.UNSPECIFIED>

/** The order of each ecosystem (docs/spec/libraries.md#version-order). */
export const versionOrders: Readonly<Record<KnownEcosystem, VersionOrder>> = {
  [Ecosystem.JAVA]: mavenOrder,
  [Ecosystem.PYTHON]: pep440Order,
  [Ecosystem.NPM]: npmBuildOrder,
}
