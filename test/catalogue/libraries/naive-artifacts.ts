import { timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import { fromBinary } from '@bufbuild/protobuf'
import { trustedUid } from '../../../src/base/uid.ts'
import type { ArtifactFilter, ArtifactQuery, VersionKey, VersionQuery } from '../../../src/cache/lists/library-source.ts'
import type { Order, SortKey } from '../../../src/cache/lists/order.ts'
import type { NewArtifact, NewVersion } from '../../../src/catalogue/libraries/library-builder.ts'
import type { LibraryReader } from '../../../src/catalogue/libraries/library-reader.ts'
import { versionOrders, type KnownEcosystem } from '../../../src/catalogue/libraries/version-orders.ts'
import { ArtifactSchema, Ecosystem, type Artifact } from '../../../src/gen/taproot/libraries/v2/artifacts_pb.ts'

const prefixes: Readonly<Record<KnownEcosystem, string>> = { [Ecosystem.JAVA]: 'java:', [Ecosystem.PYTHON]: 'python:', [Ecosystem.NPM]: 'npm:' }

/** An artifact of the model, with its place in any order. */
export interface NaiveArtifact extends SortKey {
  readonly row: NewArtifact
}

/** The rows as the model keeps them. */
export function naiveArtifacts(rows: readonly NewArtifact[]): NaiveArtifact[] {
  return rows.map((row) => {
    const created = row.versions.flatMap(({ createMs }) => createMs ?? [])
    const updated = [...row.versions.flatMap(({ updateMs }) => updateMs ?? []), row.updateMs ?? 0]
    const uid = trustedUid(`${prefixes[row.ecosystem]}${row.name}`)
    return { row, uid, name: row.name, createMs: created.length === 0 ? 0 : Math.min(...created), updateMs: Math.max(...updated) }
  })
}

function matches({ ecosystems, text, cuda, remediated }: ArtifactFilter, { row }: NaiveArtifact): boolean {
  const versions = row.versions.map(({ version }) => version)
  const hasCuda = (wanted: string): boolean => row.cuda.includes(wanted) || versions.some((version) => version.endsWith(`+cu${wanted.replace('.', '')}`))
  return (
    ecosystems.includes(row.ecosystem) &&
    row.name.toLowerCase().includes(text.toLowerCase()) &&
    (cuda === undefined || row.ecosystem !== Ecosystem.PYTHON || hasCuda(cuda)) &&
    (!remediated || versions.some((version) => version.includes('remediated')))
  )
}

function isAfter(order: Order, artifact: SortKey, after: SortKey | undefined): boolean {
  return after === undefined || order.compare(artifact, after) > 0
}

/** Answers a query by looking at every artifact. */
export function naiveArtifactPage(
  all: readonly NaiveArtifact[],
  { filter, order, after, skip, limit }: ArtifactQuery,
): { readonly uids: readonly string[]; readonly total: number } {
  const found = all.filter((artifact) => matches(filter, artifact)).sort(order.compare)
  const shown = found.filter((artifact) => isAfter(order, artifact, after)).slice(skip, skip + limit)
  return { uids: shown.map(({ uid }) => uid), total: found.length }
}

/** Answers a query of versions by looking at each of them. */
export function naiveVersionPage(row: NewArtifact, { artifact, terms, after, skip, limit }: VersionQuery): readonly string[] {
  const { compare } = versionOrders[row.ecosystem]
  const keyOf = ({ version, createMs = 0, updateMs = 0 }: NewVersion): VersionKey => ({ uid: `${artifact}:${version}`, version, createMs, updateMs })
  const plain = (a: string | number, b: string | number): number => (a < b ? -1 : a > b ? 1 : 0)
  const inOrder = (a: VersionKey, b: VersionKey): number => {
    for (const { field, descending } of terms) {
      const found = field === 'version' ? compare(a.version, b.version) : field === 'name' ? 0 : plain(a[field], b[field])
      if (found !== 0) return descending ? -found : found
    }
    return 0
  }
  return row.versions
    .map(keyOf)
    .sort(inOrder)
    .filter((key) => after === undefined || inOrder(key, after) > 0)
    .slice(skip, skip + limit)
    .map(({ version }) => version)
}

const msOf = (time: Timestamp | undefined): number => (time === undefined ? 0 : timestampMs(time))

/** Returns the messages of a page, and their times, for comparison. */
export function messagesOf(page: ReturnType<LibraryReader['artifacts']>): (Artifact & { createMs: number; updateMs: number })[] {
  return page.artifacts.map(({ body }) => {
    const message = fromBinary(ArtifactSchema, body)
    return { ...message, createMs: msOf(message.createTime), updateMs: msOf(message.updateTime) }
  })
}
