import { DomainError, maxViolations } from '../../base/errors.ts'
import { nearestName } from '../../base/nearest-name.ts'
import { methods } from '../../base/schema/schema.ts'
import { isWithin, parentOf, trustedUid } from '../../base/uid.ts'
import { pullType, type LogEntry } from '../../engine/log/log-index.ts'

/** Prefix of the event types of API methods. */
export const apiTypePrefix = 'dev.taproot.api.'
/** Type of the event that `:test` sends to one subscription. */
export const testedType = `${apiTypePrefix}events.subscription.tested.v1`

/** An event type that is sent to subscribers. */
export interface EventType {
  readonly type: string
  /** Capabilities that a caller needs at an event's group to see the event: those that list records of the subject's kind. */
  readonly capabilities: readonly string[]
}

/** Type of the events of tags whose vulnerabilities changed. */
const vulnerabilitiesType = 'dev.taproot.registry.vulnerabilities.changed.v1'

/** Event types that no API method emits, with the kind of their subject. */
const otherTypes: readonly (readonly [type: string, kind: string])[] = [
  [`${apiTypePrefix}auth.registered.v1`, 'Identity'],
  [`${apiTypePrefix}auth.session.mapped.v1`, 'Identity'],
  ['dev.taproot.registry.push.v1', 'Repo'],
  [pullType, 'Repo'],
  ['dev.taproot.registry.policy.violated.v1', 'Repo'],
  [vulnerabilitiesType, 'Repo'],
]

/** Capabilities that events of a type need besides those of their kind. */
const moreCapabilities: Readonly<Record<string, readonly string[]>> = { [vulnerabilitiesType]: ['vuln_report.list'] }

/** Returns the capabilities that list records of a kind; undefined for a kind without a list method. */
function listCapabilities(kind: string | undefined): readonly string[] | undefined {
  return methods.find((candidate) => candidate.verb === 'list' && candidate.kind === kind)?.capabilities
}

function readTypes(): ReadonlyMap<string, EventType> {
  const ofMethods = methods.flatMap(({ event, kind }) => (event === undefined || event.internal ? [] : [[`${apiTypePrefix}${event.type}`, kind] as const]))
  const types = new Map<string, EventType>()
  for (const [type, kind] of [...ofMethods, ...otherTypes]) {
    const capabilities = listCapabilities(kind)
    if (capabilities !== undefined) types.set(type, { type, capabilities: [...capabilities, ...(moreCapabilities[type] ?? [])] })
  }
  // Several methods may emit one type. At least one of them must concern a kind that can be listed.
  const missing = ofMethods.find(([type]) => !types.has(type))
  if (missing !== undefined) throw new TypeError(`no list method says who may see events of type ${missing[0]}`)
  return types
}

/** All event types that are sent to subscribers, by full name. */
export const eventTypes: ReadonlyMap<string, EventType> = readTypes()

/** Selects events by prefixes of their type; no prefixes select all types. Pull events also need `includePulls`. */
export interface TypeFilter {
  readonly types: readonly string[]
  readonly includePulls: boolean
}

/** Returns true if events of `type` pass the filter. Test events always do. */
export function passesTypes({ types, includePulls }: TypeFilter, type: string): boolean {
  if (type === testedType) return true
  if (type === pullType && !includePulls) return false
  return types.length === 0 || types.some((prefix) => type.startsWith(prefix))
}

/**
 * Returns true if a subscription receives an event: the event has one of its types, and is of its group or a group below. A test event
 * goes only to its subject.
 */
export function isWanted(filter: TypeFilter & { readonly uid: string }, { type, group, subject }: Omit<LogEntry, 'key' | 'revision'>): boolean {
  if (type === testedType) return subject === filter.uid
  return isWithin(group, parentOf(trustedUid(filter.uid))) && passesTypes(filter, type)
}

/** Returns the capabilities that a caller needs at a group to receive all events that pass the filter. */
export function capabilitiesFor(filter: TypeFilter): readonly string[] {
  const needed = new Set<string>()
  for (const { type, capabilities } of eventTypes.values()) {
    if (type !== testedType && passesTypes(filter, type)) for (const capability of capabilities) needed.add(capability)
  }
  return [...needed]
}

/**
 * Throws code 3 for prefixes that no event type has. Suggests the most similar type, but only for the first prefix, since this compares it
 * with all types.
 */
export function assertTypes(prefixes: readonly string[], field: string): void {
  const known = [...eventTypes.keys()]
  const unknown = prefixes.filter((prefix) => !known.some((type) => type.startsWith(prefix))).slice(0, maxViolations)
  if (unknown.length === 0) return
  const [first = ''] = unknown
  const whole = `${apiTypePrefix}${first}`
  const nearest = known.some((type) => type.startsWith(whole)) ? whole : nearestName(first, known)
  const hints = [nearest === undefined ? typesHint : `did you mean "${nearest}"?`]
  const violations = unknown.map((prefix, at) => ({ field, description: `no event type starts with "${prefix}"; ${hints[at] ?? typesHint}` }))
  throw DomainError.invalidFields(violations)
}

const typesHint = `types start with "${apiTypePrefix}" or "dev.taproot.registry."`
