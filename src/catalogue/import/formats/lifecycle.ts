import { basename } from 'node:path'
import { PackageURL } from 'packageurl-js'
import type { LifecycleCycle, LifecycleEnd, LifecycleProduct } from '../../../cache/lists/lifecycle-source.ts'
import type { DocumentFormat } from '../format.ts'
import type { ImportRow } from '../../catalogue-kinds.ts'
import { checkedName, existingTime, isMembers, listAt, membersOf, nameAt, namesAt, optionalNameAt, RefusedDocument, type Members } from '../members.ts'

/** Names of products, as their pages are called. */
const productPattern = /^[a-z0-9][a-z0-9._+-]*$/i
const maxLinkLength = 2_048

/** Returns the text or number at `key` as text: YAML and some products have numbers for versions. Empty if there is none. Throws RefusedDocument. */
function versionAt(members: Members, key: string): string {
  const value = members[key] ?? ''
  if (typeof value !== 'string' && typeof value !== 'number') throw new RefusedDocument(`${key} is no text`)
  return checkedName(String(value), key)
}

/** Returns a day such as 2026-01-31; undefined for other values. Throws RefusedDocument for a day that does not exist. */
function dayOf(value: unknown, key: string): string | undefined {
  if (typeof value !== 'string') return undefined
  if (!/^\d{4}-\d\d-\d\d$/.test(value) || Number.isNaN(existingTime(`${value}T00:00:00Z`))) throw new RefusedDocument(`${key} is no day such as 2026-01-31`)
  return value
}

/** A member that is left out if the value is undefined. */
function optional<Key extends string, Value>(key: Key, value: Value | undefined): { readonly [Name in Key]?: Value } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [Name in Key]?: Value }) // the computed name is `Key`
}

/** Returns an end by its day, or by whether it has come. Undefined if neither is known. Throws RefusedDocument. */
function endOf(members: Members, key: string, hasCome: boolean | undefined): LifecycleEnd | undefined {
  const value = members[key]
  if (value !== undefined && value !== null && typeof value !== 'boolean' && typeof value !== 'string') throw new RefusedDocument(`${key} is no day`)
  const day = dayOf(value, key)
  if (day !== undefined) return { day }
  return hasCome === undefined ? undefined : { hasCome }
}

function booleanAt(members: Members, key: string): boolean | undefined {
  const value = members[key]
  return typeof value === 'boolean' ? value : undefined
}

/** Returns a link to a page; empty if there is none. Throws RefusedDocument. */
function linkAt(members: Members, key: string): string {
  const value = members[key]
  return typeof value === 'string' && /^https?:\/\//i.test(value) ? checkedName(value, key, maxLinkLength) : ''
}

/** Returns a cycle of the older form. There, `support` is true while it lasts, and `eol` once it has come. */
function olderCycle(members: Members): LifecycleCycle {
  const cycle = versionAt(members, 'cycle')
  if (cycle === '') throw new RefusedDocument('cycle is empty')
  const [support, extended] = [booleanAt(members, 'support'), booleanAt(members, 'extendedSupport')]
  const ltsDay = dayOf(members['lts'], 'lts')
  return {
    cycle,
    label: optionalNameAt(members, 'releaseLabel', 'releaseLabel') || cycle,
    codename: optionalNameAt(members, 'codename', 'codename'),
    ...optional('releaseDay', dayOf(members['releaseDate'], 'releaseDate')),
    isLts: members['lts'] === true || ltsDay !== undefined,
    ...optional('ltsDay', ltsDay),
    ...optional('supportEnd', endOf(members, 'support', support === undefined ? undefined : !support)),
    ...optional('lifeEnd', endOf(members, 'eol', booleanAt(members, 'eol'))),
    // False means that there is none.
    ...optional('extendedEnd', endOf(members, 'extendedSupport', extended === true ? false : undefined)),
    latest: versionAt(members, 'latest'),
    ...optional('latestDay', dayOf(members['latestReleaseDate'], 'latestReleaseDate')),
    link: linkAt(members, 'link'),
  }
}

