import type { Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import { millisecondUpTo } from '../../base/schema/whole-milliseconds.ts'
import { TagSchema, type ListTagsRequest, type Tag } from '../../gen/taproot/registry/v2/tags_pb.ts'
import type { Order } from '../../cache/lists/order.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { defineKind } from '../../engine/kind.ts'

/** A tag as it is stored. */
export type TagRecord = Tag & Resource

/** Families of tags that lists leave out by default, each with the letter that represents it (docs/spec/registry.md#tag-families). */
const hiddenFamilies = [
  { letter: 'r', include: 'includeReferrers', pattern: /^sha256-/ },
  { letter: 'd', include: 'includeDates', pattern: /-20\d{6}(\d{4}|\d{6})?$/ },
  { letter: 'e', include: 'includeEpochs', pattern: /-r[0-9]+$/ },
] as const satisfies readonly { letter: string; include: keyof ListTagsRequest; pattern: RegExp }[]

/**
 * Returns the letters of the hidden families that a tag belongs to. Empty for an ordinary name, and for a deprecated tag, because clients
 * select those from the list themselves (docs/spec/registry.md#tag-families).
 */
function familyOf([name = '', deprecated]: readonly string[]): string {
  if (deprecated === 'true') return ''
  return hiddenFamilies
    .filter(({ pattern }) => pattern.test(name))
    .map(({ letter }) => letter)
    .join('')
}

/** Returns every combination of these letters. */
function combinations(letters: readonly string[]): string[] {
  return letters.reduce<string[]>((found, letter) => [...found, ...found.map((one) => one + letter)], [''])
}

const index: KindIndex = {
  kind: 'Tag',
  desc: TagSchema,
  name: 'name',
  foundByPath: true,
  countsChanges: true,
  filters: { digest: { field: 'digest' }, family: { fields: ['name', 'deprecated'], from: familyOf } },
  removedWith: [{ kind: 'Repo', filter: 'parent' }],
}

/** The kind Tag: a name for a digest in a repo. Only tag-moves.ts writes tags. */
export const tagKind = defineKind<TagRecord>({
  index,
  desc: TagSchema,
  uniqueName: true,
  listFilters: {
    fields: new Set(['updated_since', 'include_referrers', 'include_dates', 'include_epochs']),
    read(request) {
      // a cast: only ListTags lists this kind
      const { name, updatedSince, ...included } = request as ListTagsRequest
      const letters = hiddenFamilies.filter(({ include }) => included[include]).map(({ letter }) => letter)
      return {
        // A request with a tag name finds that tag even if its family is hidden.
        ...(name !== '' || letters.length === hiddenFamilies.length ? {} : { anyOf: { filter: 'family', values: combinations(letters) } }),
        ...(updatedSince === undefined ? {} : { changedAfterMs: millisecondUpTo(updatedSince) }),
      }
    },
  },
})

/** Returns the message in a record of kind Tag. */
export function tagOf(record: CachedRecord): TagRecord {
  return record.message as TagRecord
}

/** Returns the tag with this name in the repo. */
export function tagNamed(tables: RecordTables, repo: string, name: string): CachedRecord | undefined {
  return tables.table('Tag').child(repo, name)
}

/** Returns the digest that the registry host sends for a tag: the one that its manifest was pushed by. */
export function answeredDigest(record: CachedRecord): Digest {
  // A cast: digests are checked before they are written.
  return (record.pushedDigest || tagOf(record).digest) as Digest
}

/**
 * Returns the tags of the repo that point to the manifest. `upstreamDigest` is the SHA-256 digest of its bytes, which tags point to if the
 * manifest was pushed by another digest.
 */
export function tagsAt(tables: RecordTables, repo: Uid, { digest, upstreamDigest }: { digest: Digest; upstreamDigest: Digest }): CachedRecord[] {
  const pointing = [...tables.table('Tag').matching('digest', upstreamDigest, repo)]
  return digest === upstreamDigest ? pointing : pointing.filter((record) => record.pushedDigest === digest)
}

function compareNames(a: string, b: string): number {
  const [one, other] = [a.toLowerCase(), b.toLowerCase()]
  if (one !== other) return one < other ? -1 : 1
  return a === b ? 0 : a < b ? -1 : 1
}

/** Order of tag lists at the registry host, which ignores letter case (OCI distribution specification, "Listing Tags"). */
const listingOrder: Order = { terms: [], id: 'name-fold', compare: (a, b) => compareNames(a.name, b.name) }

/**
 * Returns up to `n` names of the repo's tags in the registry's list order, after `last` if it is given. Leaves out tags without a digest, which have
 * no content. `more` is true if others follow.
 */
export async function tagNames(tables: RecordTables, repo: string, page: { last?: string; n: number }): Promise<{ names: string[]; more: boolean }> {
  const { last, n } = page
  for (;;) {
    const table = tables.table('Tag')
    const { tree, state } = await table.views.view({ place: 'child', uid: repo, filters: [] }, listingOrder)
    if (state !== 'ready') continue
    const from = last === undefined ? 0 : tree.rankBy((record) => compareNames(record.name, last) <= 0)
    const names: string[] = []
    for (const record of tree.slice(from)) {
      if (names.length > n) break
      if ((table.valueOf(record, 'digest') ?? '') !== '') names.push(record.name)
    }
    return { names: names.slice(0, n), more: names.length > n }
  }
}
