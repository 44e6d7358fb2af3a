import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { registryAccount } from '../../support/parts/registry.ts'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'

/** An issuer of registry tokens for one account (distribution token specification). */
export interface TokenService {
  /** The registry settings with which it accepts the tokens. */
  readonly auth: { readonly realm: string; readonly service: string; readonly issuer: string; readonly jwksFile: string }
  /** The scopes of the issued tokens, in order. */
  readonly given: readonly (readonly string[])[]
  /** Sets the status of answers in place of tokens; undefined for tokens again. */
  answer(status: number | undefined): void
  stop(): Promise<void>
}

/** Starts a token service on a free loopback port. Its tokens last a minute, and grant all that the account asks for. */
export async function startTokenService(): Promise<TokenService> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-tokens-'))
  const { privateKey, publicKey } = await generateKeyPair('ES256')
  const kid = randomUUID()
  const jwksFile = join(directory, 'jwks.json')
  await writeFile(jwksFile, JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' }] }))
  const given: string[][] = []
  let instead: number | undefined
  const expected = `Basic ${Buffer.from(`${registryAccount.username}:${registryAccount.password}`).toString('base64')}`
  const server = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? '', 'http://issuer')
    if (instead !== undefined || request.headers.authorization !== expected) return void response.writeHead(instead ?? 401).end()
    const scopes = searchParams.getAll('scope')
    given.push(scopes)
    const access = scopes.map((scope) => {
      const [type = '', name = '', actions = ''] = scope.split(':')
      return { type, name, actions: actions.split(',') }
    })
    const jwt = new SignJWT({ access })
      .setProtectedHeader({ alg: 'ES256', kid, typ: 'JWT' })
      .setIssuer('issuer')
      .setAudience(searchParams.get('service') ?? '')
    const signed = jwt.setSubject(registryAccount.username).setIssuedAt().setNotBefore('-1 s').setExpirationTime('60 s').setJti(randomUUID()).sign(privateKey)
    void signed.then((token) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ token, expires_in: 60 })))
  })
  const port = await listenOnLoopback(server)
  return {
    auth: { realm: `http://127.0.0.1:${port}/token`, service: 'upstream', issuer: 'issuer', jwksFile },
    given,
    answer: (status) => (instead = status),
    stop: async () => {
      await closeNow(server)
      await rm(directory, { recursive: true, force: true })
    },
  }
}
