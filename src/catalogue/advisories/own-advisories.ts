import { toBinary } from '@bufbuild/protobuf'
import { createHash } from 'node:crypto'
import { isUid, parentOf, trustedUid, type Uid } from '../../base/uid.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { AdvisoryFilter, FoundAdvisory, OriginAdvisory } from '../../cache/lists/advisory-source.ts'
import type { Visibility } from '../../cache/lists/places.ts'
import type { CachedRecord, KindIndex, Resource } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { alreadyExists } from '../../engine/errors.ts'
import { defineKind } from '../../engine/kind.ts'
import { AdvisorySchema, type Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { nameKey } from '../../store/keys.ts'
import { foldCase, searchTextOf, termsOf, type FactFacet } from './facts.ts'

const index: KindIndex = { kind: 'Advisory', desc: AdvisorySchema, countsChanges: true, filters: {}, removedWith: [{ kind: 'Group', filter: 'parent' }] }

/** Returns a text that two advisories of a group share if they have one id and are about one component of one artifact. */
function subjectOf(advisory: Advisory): string {
  const { advisoryId, artifactName, artifactType, artifactArchitecture, componentName, componentType, componentLocation } = advisory
  const subject = [advisoryId, artifactName, artifactType, artifactArchitecture, componentName, componentType, componentLocation]
  return createHash('sha256').update(JSON.stringify(subject)).digest('hex')
}

/** Advisories of a group that version 1 writes: records next to the advisories of catalogues (docs/adr/0036). */
export const ownAdvisoryKind = defineKind<Advisory & Resource>({
  index,
  desc: AdvisorySchema,
  uniqueName: false,
  claims: (uid, record) => [
    {
      key: nameKey(index.kind, parentOf(uid), subjectOf(record)),
      taken: () => alreadyExists(index.kind, 'the group has an advisory with this id about this component'),
    },
  ],
})

/** What filters compare of an advisory, and its bytes. */
interface OwnFacts {
  readonly terms: ReadonlySet<string>
  readonly text: string
  readonly body: Uint8Array
}

/** The facts of records, as long as their messages stay decoded. */
const known = new WeakMap<Advisory, OwnFacts>()

/** The package that an artifact is built from. Nothing else is known of it. */
function originOf({ artifactName }: Advisory): string {
  return artifactName
}

/** Returns the advisory in a record as protobuf bytes. */
export function ownBody(record: CachedRecord): Uint8Array {
  return factsOf(messageOf(record, 'Advisory')).body
}

function factsOf(advisory: Advisory): OwnFacts {
  const found = known.get(advisory)
  if (found !== undefined) return found
  const terms = new Set(termsOf(advisory, originOf(advisory)).map(([facet, value]) => `${facet} ${value}`))
  const facts = { terms, text: searchTextOf(advisory), body: toBinary(AdvisorySchema, advisory) }
  known.set(advisory, facts)
  return facts
}

/** True if an advisory has one of the values. */
function hasOne({ terms }: OwnFacts, facet: FactFacet, values: readonly string[]): boolean {
  return values.some((value) => terms.has(`${facet} ${value}`))
}

function matches(record: CachedRecord, { uids, anyOf, noneOf, text }: Omit<AdvisoryFilter, 'groups'>): boolean {
  if (uids !== undefined && !uids.includes(record.uid)) return false
  const facts = factsOf(messageOf(record, 'Advisory'))
  if (anyOf.some(([facet, values]) => !hasOne(facts, facet, values)) || noneOf.some(([facet, values]) => hasOne(facts, facet, values))) return false
  // No advisory has control characters, and a line break separates the texts.
  return text === '' || (!/[\u0000-\u001f]/.test(text) && facts.text.includes(foldCase(text)))
}

/** Yields the hand-made advisories below groups, each once. No group is inside another. */
function* below(tables: RecordTables, groups: readonly Uid[]): Generator<CachedRecord> {
  const { byUid } = tables.table(index.kind)
  for (const group of groups) {
    const from = byUid.rankBy(({ uid }) => uid <= `${group}/`)
    // `0` is the character after `/`.
    yield* byUid.items(
      from,
      byUid.rankBy(({ uid }) => uid < `${group}0`),
    )
  }
}

/** Returns the hand-made advisories in visible places, in uid order, of groups for which `isShown` returns true. */
export function ownAdvisories(
  tables: RecordTables,
  seen: Pick<Visibility, 'everywhere' | 'groups'>,
  isShown: (group: Uid) => boolean,
): readonly CachedRecord[] {
  const table = tables.table(index.kind)
  if (table.size === 0) return []
  const shown = new Map<Uid, boolean>()
  const found: CachedRecord[] = []
  const readsAll = seen.everywhere || seen.groups.length > table.size
  for (const record of readsAll ? table.byUid.items(0, table.size) : below(tables, seen.groups)) {
    const group = trustedUid(record.parent) // an advisory lies in a group
    const isKnown = shown.get(group) ?? (tables.get('Group', group) !== undefined && isShown(group))
    shown.set(group, isKnown)
    if (isKnown) found.push(record)
  }
  return found
}

/** Returns the hand-made advisory with this uid, as protobuf bytes. Undefined if there is none. */
export function ownAdvisory(tables: RecordTables, uid: string): Uint8Array | undefined {
  const record = isUid(uid) ? tables.get('Advisory', uid) : undefined
  return record === undefined ? undefined : ownBody(record)
}

/** Resolves with the records for which `holds` returns true. Records never change, so it may pause. */
async function chosen(records: readonly CachedRecord[], holds: (record: CachedRecord) => boolean): Promise<readonly CachedRecord[]> {
  const task = new CooperativeTask()
  const found: CachedRecord[] = []
  for (const record of records) {
    if (holds(record)) found.push(record)
    if (task.shouldYield) await task.pause()
  }
  return found
}

/** Resolves with the records that match a filter, in no order, with their places in lists. */
export async function matchingOwn(records: readonly CachedRecord[], filter: Omit<AdvisoryFilter, 'groups'>): Promise<readonly FoundAdvisory[]> {
  const found = await chosen(records, (record) => matches(record, filter))
  return found.map((record) => {
    const { uid, name, createMs, updateMs } = record
    return { uid, name, createMs, updateMs, body: ownBody(record) }
  })
}

/** Resolves with the records of an origin package and with one of the ids, as documents show them. */
export async function ownByOrigin(
  records: readonly CachedRecord[],
  { origin, ids }: { readonly origin: string | undefined; readonly ids: readonly string[] | undefined },
): Promise<readonly OriginAdvisory[]> {
  const found = await chosen(records, (record) => {
    const facts = factsOf(messageOf(record, 'Advisory'))
    if (origin !== undefined && !hasOne(facts, 'origin', [origin])) return false
    return ids === undefined || hasOne(facts, 'advisoryId', ids) || hasOne(facts, 'alias', ids)
  })
  return found.map((record) => {
    const advisory = messageOf(record, 'Advisory')
    return { origin: originOf(advisory), uid: record.uid, body: factsOf(advisory).body }
  })
}
