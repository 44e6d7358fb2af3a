import { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { versionOrders, type KnownEcosystem } from './version-orders.ts'

/** The first part of the uids of each ecosystem. */
export const prefixes: Readonly<Record<KnownEcosystem, string>> = {
  [Ecosystem.JAVA]: 'java:',
  [Ecosystem.PYTHON]: 'python:',
  [Ecosystem.NPM]: 'npm:',
}

/** All ecosystems, in the order of their uids. */
export const knownEcosystems = (Object.keys(prefixes).map(Number) as KnownEcosystem[]) // the keys of the table
  .sort((a, b) => (prefixes[a] < prefixes[b] ? -1 : 1))

/** Returns the ecosystem and name of an artifact; undefined for a text that is no uid of one. */
export function artifactOf(uid: string): { readonly ecosystem: KnownEcosystem; readonly name: string } | undefined {
  const ecosystem = knownEcosystems.find((known) => uid.startsWith(prefixes[known]))
  return ecosystem === undefined ? undefined : { ecosystem, name: uid.slice(prefixes[ecosystem].length) }
}

/** True for a number of the schema's enum that artifacts have. */
export function isKnownEcosystem(ecosystem: Ecosystem): ecosystem is KnownEcosystem {
  return ecosystem in versionOrders
}

/**
 * Returns a CUDA version as `12.1`, or `12` without a minor version. Reads also `12.1.0`, and the short form `cu121` or `121` of wheels. Returns other texts as
 * they are.
 */
export function cudaVersionOf(text: string): string {
  const digits = text.replace(/^cu(?:da)?-?/i, '')
  const [, major, minor] = /^(\d\d|[6-9])(\d)$/.exec(digits) ?? /^(\d{1,3})(?:\.(\d{1,3})(?:\.\d+)*)?$/.exec(digits) ?? []
  if (major === undefined) return text
  return minor === undefined ? major : `${major}.${minor}`
}

/** Returns the labels of a build: of PEP 440 the local version, of semver the build metadata. */
function buildLabels(version: string): readonly string[] {
  return (version.split('+', 2)[1] ?? '').split(/[._-]/)
}

/** Returns the CUDA versions that the build label of a Python version names, such as `12.1` for `2.1.0+cu121`. */
export function cudaVersionsIn(version: string): readonly string[] {
  return buildLabels(version)
    .filter((label) => /^cu(?:da)?\d{1,3}$/i.test(label))
    .map(cudaVersionOf)
}

/** True if a part of the version is `remediated` (docs/spec/libraries.md#remediated-versions), as in `1.2.3+remediated.1` or `1.2.3-remediated-1`. */
export function isRemediated(version: string): boolean {
  return /[.+_-]remediated(?:[._-]?\d+)?(?![a-z])/i.test(version)
}
