import type { Advisory } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { cvssV3Of } from './cvss-scores.ts'
import { idsOf, isCve, statusesOf, timeText, type ExportFacts, type Stated, type StoredAdvisory, type VexStatus } from './export-facts.ts'
import { productOfAdvisory, type ExportedProduct } from './export-products.ts'

/** The lists of `product_status`. */
const lists = {
  affected: 'known_affected',
  not_affected: 'known_not_affected',
  fixed: 'fixed',
  under_investigation: 'under_investigation',
} as const satisfies Record<VexStatus['status'], string>

/** The products of a document. Ids are package URLs: they mean the same in all documents. */
class ExportedProducts {
  readonly #ids = new Set<string>()
  readonly #relationships = new Map<string, { readonly part: string; readonly whole: string }>()

  /** Returns the id of a product. */
  add({ artifact, component }: ExportedProduct): string {
    this.#ids.add(artifact)
    if (component === undefined) return artifact
    this.#ids.add(component)
    const id = `${component} in ${artifact}`
    this.#relationships.set(id, { part: component, whole: artifact })
    return id
  }

  tree(): object {
    const relationships = [...this.#relationships].map(([id, { part, whole }]) => ({
      category: 'default_component_of',
      product_reference: part,
      relates_to_product_reference: whole,
      full_product_name: { product_id: id, name: id },
    }))
    return {
      full_product_names: [...this.#ids].map((purl) => ({ product_id: purl, name: purl, product_identification_helper: { purl } })),
      ...(relationships.length === 0 ? {} : { relationships }),
    }
  }
}

/** The statuses whose products have scores: the others are not vulnerable. */
const scored: ReadonlySet<VexStatus['status']> = new Set(['affected', 'under_investigation'])

/** Items of a list, by their text, with the products that they are about. */
type Items = Map<string, { readonly item: object; readonly ids: string[] }>

/** Adds a product to the item with the same text, so that each text is there once. */
function addTo(items: Items, item: object, id: string): void {
  const key = JSON.stringify(item)
  const known = items.get(key)
  if (known === undefined) items.set(key, { item, ids: [id] })
  else known.ids.push(id)
}

function listOf(items: Items, products: 'product_ids' | 'products'): object[] {
  return [...items.values()].map(({ item, ids }) => ({ ...item, [products]: ids }))
}

/** The newest status of a product, and the advisory that has it. */
interface NewestStatus extends Stated {
  readonly advisory: Advisory
}

/** Returns the newest status of each product. */
function newestOf(advisories: readonly StoredAdvisory[], products: ExportedProducts): Map<string, NewestStatus> {
  const newest = new Map<string, NewestStatus>()
  for (const stored of advisories) {
    const { advisory } = stored
    const latest = statusesOf(advisory).at(-1)
    if (latest === undefined) continue
    const { status } = latest
    const versions = status.status === 'fixed' && status.versions.length > 0 ? status.versions : [undefined]
    for (const version of versions) {
      const id = products.add(productOfAdvisory(stored, version))
      const known = newest.get(id)
      if (known === undefined || (known.ms ?? 0) <= (latest.ms ?? 0)) newest.set(id, { ...latest, advisory })
    }
  }
  return newest
}

function vulnerabilityOf(advisories: readonly StoredAdvisory[], products: ExportedProducts): object | undefined {
  const ids = [...new Set(advisories.flatMap(({ advisory }) => idsOf(advisory)))]
  const cve = ids.find(isCve)
  const parts = { flags: new Map(), threats: new Map(), remediations: new Map() } satisfies Record<string, Items>
  const scores: Items = new Map()
  const statuses = new Map<string, string[]>()
  for (const [id, { status, advisory }] of newestOf(advisories, products)) {
    const list = lists[status.status]
    statuses.set(list, [...(statuses.get(list) ?? []), id])
    const score = scored.has(status.status) ? cvssV3Of(advisory.severities) : undefined
    if (score !== undefined) addTo(scores, { cvss_v3: score }, id)
    if (status.status === 'affected') addTo(parts.remediations, { category: status.remediation, details: status.action }, id)
    if (status.status !== 'not_affected') continue
    addTo(parts.threats, { category: 'impact', details: status.impact }, id)
    if (status.justification !== undefined) addTo(parts.flags, { label: status.justification }, id)
  }
  if (statuses.size === 0) return undefined
  const others = ids.filter((id) => id !== cve)
  return {
    ...(cve === undefined ? {} : { cve }),
    ...(others.length === 0 ? {} : { ids: others.map((text) => ({ system_name: text.split('-', 1)[0] ?? text, text })) }),
    notes: [{ category: 'general', text: `What is known about ${cve ?? ids[0] ?? 'the vulnerability'} in these products.` }],
    product_status: Object.fromEntries(statuses),
    ...(scores.size === 0 ? {} : { scores: listOf(scores, 'products') }),
    ...Object.fromEntries(Object.entries(parts).flatMap(([key, items]) => (items.size === 0 ? [] : [[key, listOf(items, 'product_ids')]]))),
  }
}

/** Returns one revision for each day on which something was found. */
function revisionsOf(advisories: readonly StoredAdvisory[], builtMs: number): { readonly date: string; readonly number: string; readonly summary: string }[] {
  const times = advisories.flatMap(({ advisory }) => statusesOf(advisory).map(({ ms }) => ms ?? builtMs)).sort((one, other) => one - other)
  const byDay = new Map(times.map((ms) => [timeText(ms).slice(0, 10), ms]))
  if (byDay.size === 0) byDay.set('', builtMs)
  return [...byDay.values()].map((ms, at) => ({ date: timeText(ms), number: String(at + 1), summary: 'New findings' }))
}

/** Returns the name of a package as an id of a document: one line without blanks at its ends. */
function trackingId(origin: string): string {
  return /^\S(?:.*\S)?$/.test(origin) ? origin : encodeURIComponent(origin)
}

/** Returns the advisories as a CSAF VEX document: the newest status of each product (docs/spec/advisories.md#advisory-exports). */
export function csafOf(origin: string, advisories: readonly StoredAdvisory[], { publisher, baseUrl, builtMs }: ExportFacts): object {
  const products = new ExportedProducts()
  const byVulnerability = Map.groupBy(advisories, ({ advisory }) => idsOf(advisory)[0])
  const vulnerabilities = [...byVulnerability.values()].map((some) => vulnerabilityOf(some, products)).filter((one) => one !== undefined)
  const revisions = revisionsOf(advisories, builtMs)
  const [first, last] = [revisions[0], revisions.at(-1)]
  return {
    document: {
      category: 'csaf_vex',
      csaf_version: '2.0',
      title: `Vulnerabilities in ${origin}`,
      publisher: { category: 'vendor', name: publisher, namespace: baseUrl },
      references: [{ category: 'self', summary: 'This document', url: `${baseUrl}/advisory/v2/documents/${encodeURIComponent(origin)}?format=csaf` }],
      tracking: {
        id: trackingId(origin),
        status: 'final',
        version: last?.number,
        initial_release_date: first?.date,
        current_release_date: last?.date,
        revision_history: revisions,
      },
    },
    product_tree: products.tree(),
    vulnerabilities,
  }
}
