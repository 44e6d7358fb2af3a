import { create } from '@bufbuild/protobuf'
import { RegistryTrafficSchema, type RegistryTraffic } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { ChangeSet } from '../../engine/change-set.ts'
import type { Planning } from '../../engine/kind.ts'
import { trafficWrite } from '../../engine/outbox.ts'

/** The known facts of a request to the registry host. `when` and `repoId` are set where the event is written. */
export type Traffic = Partial<Omit<RegistryTraffic, '$typeName' | '$unknown' | 'when' | 'repoId'>> & {
  /** The name under which clients reach the registry host: the event's source. */
  readonly host: string
}

/** `2026-08-20T20:16:31.304000`: a time as registry events have it, without a zone (docs/spec/events.md#registry-traffic). */
function zoneless(timeMs: number): string {
  return new Date(timeMs).toISOString().replace(/Z$/, '000')
}

/** The event's body. Optional facts are left out if they are empty (docs/spec/events.md#registry-traffic). */
export function trafficBody(repo: string, traffic: Traffic, nowMs: number): RegistryTraffic {
  const { host: _host, tag, method, tagPreviousDigest, ...facts } = traffic
  const optional = Object.entries({ tag, method, tagPreviousDigest }).filter(([, value]) => value !== undefined && value !== '')
  return create(RegistryTrafficSchema, { ...facts, ...Object.fromEntries(optional), repoId: repo, when: zoneless(nowMs) })
}

/** Adds a push to the transaction that it is about. Its key makes that transaction commit once at most. */
export function writeTraffic(planning: Planning, changes: ChangeSet, source: { kind: 'push' | 'pull'; repo: string; parent: string; traffic: Traffic }): void {
  const { services, nowMs, caller } = planning
  const write = trafficWrite(services.random, {
    kind: source.kind,
    host: source.traffic.host,
    subject: source.repo,
    group: source.parent,
    body: { desc: RegistryTrafficSchema, message: trafficBody(source.repo, source.traffic, nowMs) },
    caller,
    nowMs,
  })
  changes.write(write)
  changes.guard({ kind: 'absent', key: write.key })
  changes.proofKey = write.key
}
