import { create } from '@bufbuild/protobuf'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { ChangeSet } from '../../engine/change-set.ts'
import type { Planning } from '../../engine/kind.ts'
import { isMember, isPerson } from '../../engine/membership.ts'
import { trafficWrite } from '../../engine/outbox.ts'
import type { Caller } from '../../engine/services.ts'
import { RegistryFailureSchema, RegistryTrafficSchema, type RegistryFailure, type RegistryTraffic } from '../../gen/taproot/store/v1/registry_pb.ts'

/** Data of a request to the registry host for its event. `when` and `repoId` are set when the event is written. */
export type Traffic = Partial<Omit<RegistryTraffic, '$typeName' | '$unknown' | 'when' | 'repoId' | 'error'>> & {
  /** The name by which clients reach the registry host: the event's source. */
  readonly host: string
  /** Why the request failed. */
  readonly error?: Pick<RegistryFailure, 'status' | 'code' | 'message'>
}

/**
 * Formats a time in the form of registry events, in UTC without a zone: `2026-08-20T20:16:31.304000`
 * (docs/spec/events.md#registry-traffic).
 */
export function zoneless(timeMs: number): string {
  return new Date(timeMs).toISOString().replace(/Z$/, '000')
}

/** Returns the event's body. Optional fields are left out if they are empty (docs/spec/events.md#registry-traffic). */
export function trafficBody(repo: string, traffic: Traffic, nowMs: number): RegistryTraffic {
  const { host: _host, tag, method, tagPreviousDigest, subdomain, displayName, error, ...facts } = traffic
  const texts = { tag, method, tagPreviousDigest, subdomain, displayName }
  const optional = Object.entries(texts).filter(([, value]) => value !== undefined && value !== '')
  const failure = error && { error: create(RegistryFailureSchema, error) }
  return create(RegistryTrafficSchema, { ...facts, ...Object.fromEntries(optional), ...failure, repoId: repo, when: zoneless(nowMs) })
}

/**
 * Returns the name of the identity that pushed. Undefined for an identity of another organisation, and for a person who has not joined the
 * repo's organisation.
 */
export function displayNameOf(tables: RecordTables, { identity }: Pick<Caller, 'identity'>, repo: Uid): string | undefined {
  const root = rootOf(repo)
  const isOfRoot = isPerson(identity) ? isMember(tables, identity, root) : rootOf(identity) === root
  return isOfRoot ? tables.get('Identity', identity)?.name : undefined
}

/** Adds the event of a push to the transaction. The event has its own key, so a retry of the transaction cannot write it twice. */
export function writePush(planning: Planning, changes: ChangeSet, source: { repo: Uid; parent: string; traffic: Traffic }): void {
  const { services, nowMs, caller, tables } = planning
  const displayName = displayNameOf(tables, caller, source.repo)
  const write = trafficWrite(services.random, {
    kind: 'push',
    host: source.traffic.host,
    subject: source.repo,
    group: source.parent,
    body: { desc: RegistryTrafficSchema, message: trafficBody(source.repo, { ...source.traffic, ...(displayName && { displayName }) }, nowMs) },
    caller,
    nowMs,
  })
  changes.write(write)
  changes.guard({ kind: 'absent', key: write.key })
  changes.proofKey = write.key
}
