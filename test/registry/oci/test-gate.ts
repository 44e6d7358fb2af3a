import { trustedUid } from '../../../src/base/uid.ts'
import type { Gate, RegistryAction } from '../../../src/registry/gate.ts'
import { RegistryError } from '../../../src/registry/registry-error.ts'
import { holds } from '../../../src/registry/tokens/rights.ts'
import { callerOfToken, type Caller, type Services } from '../../../src/engine/services.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'

/** A gate without tokens: `Bearer <uid>` is that identity, with the rights of its bindings. */
export function createTestGate(services: Services): Gate {
  const { cache, clock } = services
  const callerOf = (authorization: string | undefined): Caller => {
    const uid = /^Bearer ([0-9a-f/]+)$/.exec(authorization ?? '')?.[1]
    if (uid === undefined) throw new RegistryError('UNAUTHORIZED', 'sign in first')
    const act = { issuer: 'https://issuer.test', subject: uid, audience: 'test' }
    return callerOfToken(services, { identityUid: trustedUid(uid), operator: false, act, restrictions: {}, issuedAtMs: clock.now() + 60_000 })
  }
  return {
    async enter({ authorization, signal }, { repository, actions }) {
      const caller = callerOf(authorization)
      await cache.barrier(signal)
      const target = findRepository(cache.tables, repository)
      if (target === undefined) throw new RegistryError('NAME_UNKNOWN', 'there is no such repository')
      const may = (action: RegistryAction): boolean => holds(cache.tables, caller.permissions(), { target, action })
      if (!actions.every(may)) throw new RegistryError('DENIED', 'permission denied')
      return {
        repository,
        target,
        caller,
        may,
        holds: may,
        pullable: (path) => {
          const other = findRepository(cache.tables, path)
          return other?.kind === 'repo' && holds(cache.tables, caller.permissions(), { target: other, action: 'pull' }) ? other.uid : undefined
        },
      }
    },
    async catalog({ authorization, signal }) {
      const caller = callerOf(authorization)
      await cache.barrier(signal)
      return caller
    },
    async signedIn({ authorization, signal }) {
      callerOf(authorization)
      await cache.barrier(signal)
    },
  }
}
