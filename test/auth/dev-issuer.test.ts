import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { decodeToken } from '../../src/auth/access-tokens/decoded-token.ts'
import { createDevIssuer } from '../../src/auth/oidc/dev-issuer.ts'
import { createIssuerKeys } from '../../src/auth/oidc/issuer-keys.ts'
import { createSignatureChecks } from '../../src/auth/access-tokens/signature-checks.ts'
import { createTokenVerifier } from '../../src/auth/access-tokens/token-verifier.ts'
import { signal, temporaryDirectory, testClock, testFetch } from './parts.ts'

const issuer = 'http://localhost:8080/dev/issuer'

test('a development token is verified without a network request', async () => {
  const clock = testClock()
  const dev = await createDevIssuer({ keyFile: join(await temporaryDirectory(), 'key.json'), issuer, clock })
  const issuerKeys = createIssuerKeys({ fetch: testFetch(), clock, configured: [], local: new Map([[issuer, () => dev.keySet]]) })
  const verifier = createTokenVerifier({ issuerKeys, checks: createSignatureChecks({ clock }), clock })
  const token = decodeToken(await dev.mintDevToken({ subject: 'alice', audience: 'http://localhost:8080', claims: { email: 'a@b.c' } }))
  await verifier.verifyByIssuer(token, { named: [] }, signal)
  expect(token).toMatchObject({ issuer, subject: 'alice', audiences: ['http://localhost:8080'], claims: { email: 'a@b.c' } })
  expect(dev.discovery).toMatchObject({ issuer, jwks_uri: `${issuer}/jwks.json` })
  expect(JSON.stringify(dev.keySet.keys)).not.toContain('"d"')
})

test('the key file is created once, readable by its owner only, and reused', async () => {
  const directory = await temporaryDirectory()
  const keyFile = join(directory, 'key.json')
  const all = await Promise.all([1, 2, 3].map(() => createDevIssuer({ keyFile, issuer, clock: testClock() })))
  const again = await createDevIssuer({ keyFile, issuer, clock: testClock() })
  expect(new Set([...all, again].map((dev) => dev.keySet.id)).size).toBe(1)
  expect((await stat(keyFile)).mode & 0o777).toBe(0o600)
  expect(await readdir(directory)).toEqual(['key.json'])
  expect(JSON.parse(await readFile(keyFile, 'utf8'))).toHaveProperty('d')
})
