import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { compare as comparePep440, valid } from '@renovatebot/pep440'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { compare as compareSemver } from 'semver'
import { matchPackage, subjectOf, type Match, type ReadAdvisory } from '../../../src/contents/index.ts'
import { isFullTier } from '../../support/tier.ts'
import { advisoriesOf, packageAt } from '../advisories.ts'

interface NaiveRange {
  readonly type: string
  readonly events: readonly Readonly<Record<string, string>>[]
}

interface NaiveAffected {
  readonly package: { readonly ecosystem: string; readonly name: string }
  readonly ranges?: readonly NaiveRange[]
  readonly versions?: readonly string[]
}

interface NaiveDocument {
  readonly id: string
  readonly aliases?: readonly string[]
  readonly withdrawn?: unknown
  readonly affected?: readonly NaiveAffected[]
}

type Compare = (a: string, b: string) => number

/** The evaluation of a range as OSV describes it (https://ossf.github.io/osv-schema/#evaluation), step by step. */
function isInRange(version: string, { events }: NaiveRange, compare: Compare): boolean {
  const limits = events.flatMap(({ limit }) => limit ?? [])
  if (limits.length > 0 && !limits.some((limit) => limit === '*' || compare(version, limit) < 0)) return false
  const textOf = (event: Readonly<Record<string, string>>): string => event['introduced'] ?? event['fixed'] ?? event['last_affected'] ?? ''
  const isStart = (event: Readonly<Record<string, string>>): boolean => event['introduced'] === '0'
  const sorted = events
    .filter(({ limit }) => limit === undefined)
    .toSorted((a, b) => (isStart(a) || isStart(b) ? Number(isStart(b)) - Number(isStart(a)) : compare(textOf(a), textOf(b))))
  let isVulnerable = false
  for (const event of sorted) {
    const { introduced, fixed, last_affected: last } = event
    if (introduced !== undefined && (introduced === '0' || compare(version, introduced) >= 0)) isVulnerable = true
    else if (fixed !== undefined && compare(version, fixed) >= 0) isVulnerable = false
    else if (last !== undefined && compare(version, last) > 0) isVulnerable = false
  }
  return isVulnerable
}

/** True if one of the entries affects the version. Entries about commits alone do not. */
function isAffected(version: string, entries: readonly NaiveAffected[], compare: Compare): boolean {
  return entries.some(({ ranges = [], versions = [] }) => {
    const ofPackages = ranges.filter(({ type }) => type !== 'GIT')
    if (ranges.length === 0 && versions.length === 0) return true
    return versions.some((one) => one === version || compare(one, version) === 0) || ofPackages.some((range) => isInRange(version, range, compare))
  })
}

const stateOf = (matches: readonly Match[]): string | undefined => matches[0]?.state

describe('any document', () => {
  const version = fc.tuple(fc.nat(2), fc.nat(3), fc.constantFrom('', '-rc.1', '-1')).map(([major, minor, pre]) => `${major}.${minor}.0${pre}`)
  const event = fc.oneof(
    version.map((introduced) => ({ introduced })),
    fc.constant({ introduced: '0' }),
    version.map((fixed) => ({ fixed })),
    version.map((last) => ({ last_affected: last })),
    fc.oneof(version, fc.constant('*')).map((limit) => ({ limit })),
  )
  const range = fc.record({ type: fc.constantFrom('SEMVER', 'ECOSYSTEM', 'GIT'), events: fc.array(event, { minLength: 1, maxLength: 5 }) })
  const entry = fc.record({
    package: fc.constant({ ecosystem: 'npm', name: 'left' }),
    ranges: fc.array(range, { maxLength: 3 }),
    versions: fc.array(version, { maxLength: 3 }),
  })

  test('affects the versions that the algorithm of OSV says', () => {
    fc.assert(
      fc.property(fc.array(entry, { minLength: 1, maxLength: 3 }), version, (affected, text) => {
        const documents = [{ id: 'CVE-2026-1', modified: '2026-01-01T00:00:00Z', affected }]
        const matches = matchPackage(subjectOf(packageAt(`pkg:npm/left@${text}`)), advisoriesOf(documents))
        expect(stateOf(matches) === 'affected').toBe(isAffected(text, affected as readonly NaiveAffected[], compareSemver)) // what the generator made
      }),
      { numRuns: 1_000 },
    )
  })

  test('gives the same matches in any order of advisories', () => {
    const document = fc.record({
      id: fc.constantFrom('CVE-2026-1', 'GHSA-1', 'PYSEC-1', 'GHSA-2'),
      aliases: fc.subarray(['CVE-2026-1', 'CVE-2026-2', 'GHSA-1', 'PYSEC-1']),
      modified: fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'),
      affected: fc.array(entry, { minLength: 1, maxLength: 2 }),
    })
    const documents = fc.uniqueArray(document, { maxLength: 4, selector: ({ id }) => id })
    fc.assert(
      fc.property(documents, version, (all, text) => {
        const subject = subjectOf(packageAt(`pkg:npm/left@${text}`))
        const advisories = advisoriesOf(all)
        const matches = matchPackage(subject, advisories)
        expect(matchPackage(subject, advisories.toReversed())).toEqual(matches)
        expect(new Set(matches.map(({ id }) => id)).size).toBe(matches.length)
        // What is affected in one document is affected in the match of its vulnerability.
        const affected = all.filter((one) => isAffected(text, one.affected as readonly NaiveAffected[], compareSemver)).map(({ id }) => id)
        const found = matches.filter(({ state }) => state === 'affected').flatMap(({ id, aliases }) => [id, ...aliases])
        expect(affected.filter((id) => !found.includes(id))).toEqual([])
      }),
      { numRuns: 300 },
    )
  })
})

