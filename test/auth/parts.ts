import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import type { CryptoKey, JWK, JWTPayload } from 'jose'
import { onTestFinished } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import type { Clock, Random } from '../../src/base/runtime.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../src/store/store.ts'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import type { SafeFetch, SafeFetchOptions } from '../../src/auth/safe-fetch.ts'
import { closeNow, listenOnLoopback } from '../support/parts/loopback.ts'

/** A signal that never aborts. */
export const { signal } = new AbortController()

/** The system's randomness. */
export const random: Random = { bytes: (count) => randomBytes(count) }

/** A clock that the test moves. */
export interface TestClock extends Clock {
  advance(milliseconds: number): void
}

export function testClock(startMs = Date.UTC(2026, 0, 15, 12)): TestClock {
  let nowMs = startMs
  return {
    now: () => nowMs,
    advance(milliseconds) {
      nowMs += milliseconds
    },
  }
}

/** A directory that is removed after the test. */
export async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-authn-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  return directory
}

/** A fresh embedded store. */
export async function freshStore(): Promise<Store> {
  const silent = (): void => undefined
  const store = createSqliteStore({ path: join(await temporaryDirectory(), 'store.db'), log: { debug: silent, info: silent, warn: silent, error: silent } })
  onTestFinished(() => store.close())
  return store
}

/** A client that is closed after the test. */
export function testFetch(options: SafeFetchOptions = {}): SafeFetch {
  const fetch = createSafeFetch(options)
  onTestFinished(() => fetch.close())
  return fetch
}

/** A server on loopback, stopped after the test. Returns its origin. */
export async function listen(handler: RequestListener): Promise<string> {
  const server = createServer(handler)
  const port = await listenOnLoopback(server)
  onTestFinished(() => closeNow(server))
  return `http://127.0.0.1:${port}`
}

/** A key pair, its public half as a JWK. */
export interface TestKey {
  readonly algorithm: string
  readonly kid: string
  readonly privateKey: CryptoKey
  readonly jwk: JWK
}

export async function testKey(algorithm = 'ES256', kid = randomBytes(4).toString('hex')): Promise<TestKey> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { extractable: true })
  return { algorithm, kid, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: 'sig' } }
}

/** A JWT by `key` with exactly these claims. */
export async function sign(key: TestKey, claims: JWTPayload, header: Record<string, unknown> = {}): Promise<string> {
  return await new SignJWT(claims).setProtectedHeader({ alg: key.algorithm, kid: key.kid, ...header }).sign(key.privateKey)
}

/** An issuer on loopback. The test sets its keys and its behaviour. */
export interface LocalIssuer {
  readonly issuer: string
  /** The keys in its JWKS. */
  keys: JWK[]
  /** Answers a request in place of the issuer and returns true, or returns false. */
  behave: (request: IncomingMessage, response: ServerResponse) => boolean
  /** Requests seen, by path. */
  readonly seen: string[]
}

export async function localIssuer(keys: readonly TestKey[]): Promise<LocalIssuer> {
  const seen: string[] = []
  const issuer = await listen((request, response) => {
    seen.push(request.url ?? '')
    if (local.behave(request, response)) return
    const document = request.url === '/jwks.json' ? { keys: local.keys } : { issuer: local.issuer, jwks_uri: `${local.issuer}/jwks.json` }
    response.setHeader('content-type', 'application/json').end(JSON.stringify(document))
  })
  const local: LocalIssuer = { issuer, keys: keys.map((key) => key.jwk), behave: () => false, seen }
  return local
}

/** Returns the error of a rejected promise: `code: message` for domain errors, the member `reason` for others, or `no failure`. */
export async function failure(promise: Promise<unknown>): Promise<string> {
  try {
    await promise
  } catch (error) {
    if (error instanceof DomainError) return `${String(error.code)}: ${error.message}`
    if (error instanceof Error && 'reason' in error) return String(error.reason)
    throw error
  }
  return 'no failure'
}

/** The same as `failure`, for an action that throws synchronously. */
export function thrown(action: () => unknown): Promise<string> {
  return failure(Promise.resolve().then(action))
}
