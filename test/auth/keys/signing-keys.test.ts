import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { jwksDocument, platformDiscovery } from '../../../src/auth/oidc/discovery-document.ts'
import { createPageKeys } from '../../../src/auth/keys/page-keys.ts'
import { createKeyring } from '../../../src/auth/keys/sealing.ts'
import { createSigningKeys, signingKeySchedule } from '../../../src/auth/keys/signing-keys.ts'
import type { Store } from '../../../src/store/store.ts'
import { freshStore, random, signal, testClock } from '../parts.ts'

async function ground() {
  const store = await freshStore()
  const keyring = await createKeyring({ store, keyEncryptionKey: randomBytes(32), random }, signal)
  return { store, keyring, clock: testClock(), random }
}

/** Returns the same store with another `range`. */
function changedStore(store: Store, range: Store['range']): Store {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = name === 'range' ? range : Reflect.get(target, name, target)
      return typeof member === 'function' ? (member.bind(target) as unknown) : member // a cast: bind answers any
    },
  })
}

const kids = (keys: { keySet(): { keys: readonly { kid?: string }[] } }): unknown[] =>
  keys
    .keySet()
    .keys.map((key) => key.kid)
    .toSorted()

describe('signing keys', () => {
  test('signing keys are shared by replicas that start at once', async () => {
    const options = await ground()
    const replicas = await Promise.all([1, 2, 3].map(() => createSigningKeys(options, signal)))
    expect(new Set(replicas.map((keys) => keys.current().kid)).size).toBe(1)
    expect(replicas.map((keys) => keys.keySet().keys.length)).toEqual([1, 1, 1])
  })

  test('signing keys are published before use and removed last; replicas that race add only one key', async () => {
    const options = await ground()
    const one = await createSigningKeys(options, signal)
    const two = await createSigningKeys(options, signal)
    const first = one.current().kid
    options.clock.advance(signingKeySchedule.rotateEveryMs - signingKeySchedule.publishAheadMs)
    await Promise.all([one.maintain(signal), two.maintain(signal)])
    await Promise.all([one.reload(signal), two.reload(signal)])
    expect(kids(one)).toHaveLength(2)
    expect(kids(one)).toEqual(kids(two))
    expect(one.current().kid).toBe(first)
    options.clock.advance(signingKeySchedule.publishAheadMs)
    const second = one.current().kid
    expect(second).not.toBe(first)
    await one.maintain(signal)
    expect(kids(one)).toContain(first)
    options.clock.advance(signingKeySchedule.retainMs)
    await one.maintain(signal)
    expect(kids(one)).toEqual([second])
    await two.reload(signal)
    expect(kids(two)).toEqual([second])
  })

  test('signing keys in use are kept if time jumps while the next key is generated', async () => {
    const options = await ground()
    let jumpMs = 0
    const clock = {
      now() {
        const nowMs = options.clock.now()
        options.clock.advance(jumpMs)
        jumpMs = 0
        return nowMs
      },
    }
    const keys = await createSigningKeys({ ...options, clock }, signal)
    options.clock.advance(signingKeySchedule.rotateEveryMs)
    const inUse = keys.current().kid
    jumpMs = signingKeySchedule.rotateEveryMs / 2
    await keys.maintain(signal)
    expect(kids(keys)).toHaveLength(2)
    expect(kids(keys)).toContain(inUse)
  })

  test('signing keys of another replica are found by a read of the store', async () => {
    const options = await ground()
    const one = await createSigningKeys(options, signal)
    const two = await createSigningKeys(options, signal)
    options.clock.advance(signingKeySchedule.rotateEveryMs)
    await one.maintain(signal)
    const fresh = one.all().find((key) => two.find(key.kid) === undefined)
    expect((await two.lookup(fresh?.kid ?? '', signal))?.kid).toBe(fresh?.kid)
  })

  test('signing keys of another replica are found by all concurrent look-ups; one cancelled look-up does not stop the others', async () => {
    const options = await ground()
    const one = await createSigningKeys(options, signal)
    let reads = 0
    const gate = Promise.withResolvers<void>()
    const slow = changedStore(options.store, async (range, aborted) => {
      reads += 1
      if (reads > 2) await gate.promise
      aborted.throwIfAborted()
      return await options.store.range(range, aborted)
    })
    const two = await createSigningKeys({ ...options, store: slow }, signal)
    const before = reads
    options.clock.advance(signingKeySchedule.rotateEveryMs)
    await one.maintain(signal)
    const fresh = one.all().find((key) => two.find(key.kid) === undefined)?.kid ?? ''
    reads = 2
    const gone = new AbortController()
    const left = two.lookup(fresh, gone.signal)
    const [second, third] = [two.lookup(fresh, signal), two.lookup(fresh, signal)]
    gone.abort(new Error('gone'))
    await expect(left).rejects.toThrow('gone')
    gate.resolve()
    expect([(await second)?.kid, (await third)?.kid]).toEqual([fresh, fresh])
    expect([before, reads]).toEqual([1, 3])
    expect(await two.lookup('unknown', signal)).toBeUndefined()
    expect(reads).toBe(3)
  })

  test('signing keys are read from a store that was restored to an earlier revision', async () => {
    const options = await ground()
    const one = await createSigningKeys(options, signal)
    let restored = false
    const store = changedStore(options.store, async (range, aborted) => {
      const page = await options.store.range(range, aborted)
      return { ...page, revision: (restored ? 1 : 1_000_000) as typeof page.revision } // a cast: revisions come from a store only
    })
    const two = await createSigningKeys({ ...options, store }, signal)
    restored = true
    options.clock.advance(signingKeySchedule.rotateEveryMs)
    await one.maintain(signal)
    await two.reload(signal)
    expect(kids(two)).toEqual(kids(one))
  })

  test('signing keys are not replaced by an older read that finishes later', async () => {
    const options = await ground()
    const one = await createSigningKeys(options, signal)
    const gate = Promise.withResolvers<void>()
    let held = false
    const store = changedStore(options.store, async (range, aborted) => {
      const page = await options.store.range(range, aborted)
      if (held) await gate.promise
      return page
    })
    const two = await createSigningKeys({ ...options, store }, signal)
    held = true
    const early = two.reload(signal)
    held = false
    options.clock.advance(signingKeySchedule.rotateEveryMs)
    await one.maintain(signal)
    await two.reload(signal)
    gate.resolve()
    await early
    expect(kids(two)).toEqual(kids(one))
  })

  test('signing keys are never stored or published in private form', async () => {
    const options = await ground()
    const keys = await createSigningKeys(options, signal)
    const shown = JSON.stringify(jwksDocument(keys.keySet()))
    const { entries } = await options.store.range({ prefix: 'meta/', limit: 100 }, signal)
    const stored = entries.map((entry) => Buffer.from(entry.value).toString()).join()
    for (const member of ['"d"', '"p"', '"q"', '"dp"', '"dq"', '"qi"']) expect(shown + stored).not.toContain(member)
    expect(jwksDocument(keys.keySet()).keys[0]).toMatchObject({ kty: 'RSA', alg: 'RS256', use: 'sig', kid: keys.current().kid })
  })

  test("signing keys appear in the discovery document with the platform's issuer", () => {
    expect(platformDiscovery('http://localhost:8080')).toMatchObject({
      issuer: 'http://localhost:8080',
      jwks_uri: 'http://localhost:8080/.well-known/jwks.json',
      id_token_signing_alg_values_supported: ['RS256', 'ES256'],
    })
    expect(platformDiscovery('http://localhost:8080')).not.toHaveProperty('registry_host')
  })
})

test('keys of page tokens are shared by replicas and survive a restart', async () => {
  const options = await ground()
  const one = await createPageKeys(options, signal)
  const two = await createPageKeys(options, signal)
  expect(one.current().secret).toHaveLength(32)
  expect(two.find(one.current().id)).toEqual(one.current())
})
