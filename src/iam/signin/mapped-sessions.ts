import { create } from '@bufbuild/protobuf'
import type { SignedIn } from '../../auth/oidc/external-sign-in.ts'
import { MappedSessionSchema } from '../../gen/taproot/auth/v1/auth_pb.ts'
import { outboxWrite } from '../../engine/outbox.ts'
import type { Services } from '../../engine/services.ts'

/** The event of a sign-in whose groups gave it roles (docs/spec/identities.md#mapped-sessions; its type is ours). It belongs to the provider's organisation. */
const event = { type: 'auth.session.mapped.v1', group: 'root', internal: false } as const

/** Tells of a sign-in that the mappings of its groups gave roles to; does nothing for others. Rejects with StoreError: nobody gets such roles in secret. */
export async function noteMappedSession(
  services: Services,
  signedIn: Pick<SignedIn, 'identityUid' | 'operator' | 'act' | 'mapped'>,
  signal: AbortSignal,
): Promise<void> {
  const { identityUid: identity, operator, act, mapped } = signedIn
  if (mapped === undefined) return
  const { provider, roles } = mapped
  const actor = { iss: act.issuer, sub: act.subject, aud: act.audience, ...(act.email === undefined ? {} : { email: act.email }) }
  const caller = { identity, operator, actor, narrowing: {}, reach: () => ({ operator: false, grants: [] }) }
  const message = create(MappedSessionSchema, {
    identity,
    identityProvider: provider,
    roles: roles.map(({ externalGroup, role, group: scope }) => ({ externalGroup, role, scope })),
  })
  const happened = { source: `${services.settings.ownIssuer}/sts/exchange`, subject: provider, nowMs: services.clock.now(), caller }
  const write = outboxWrite(services.random, { event, ...happened, body: { desc: MappedSessionSchema, message } })
  await services.store.transact({ guards: [], writes: [write] }, signal)
}