describe('a package whose release is not known', () => {
  const number = fc.integer({ min: 1, max: 5 }).map(String)
  const affected = fc.record({
    package: fc.constantFrom('11', '12', '13').map((release) => ({ ecosystem: `Debian:${release}`, name: 'left' })),
    ranges: fc
      .tuple(number, fc.option(number))
      .map(([introduced, fixed]) => [{ type: 'ECOSYSTEM', events: fixed === null ? [{ introduced }] : [{ introduced }, { fixed }] }]),
  })

  test('is open exactly if it would be affected in one of the releases', () => {
    const document = fc.record({ affected: fc.array(affected, { minLength: 1, maxLength: 3 }) })
    fc.assert(
      fc.property(fc.array(document, { minLength: 1, maxLength: 2 }), number, (all, version) => {
        const advisories = advisoriesOf(all.map((one, at) => ({ id: `CVE-2026-${at}`, modified: '2026-01-01T00:00:00Z', ...one })))
        const idsIn = (state: string, release = ''): string[] =>
          matchPackage(subjectOf(packageAt(`pkg:deb/debian/left@${version}`), { id: 'debian', version: release }), advisories).flatMap((match) =>
            match.state === state ? [match.id] : [],
          )
        const expected = new Set(['11', '12', '13'].flatMap((release) => idsIn('affected', release)))
        expect(new Set(idsIn('under_investigation'))).toEqual(expected)
        expect(idsIn('affected')).toEqual([])
      }),
      { numRuns: 300 },
    )
  })
})

/** The PyPA advisory database in OSV form, where it lies next to the repository (CC-BY-4.0). */
const realData = resolve('../shared/data/pypa-osv.tar.xz')
/** YAML is slow to parse, so the short tier reads a part of it. */
const realDocuments = isFullTier ? Infinity : 250
const realVersions = isFullTier ? 40 : 10

async function unpacked(): Promise<NaiveDocument[]> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-matching-'))
  try {
    await promisify(execFile)('tar', ['-xJf', realData, '-C', folder])
    const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.yaml')).sort()
    const texts = await Promise.all(names.slice(0, realDocuments).map((name) => readFile(join(folder, name), 'utf8')))
    return texts.map((text) => parse(text, { schema: 'core' }) as NaiveDocument) // OSV documents
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Returns what can be compared: versions that are none of PEP 440 and ranges between such texts have no place in the order. */
function readable({ ranges = [], versions = [], ...rest }: NaiveAffected): NaiveAffected[] {
  const isReadable = (range: NaiveRange): boolean => range.type === 'GIT' || range.events.flatMap(Object.values).every((text) => valid(String(text)) !== null)
  const found = { ...rest, ranges: ranges.filter(isReadable), versions: versions.map(String).filter((text) => valid(text) !== null) }
  const isEmptied = ranges.length + versions.length > 0 && found.ranges.length + found.versions.length === 0
  return isEmptied ? [] : [found]
}

describe.skipIf(!existsSync(realData))('the PyPA advisory database', () => {
  test('affects the same versions as the algorithm of OSV, listed or in ranges', async () => {
    const documents = await unpacked()
    const advisories = new Map<string, ReadAdvisory[]>()
    for (const read of advisoriesOf(documents)) advisories.set(read.key, [...(advisories.get(read.key) ?? []), read])
    const byName = Map.groupBy(
      documents.filter(({ withdrawn }) => withdrawn === undefined).flatMap(({ id, affected = [] }) => affected.map((one) => ({ id, one }))),
      ({ one }) => one.package.name,
    )
    const ids = new Set(documents.map(({ id }) => id))
    let [compared, listed] = [0, 0]
    for (const [name, entries] of byName) {
      const bounds = entries.flatMap(({ one }) => (one.ranges ?? []).flatMap(({ type, events }) => (type === 'GIT' ? [] : events.flatMap(Object.values))))
      const texts = entries.flatMap(({ one }) => (one.versions ?? []).map(String))
      // The first, the last and some between, and each bound of a range.
      const some = texts.filter((_, at) => at % Math.ceil(texts.length / realVersions) === 0 || at === texts.length - 1)
      for (const version of new Set([...some, ...bounds.map(String)])) {
        if (valid(version) === null) continue
        const found = packageAt(`pkg:pypi/${name}`, { version })
        const subject = subjectOf(found)
        const matches = matchPackage(
          subject,
          subject.keys.flatMap((key) => advisories.get(key) ?? []),
        )
        const affected = new Set(matches.filter(({ state }) => state === 'affected').flatMap(({ id, aliases }) => [id, ...aliases]))
        const byId = Map.groupBy(entries, ({ id }) => id)
        for (const [id, own] of byId) {
          const expected = isAffected(
            version,
            own.flatMap(({ one }) => readable(one)),
            comparePep440,
          )
          compared += 1
          if (expected) listed += 1
          // Another advisory with the same aliases may affect it too.
          const isShared = matches.some((match) => [match.id, ...match.aliases].includes(id) && match.aliases.some((other) => other !== id && ids.has(other)))
          if (expected) expect(affected, `${id} affects ${name} ${version}`).toContain(id)
          else if (!isShared) expect(affected, `${id} does not affect ${name} ${version}`).not.toContain(id)
        }
      }
    }
    expect(compared).toBeGreaterThan(1_000)
    expect(listed).toBeGreaterThan(500)
  })
})
