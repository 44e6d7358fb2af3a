import { exportJWK, generateKeyPair, SignJWT, type CryptoKey } from 'jose'
import { builtInRoles } from '../../../src/base/roles.ts'
import type { SeededRandom } from '../schedules/random.ts'
import { ApiCalls } from './api-calls.ts'
import type { Place } from './known-records.ts'
import type { Creation, RecordedCalls, Unsettled } from './recorded-calls.ts'

/** The group of a guest, and the calls that grant and use its rights. */
export interface GuestOptions {
  readonly run: string
  /** A group that no other client uses. */
  readonly place: Place
  /** The uid of the guest's identity. */
  readonly identity: string
  readonly random: SeededRandom
  /** An operator's calls. */
  readonly host: RecordedCalls
  /** The guest's own calls. */
  readonly guest: RecordedCalls
  readonly unsettled: Unsettled[]
}

const algorithm = 'ES256'
const [audience, issuer, kid] = ['faults', 'https://guest.example', 'guest']
const tokenLifeSeconds = 3600
const viewer = builtInRoles.find((role) => role.name === 'viewer')?.uid ?? ''

/** The static key of a guest, so that no issuer has to answer. */
export interface GuestKey {
  /** The fields of an identity that accepts the key. */
  readonly staticKeys: { readonly issuer: string; readonly subject: string; readonly issuerKeys: string; readonly audiences: string[] }
  /** Exchanges a new token for an access token. Rejects if no process issues one. */
  signIn(as: { endpoints: readonly string[]; identity: string; random: SeededRandom; timeoutMs: number }): Promise<string>
}

/** Makes a key for a guest. */
export async function createGuestKey(): Promise<GuestKey> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm)
  const issuerKeys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: algorithm }] })
  return {
    staticKeys: { issuer, subject: kid, issuerKeys, audiences: [audience] },
    async signIn({ endpoints, identity, random, timeoutMs }) {
      const calls = new ApiCalls({ endpoints, token: () => signed(privateKey), timeoutMs })
      try {
        const result = await calls.callAny(random, { rpc: 'SecurityTokenService/Exchange', request: { identity } })
        if (result.kind !== 'answered' || result.reply.code !== 0) throw new Error('no process gives the guest a token')
        return String(result.reply.body['token'])
      } finally {
        calls.close()
      }
    },
  }
}

function signed(key: CryptoKey): Promise<string> {
  const nowSeconds = Math.floor(Date.now() / 1000)
  const claims = { iss: issuer, sub: kid, aud: audience, iat: nowSeconds, exp: nowSeconds + tokenLifeSeconds }
  return new SignJWT(claims).setProtectedHeader({ alg: algorithm, kid }).sign(key)
}

/**
 * Grants an identity its only role binding, reads with it, and removes it, in a loop. A read that succeeds after the removal shows stale permissions. The
 * steps do not overlap, so that most reads are certainly before or after a change.
 */
export class Guest {
  readonly #options: GuestOptions
  /** Undefined if there is none; `unclear` after a change without an answer. */
  #binding: string | 'unclear' | undefined
  #made = 0

  constructor(options: GuestOptions) {
    this.#options = options
  }

  /** Takes one step. Returns false if it had no effect. */
  async act(): Promise<boolean> {
    const { random, guest, place, identity } = this.#options
    if (this.#binding === 'unclear') return this.#look()
    if (random.fraction() < 0.7) return (await guest.use({ parent: place.uid, identity })) !== undefined
    return this.#binding === undefined ? this.#bind() : this.#unbind(this.#binding)
  }

  async #bind(): Promise<boolean> {
    const { place, identity, run, host, unsettled } = this.#options
    this.#made += 1
    const fields = { identityUid: identity, roleUid: viewer }
    const claim = { name: `${identity} ${viewer}`, idempotencyKey: `${run}-guest-${this.#made}` }
    const creation: Creation = { kind: 'RoleBinding', parent: place.uid, fields, value: viewer, identity, ...claim }
    const seen = await host.create(creation, (left) => unsettled.push(left))
    this.#binding = seen?.uid ?? 'unclear'
    return seen !== undefined
  }

  async #unbind(uid: string): Promise<boolean> {
    const outcome = await this.#options.host.remove({ kind: 'RoleBinding', parent: this.#options.place.uid, uid })
    this.#binding = outcome === 'ok' || outcome === 'absent' ? undefined : 'unclear'
    return this.#binding === undefined
  }

  /** Finds out whether the guest has a binding. One whose create is still under way is found when the next is created. */
  async #look(): Promise<boolean> {
    const { place, identity, host } = this.#options
    const query = { uidp: { childrenOf: place.uid } }
    const members = await host.list({ kind: 'RoleBinding', parent: place.uid, query, isForeign: () => false })
    if (members === undefined) return false
    this.#binding = members.find((member) => member.identity === identity)?.uid
    return true
  }
}