function newerCycle(members: Members): LifecycleCycle {
  const cycle = versionAt(members, 'name')
  if (cycle === '') throw new RefusedDocument('releases.name is empty')
  const latest = members['latest'] === undefined || members['latest'] === null ? {} : membersOf(members['latest'], 'releases.latest')
  const ltsDay = dayOf(members['ltsFrom'], 'ltsFrom')
  return {
    cycle,
    label: optionalNameAt(members, 'label', 'releases.label') || cycle,
    codename: optionalNameAt(members, 'codename', 'releases.codename'),
    ...optional('releaseDay', dayOf(members['releaseDate'], 'releaseDate')),
    isLts: members['isLts'] === true || ltsDay !== undefined,
    ...optional('ltsDay', ltsDay),
    ...optional('supportEnd', endOf(members, 'eoasFrom', booleanAt(members, 'isEoas'))),
    ...optional('lifeEnd', endOf(members, 'eolFrom', booleanAt(members, 'isEol'))),
    ...optional('extendedEnd', endOf(members, 'eoesFrom', booleanAt(members, 'isEoes'))),
    latest: versionAt(latest, 'name'),
    ...optional('latestDay', dayOf(latest['date'], 'latest.date')),
    link: linkAt(latest, 'link'),
  }
}

/** Returns the package URL without version, qualifiers and subpath. Undefined if it is not valid: people write these lists by hand. */
function purlOf(text: string): string | undefined {
  try {
    const { type, namespace, name } = PackageURL.fromString(text)
    return checkedName(new PackageURL(type, namespace, name, undefined, undefined, undefined).toString(), 'identifiers.id')
  } catch (error) {
    if (error instanceof RefusedDocument) throw error
    return undefined
  }
}

function productOf(members: Members): LifecycleProduct {
  const name = nameAt(members, 'name', 'name')
  if (!productPattern.test(name)) throw new RefusedDocument('name is no name of a product')
  const purls = listAt(members, 'identifiers', { where: 'identifiers' }).flatMap((item) => {
    const identifier = membersOf(item, 'identifiers')
    return identifier['type'] === 'purl' ? (purlOf(nameAt(identifier, 'id', 'identifiers.id')) ?? []) : []
  })
  return {
    name,
    label: optionalNameAt(members, 'label', 'label') || name,
    category: optionalNameAt(members, 'category', 'category'),
    aliases: namesAt(members, 'aliases', 'aliases'),
    purls: [...new Set(purls)],
  }
}

/** Returns the name of the product in the name of a file, such as `python.json`. Throws RefusedDocument. */
function productOfFile(file: string): string {
  const [, name = ''] = /^(.+?)\.(?:json|jsonl|ndjson|ya?ml)(?:\.gz)?$/i.exec(basename(file.slice(file.lastIndexOf('!') + 1))) ?? []
  if (!productPattern.test(name))
    throw new RefusedDocument('the document does not name its product: call the file <product>.json, or import /api/v1/products/full')
  return name
}

/** The older form of endoflife.date (`/api/<product>.json`): one cycle of the list. The file is called like the product. */
export const lifecycleCycle: DocumentFormat = {
  name: 'life cycle',
  recognises: (document) => 'cycle' in document && ('eol' in document || 'releaseDate' in document),
  rowsOf: (document, { file }) => [{ kind: 'lifecycle', row: { product: productOfFile(file), facts: undefined, cycle: olderCycle(document) } }],
}

/** The form of the API v1 of endoflife.date: one product, alone (`/api/v1/products/<product>`) or of the list of all (`/api/v1/products/full`). */
export const lifecycleProduct: DocumentFormat = {
  name: 'life cycles of a product',
  recognises: ({ result, label, category, releases }) =>
    (isMembers(result) && 'releases' in result) || (typeof label === 'string' && (typeof category === 'string' || Array.isArray(releases))),
  rowsOf: (document) => {
    const members = isMembers(document['result']) ? document['result'] : document
    if (members['releases'] === undefined) throw new RefusedDocument('releases is missing: import /api/v1/products/full')
    const facts = productOf(members)
    const cycles = new Set<string>()
    return listAt(members, 'releases', { where: 'releases' }).map((item): ImportRow => {
      const cycle = newerCycle(membersOf(item, 'releases'))
      if (cycles.has(cycle.cycle)) throw new RefusedDocument(`releases has two items with the name ${cycle.cycle}`)
      cycles.add(cycle.cycle)
      return { kind: 'lifecycle', row: { product: facts.name, facts, cycle } }
    })
  },
}
