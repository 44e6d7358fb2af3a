import { create } from '@bufbuild/protobuf'
import type { Digest } from '../../base/digest.ts'
import { parentOf } from '../../base/uid.ts'
import { trafficWrite } from '../../engine/outbox.ts'
import type { Services } from '../../engine/services.ts'
import { Vulnerability_SeverityLevel as Severity } from '../../gen/taproot/registry/v2/contents_pb.ts'
import { VulnerabilitiesChangedSchema, VulnerabilitySumsSchema, type VulnerabilitySums } from '../../gen/taproot/store/v1/registry_pb.ts'
import { pathOf, zoneless } from '../../registry/index.ts'
import type { Write } from '../../store/store.ts'
import type { CountedState, CountedTag } from './tag-month.ts'

type KnownState = Extract<CountedState, { kind: 'known' }>

/** The most ids of each list in an event. */
const maxIds = 100

function sumsOf({ counts }: KnownState): VulnerabilitySums {
  const of = (severity: Severity): number => counts[severity] ?? 0
  const [critical, high, medium] = [of(Severity.CRITICAL), of(Severity.HIGH), of(Severity.MEDIUM)]
  return create(VulnerabilitySumsSchema, { critical, high, medium, low: of(Severity.LOW), negligible: of(Severity.NEGLIGIBLE), unknown: of(Severity.UNKNOWN) })
}

/** Returns the ids that only the first state has, sorted. Empty if one of the states had too many to keep. */
function idsOnlyIn(one: KnownState, other: KnownState | undefined): string[] {
  if (one.severities === undefined || (other !== undefined && other.severities === undefined)) return []
  return [...one.severities.keys()]
    .filter((id) => other?.severities?.has(id) !== true)
    .sort()
    .slice(0, maxIds)
}

/** True if both states have the same vulnerabilities, as far as is known, with the same severities. */
function haveSame(one: KnownState, other: KnownState): boolean {
  if (one.counts.some((count, severity) => count !== other.counts[severity])) return false
  if (one.severities === undefined || other.severities === undefined) return true
  return [...one.severities].every(([id, severity]) => other.severities?.get(id) === severity)
}

/** Returns the write of the event about a tag whose known vulnerabilities changed (docs/spec/events.md#changed-vulnerabilities); nothing if they did not. */
export function changedEvent(
  { cache: { tables }, clock, random, settings }: Services,
  { repo, name, digest }: CountedTag & { readonly digest?: Digest },
  { before, after }: { readonly before: CountedState | undefined; readonly after: CountedState },
): Write[] {
  const known = before?.kind === 'known' ? before : undefined
  if (after.kind !== 'known' || (known !== undefined && haveSame(known, after))) return []
  const nowMs = clock.now()
  const message = create(VulnerabilitiesChangedSchema, {
    ...{ repository: pathOf(tables, repo) ?? '', repoId: repo, tag: name, digest: digest ?? '', when: zoneless(nowMs) },
    ...(known === undefined ? {} : { before: sumsOf(known) }),
    after: sumsOf(after),
    added: idsOnlyIn(after, known),
    removed: known === undefined ? [] : idsOnlyIn(known, after),
  })
  const body = { desc: VulnerabilitiesChangedSchema, message }
  const host = settings.registry?.host ?? ''
  return [trafficWrite(random, { kind: 'vulnerabilities.changed', host, subject: repo, group: parentOf(repo), body, caller: undefined, nowMs })]
}
