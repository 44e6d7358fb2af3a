import type { Digest } from '../../base/digest.ts'
import { millisecondUpTo } from '../../base/whole-milliseconds.ts'
import { TagSchema, type ListTagsRequest, type Tag } from '../../gen/taproot/registry/v2/tags_pb.ts'
import type { Order } from '../../cache/lists/order.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { defineKind } from '../../engine/kind.ts'

/** A tag as it is stored. */
export type TagRecord = Tag & Resource

/** The families whose current tags lists leave out unless they are asked for, each with the letter that stands for it (docs/spec/registry.md#tag-families). */
const hiddenFamilies = [
  { letter: 'r', include: 'includeReferrers', pattern: /^sha256-/ },
  { letter: 'd', include: 'includeDates', pattern: /-20\d{6}(\d{4}|\d{6})?$/ },
  { letter: 'e', include: 'includeEpochs', pattern: /-r[0-9]+$/ },
] as const satisfies readonly { letter: string; include: keyof ListTagsRequest; pattern: RegExp }[]

/** The hidden families that a tag belongs to, a letter each. Empty for an ordinary name, and for a deprecated tag: clients list all tags and select those (docs/spec/registry.md#tag-families). */
function familyOf([name = '', deprecated]: readonly string[]): string {
  if (deprecated === 'true') return ''
  return hiddenFamilies
    .filter(({ pattern }) => pattern.test(name))
    .map(({ letter }) => letter)
    .join('')
}

/** Every combination of families of which all are among `letters`. */
function combinations(letters: readonly string[]): string[] {
  return letters.reduce<string[]>((found, letter) => [...found, ...found.map((one) => one + letter)], [''])
}

const index: KindIndex = {
  kind: 'Tag',
  desc: TagSchema,
  name: 'name',
  foundByPath: true,
  filters: { digest: { field: 'digest' }, family: { fields: ['name', 'deprecated'], from: familyOf } },
  removedWith: [{ kind: 'Repo', filter: 'parent' }],
}

/** Tags: names for digests in a repo. They are written by tag-moves.ts only. */
export const tagKind = defineKind<TagRecord>({
  index,
  desc: TagSchema,
  uniqueName: true,
  listFilters: {
    fields: new Set(['updated_since', 'include_referrers', 'include_dates', 'include_epochs']),
    read(request) {
      // Only ListTags lists this kind.
      const { name, updatedSince, ...included } = request as ListTagsRequest
      const letters = hiddenFamilies.filter(({ include }) => included[include]).map(({ letter }) => letter)
      return {
        // A request that names a tag finds it, hidden or not.
        ...(name !== '' || letters.length === hiddenFamilies.length ? {} : { anyOf: { filter: 'family', values: combinations(letters) } }),
        ...(updatedSince === undefined ? {} : { changedAfterMs: millisecondUpTo(updatedSince) }),
      }
    },
  },
})

/** The message of a record of kind Tag. */
export function tagOf(record: CachedRecord): TagRecord {
  return record.message as TagRecord
}

/** The tag of this name in the repo. */
export function tagNamed(tables: RecordTables, repo: string, name: string): CachedRecord | undefined {
  return tables.table('Tag').child(repo, name)
}

/** The digest by which the registry host answers a tag: the one that its manifest was pushed by. */
export function answeredDigest(record: CachedRecord): Digest {
  // A cast: digests are checked before they are written.
  return (record.pushedDigest || tagOf(record).digest) as Digest
}

/** The tags of the repo that point to the manifest under the digest. `upstreamDigest` is the SHA-256 of its bytes: tags that it was pushed with by another digest have that one. */
export function tagsAt(tables: RecordTables, repo: string, { digest, upstreamDigest }: { digest: Digest; upstreamDigest: Digest }): CachedRecord[] {
  const pointing = [...tables.table('Tag').matching('digest', upstreamDigest)].filter((record) => record.parent === repo)
  return digest === upstreamDigest ? pointing : pointing.filter((record) => record.pushedDigest === digest)
}

function compareNames(a: string, b: string): number {
  const [one, other] = [a.toLowerCase(), b.toLowerCase()]
  if (one !== other) return one < other ? -1 : 1
  return a === b ? 0 : a < b ? -1 : 1
}

/** The order of tag lists at the registry host: letter case does not count (OCI distribution specification, "Listing Tags"). */
const listingOrder: Order = { terms: [], id: 'name-fold', compare: (a, b) => compareNames(a.name, b.name) }

/** Names of the repo's tags in the order of the registry's lists: `n` of them at most, those after `last` where it is given. `more` tells whether others follow. */
export async function tagNames(tables: RecordTables, repo: string, page: { last?: string; n: number }): Promise<{ names: string[]; more: boolean }> {
  const { last, n } = page
  for (;;) {
    const { tree, state } = await tables.table('Tag').views.view({ place: 'child', uid: repo, filters: [] }, listingOrder)
    if (state !== 'ready') continue
    const from = last === undefined ? 0 : tree.rankBy((record) => compareNames(record.name, last) <= 0)
    return { names: tree.items(from, from + n).map((record) => record.name), more: from + n < tree.size }
  }
}
