import { errorText } from '../../base/error-text.ts'
import { clone } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import type { Uid } from '../../base/uid.ts'
import { IdentitySchema } from '../../gen/taproot/iam/v2/identities_pb.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { identityKind } from '../records/identities.ts'
import { addressesAfter, type Person } from '../records/people.ts'
import type { Services } from '../../engine/services.ts'
import { messageOf } from '../../cache/records/record-types.ts'

/** Minimum age of `lastSeenTime`, in milliseconds, before a sign-in updates it (docs/spec/identities.md#last-seen-time). */
const lastSeenEveryMs = 3_600_000

/**
 * Records the sign-in of an identity, without a change of its etag and updateTime. For a person, also records a new e-mail address in the
 * token, which changes both. If this fails, it is only logged, and the next sign-in records it.
 */
export async function noteSignIn(services: Services, uid: Uid, person?: Omit<Person, 'name'>): Promise<void> {
  const cached = services.cache.tables.get('Identity', uid)
  if (cached === undefined) return
  const known = messageOf(cached, 'Identity')
  const now = services.clock.now()
  const addresses = person === undefined ? known : addressesAfter(person, known)
  const isNews = addresses.email !== known.email || addresses.emailUnverified !== known.emailUnverified
  if (!isNews && known.lastSeenTime !== undefined && now - timestampMs(known.lastSeenTime) < lastSeenEveryMs) return
  const record = clone(IdentitySchema, known)
  record.lastSeenTime = timestampFromMs(now)
  record.email = addresses.email
  record.emailUnverified = addresses.emailUnverified
  const { createMs, managedBy } = cached
  const facts = isNews ? { etag: newEtag(services.random), createMs, updateMs: Math.max(now, cached.updateMs + 1), managedBy } : cached
  const changes = new ChangeSet()
  changes.update(identityKind, { cached, record, facts })
  try {
    await services.store.transact({ guards: changes.guards, writes: changes.writes }, AbortSignal.timeout(2_000))
  } catch (error) {
    services.log.warn('could not write lastSeenTime of an identity', { uid, error: errorText(error) })
  }
}
