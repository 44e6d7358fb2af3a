import { RecentMap } from '../../base/recent-map.ts'
import type { Uid } from '../../base/uid.ts'
import { CooperativeTask } from '../../cache/cooperative-task.ts'
import type { PackageAdvisory } from '../../cache/lists/advisory-source.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { packageNameOf } from './facts.ts'
import { ownAdvisoryKind, ownBody } from './own-advisories.ts'

/** The hand-made advisories of a group as of one change. */
interface GroupAdvisories {
  readonly group: Uid
  readonly change: number
  readonly records: readonly CachedRecord[]
}

type ByPackage = ReadonlyMap<string, readonly CachedRecord[]>

/** The most hand-made advisories whose packages are remembered, of all groups. */
const rememberedAdvisories = 200_000

/** The advisories of groups by the names of their packages. The keys are a group and the number of its last change, so no entry is out of date. */
const known = new RecentMap<string, { readonly byPackage: Promise<ByPackage>; readonly records: number }>(rememberedAdvisories, ({ records }) => records)

async function byPackage(records: readonly CachedRecord[]): Promise<ByPackage> {
  const task = new CooperativeTask()
  const found = new Map<string, CachedRecord[]>()
  for (const record of records) {
    const name = packageNameOf(messageOf(record, 'Advisory'))
    const others = found.get(name)
    if (others === undefined) found.set(name, [record])
    else others.push(record)
    if (task.shouldYield) await task.pause()
  }
  return found
}

/** The hand-made advisories directly in some groups, as of one moment. */
export class OwnAdvisories {
  readonly #groups: readonly GroupAdvisories[]

  private constructor(groups: readonly GroupAdvisories[]) {
    this.#groups = groups
  }

  /** Returns a number for each group, which is another one after each change of its advisories. */
  static changesIn(tables: RecordTables, groups: readonly Uid[]): number[] {
    const table = tables.table(ownAdvisoryKind.index.kind)
    return groups.map((group) => table.changeOf(group))
  }

  /** Returns the advisories in these groups as of now. It looks at each of them. */
  static in(tables: RecordTables, groups: readonly Uid[]): OwnAdvisories {
    const table = tables.table(ownAdvisoryKind.index.kind)
    const found = groups.map((group) => ({ group, change: table.changeOf(group), records: [...table.matching('parent', group)] }))
    return new OwnAdvisories(found.filter(({ records }) => records.length > 0))
  }

  /** Another text after each change of these advisories. */
  get edition(): string {
    return JSON.stringify(this.#groups.map(({ group, change }) => [group, change]))
  }

  /** Resolves with those of packages with some names, see PackageAdvisoryQuery; undefined if they have more bytes than the bound. */
  async ofPackages(
    names: readonly string[],
    maxBytes: number,
  ): Promise<{ readonly advisories: readonly PackageAdvisory[]; readonly bytes: number } | undefined> {
    const task = new CooperativeTask()
    const advisories: PackageAdvisory[] = []
    let bytes = 0
    for (const group of this.#groups) {
      const records = await this.#byPackage(group)
      for (const name of names) {
        for (const record of records.get(name) ?? []) {
          const body = ownBody(record)
          bytes += body.length
          if (bytes > maxBytes) return undefined
          advisories.push({ body, osv: undefined })
        }
        if (task.shouldYield) await task.pause()
      }
    }
    return { advisories, bytes }
  }

  #byPackage({ group, change, records }: GroupAdvisories): Promise<ByPackage> {
    const key = `${group} ${change}`
    const found = known.get(key)
    if (found !== undefined) return found.byPackage
    const made = byPackage(records)
    known.set(key, { byPackage: made, records: records.length })
    made.catch(() => known.delete(key))
    return made
  }
}
