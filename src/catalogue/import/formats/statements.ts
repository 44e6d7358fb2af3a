import { create } from '@bufbuild/protobuf'
import { timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../../base/uid.ts'
import {
  AdvisoryEvent_DetectionSchema,
  AdvisoryEvent_FalsePositiveDetermination_Type as FalsePositive,
  AdvisoryEvent_FalsePositiveDeterminationSchema,
  AdvisoryEvent_FixedSchema,
  AdvisoryEvent_FixNotPlannedSchema,
  AdvisoryEvent_PatchedSchema,
  AdvisoryEvent_PendingUpstreamFixSchema,
  AdvisoryEvent_TruePositiveDeterminationSchema,
  AdvisoryEventSchema,
  AdvisorySchema,
  ReviewState,
  type AdvisoryEvent,
  type Severity,
} from '../../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { NewAdvisory } from '../../advisories/advisory-builder.ts'
import type { OsvFacts } from '../../advisories/osv-facts.ts'
import type { ImportRow } from '../../catalogue-kinds.ts'
import { advisoryRow, assertFewCharacters } from '../advisory-row.ts'
import { checkedText, maxItems, RefusedDocument, segmentOf, textAt, type Members } from '../members.ts'
import { isPackageOf } from '../../../base/versions/ecosystems.ts'
import type { Product } from './products.ts'

/** What an event says. */
export type Finding = Exclude<AdvisoryEvent['type'], { readonly case: undefined }>

/** Makes each finding that documents can state. */
export const findings = {
  detected: (): Finding => ({ case: 'detection', value: create(AdvisoryEvent_DetectionSchema, { type: { case: 'manual', value: {} } }) }),
  affected: (note: string): Finding => ({ case: 'truePositiveDetermination', value: create(AdvisoryEvent_TruePositiveDeterminationSchema, { note }) }),
  fixed: (fixedVersion: string, note = ''): Finding => ({ case: 'fixed', value: create(AdvisoryEvent_FixedSchema, { fixedVersion, note }) }),
  patched: (version: string, note: string): Finding => ({
    case: 'patched',
    value: create(AdvisoryEvent_PatchedSchema, { patchedVersions: version === '' ? [] : [version], note }),
  }),
  notAffected: (type: FalsePositive, note: string): Finding => ({
    case: 'falsePositiveDetermination',
    value: create(AdvisoryEvent_FalsePositiveDeterminationSchema, { type, note }),
  }),
  fixNotPlanned: (note: string): Finding => ({ case: 'fixNotPlanned', value: create(AdvisoryEvent_FixNotPlannedSchema, { note }) }),
  pendingUpstreamFix: (note: string): Finding => ({ case: 'pendingUpstreamFix', value: create(AdvisoryEvent_PendingUpstreamFixSchema, { note }) }),
} as const

/** The justifications of OpenVEX and CSAF (docs/spec/advisories.md#advisories-from-vex). */
export const vexJustifications: ReadonlyMap<unknown, FalsePositive> = new Map([
  ['component_not_present', FalsePositive.COMPONENT_VULNERABILITY_MISMATCH],
  ['vulnerable_code_not_present', FalsePositive.VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE],
  ['vulnerable_code_not_in_execute_path', FalsePositive.VULNERABLE_CODE_NOT_IN_EXECUTION_PATH],
  ['vulnerable_code_cannot_be_controlled_by_adversary', FalsePositive.VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY],
  ['inline_mitigations_already_exist', FalsePositive.INLINE_MITIGATIONS_EXIST],
])

/** Bounds of one document. */
export const maxStatements = 200_000
const maxNoteLength = 16_384
/** What an advisory or an event takes without its texts, in characters. */
const ownCharacters = 64

/** Returns the note at `key`, empty if there is none. Throws RefusedDocument. */
export function noteAt(members: Members, key: string, where: string): string {
  return textAt(members, key, { where, max: maxNoteLength })
}

/** Joins texts that are not empty to one note. Throws RefusedDocument. */
export function noteOf(...texts: readonly string[]): string {
  return checkedText(texts.filter((text) => text !== '').join('\n'), { where: 'a note', max: maxNoteLength })
}

/** The vulnerability of a statement. */
export interface NamedVulnerability {
  readonly id: string
  readonly aliases: readonly string[]
  readonly severities: readonly Severity[]
}

/** Returns a vulnerability whose aliases are each there once. Throws RefusedDocument. */
export function vulnerabilityFrom(id: string, aliases: Iterable<string>, severities: readonly Severity[] = []): NamedVulnerability {
  const others = [...new Set(aliases)].filter((alias) => alias !== id)
  if (others.length > maxItems) throw new RefusedDocument(`${id} has more than ${maxItems} aliases`)
  if (severities.length > maxItems) throw new RefusedDocument(`${id} has more than ${maxItems} severities`)
  return { id, aliases: others, severities }
}

/** One statement: what is found about a vulnerability in a component of an artifact, and when. */
export interface Statement {
  readonly vulnerability: NamedVulnerability
  readonly artifact: Product
  /** The artifact itself if the statement names no part of it. */
  readonly component: Product
  /** Where the component is. Its identifier if undefined. */
  readonly location?: string
  readonly time: Timestamp | undefined
  readonly findings: readonly Finding[]
}

/** An advisory as it is collected. */
interface Collected {
  readonly first: Statement
  /** Those of all statements. */
  readonly aliases: Set<string>
  /** By uid segment: the same event twice is one event. */
  readonly events: Map<string, { readonly time: Timestamp | undefined; readonly finding: Finding }>
}

/** Whose statements a collector takes. Advisories of two forms or two issuers stay apart. */
interface CollectorOptions {
  readonly form: string
  readonly issuer: string
  readonly group: Uid
  /** The ecosystem of packages whose identifiers name no distribution; undefined if it is not known. */
  readonly ecosystem: string | undefined
  /** Returns the author of an advisory by its id. It is the issuer if undefined. */
  readonly authorOf?: (id: string) => string
}

const msOf = (time: Timestamp | undefined): number => (time === undefined ? 0 : timestampMs(time))

/** Returns what an advisory about a part of an artifact keeps of it, apart from its name, type and architecture. */
function wholeOf({ type, identifier, image }: Product): Pick<OsvFacts, 'image' | 'artifact'> {
  return { ...(type === '' ? {} : { artifact: identifier }), ...(image === undefined ? {} : { image }) }
}

/**
 * Collects the statements of one document. Statements of one issuer about one vulnerability in one component of one artifact are events of one advisory
 * (docs/spec/advisories.md#one-advisory-of-a-pair).
 */
export class StatementCollector {
  readonly #form: string
  readonly #issuer: string
  readonly #authorOf: (id: string) => string
  readonly #group: Uid
  readonly #ecosystem: string | undefined
  readonly #collected = new Map<string, Collected>()
  #characters = 0

  constructor({ form, issuer, group, ecosystem, authorOf = () => issuer }: CollectorOptions) {
    this.#form = form
    this.#issuer = issuer
    this.#authorOf = authorOf
    this.#group = group
    this.#ecosystem = ecosystem
  }

  /** Throws RefusedDocument if the statements are together too many or too large. */
  add(statement: Statement): void {
    const { vulnerability, artifact, component, location = component.identifier, time } = statement
    const key = segmentOf(this.#form, this.#issuer, vulnerability.id, artifact.identifier, component.identifier, location)
    let collected = this.#collected.get(key)
    if (collected === undefined) {
      if (this.#collected.size >= maxStatements) throw new RefusedDocument(`the document has statements about more than ${maxStatements} pairs`)
      this.#grow(vulnerability.id.length + artifact.identifier.length + component.identifier.length + location.length)
      for (const { score } of vulnerability.severities) this.#grow(score.length)
      collected = { first: statement, aliases: new Set(), events: new Map() }
      this.#collected.set(key, collected)
    }
    const { aliases, events } = collected
    for (const alias of vulnerability.aliases) {
      if (!aliases.has(alias)) this.#grow(alias.length)
      aliases.add(alias)
    }
    for (const finding of statement.findings) {
      const text = JSON.stringify(finding)
      this.#grow(text.length)
      const eventKey = segmentOf(String(msOf(time)), text)
      events.delete(eventKey)
      events.set(eventKey, { time, finding })
    }
    if (aliases.size > maxItems) throw new RefusedDocument(`${vulnerability.id} has more than ${maxItems} aliases`)
    if (events.size > maxItems) throw new RefusedDocument(`${vulnerability.id} has more than ${maxItems} statements about ${component.identifier}`)
  }

  /** Yields the advisories, in the order of their first statements. */
  *rows(): Generator<ImportRow, void, undefined> {
    for (const [segment, collected] of this.#collected) yield advisoryRow(this.#advisoryOf(segment, collected))
  }

  #grow(characters: number): void {
    this.#characters += characters + ownCharacters
    assertFewCharacters(this.#characters)
  }

  #advisoryOf(segment: string, { first, aliases, events }: Collected): NewAdvisory {
    const { vulnerability, artifact, component, location = component.identifier } = first
    const author = this.#authorOf(vulnerability.id)
    // The sort is stable: of one moment, the last in the document counts.
    const ordered = [...events].toSorted(([, one], [, other]) => msOf(one.time) - msOf(other.time))
    const [created, updated] = [ordered.find(([, { time }]) => time !== undefined), ordered.at(-1)].map((entry) => entry?.[1].time)
    const advisory = create(AdvisorySchema, {
      advisoryId: vulnerability.id,
      ...(created === undefined ? {} : { createTime: created }),
      ...(updated === undefined ? {} : { updateTime: updated }),
      author,
      artifactName: artifact.name,
      artifactType: artifact.type,
      artifactArchitecture: artifact.architecture,
      componentName: component.name,
      componentType: component.type,
      componentLocation: location,
      aliases: [...aliases],
      severities: [...vulnerability.severities],
      events: ordered.map(([key, { time, finding }]) =>
        create(AdvisoryEventSchema, {
          uid: `${this.#group}/${segment}/${key}`,
          ...(time === undefined ? {} : { createTime: time }),
          author,
          reviewState: ReviewState.APPROVED,
          type: finding,
        }),
      ),
    })
    const isOfEcosystem = this.#ecosystem !== undefined && isPackageOf(this.#ecosystem, component)
    // A statement about an image as a whole names no package.
    const whole = component.identifier === artifact.identifier ? {} : wholeOf(artifact)
    const facts = { ...(isOfEcosystem ? { ecosystem: this.#ecosystem } : {}), ...whole }
    return { segment, origin: artifact.name, advisory, ...(Object.keys(facts).length > 0 ? { osv: facts } : {}) }
  }
}
