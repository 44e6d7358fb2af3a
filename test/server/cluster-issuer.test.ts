import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Role } from '../../src/config/config.ts'
import type { Environment } from '../../src/config/environment.ts'
import { ConfigError, loadConfig, type LoadedConfig } from '../../src/config/load-config.ts'
import { tokenWithClaims } from '../auth/unsigned-token.ts'

const folder = mkdtempSync(join(tmpdir(), 'taproot-cluster-issuer-'))
afterAll(() => rmSync(folder, { recursive: true }))

interface Given {
  readonly yaml?: string
  readonly env?: Environment
  readonly role?: Role
}

const onEtcd = { TAPROOT_STORE_KIND: 'etcd', TAPROOT_STORE_ETCD_ENDPOINTS: 'http://127.0.0.1:2379', TAPROOT_ENCRYPTION_KEY_FILE: '/keys/kek' }

function load({ yaml = '', env = {}, role = 'dev' }: Given): LoadedConfig {
  const file = join(folder, 'taproot.yaml')
  writeFileSync(file, yaml)
  return loadConfig({ file, env, role })
}

function errorsOf(given: Given): readonly string[] {
  try {
    load(given)
  } catch (error) {
    if (error instanceof ConfigError) return error.errors
    throw error
  }
  return []
}

describe("the issuer of the cluster's service account tokens", () => {
  const issuer = 'https://oidc.cloud.example/id/4711'
  const own = 'https://login.example.com'
  const tokenFile = join(folder, 'token')
  const from = (file: string): Environment => ({ TAPROOT_KUBERNETES_TOKEN_FILE: file })
  const onEtcdFrom = (file: string): Environment => ({ ...onEtcd, ...from(file) })
  writeFileSync(tokenFile, tokenWithClaims({ iss: issuer }))

  const rows: readonly (readonly [string, Given, unknown])[] = [
    ['an entry of issuers', { yaml: 'issuers: [{ allowPrivate: true }]', env: from(tokenFile) }, { issuers: [{ issuer, allowPrivate: true }] }],
    ['an operator', { yaml: 'bootstrap: { operators: [{ subject: ann }] }', env: from(tokenFile) }, { bootstrap: { operators: [{ issuer, subject: 'ann' }] } }],
    ['the controller', { role: 'controller', env: onEtcdFrom(tokenFile) }, { kubernetes: { issuer } }],
    [
      'a controller with an empty variable',
      { role: 'controller', env: { ...onEtcdFrom(tokenFile), TAPROOT_KUBERNETES_ISSUER: '' } },
      { kubernetes: { issuer } },
    ],
    [
      'entries given in a variable',
      { env: { ...from(tokenFile), TAPROOT_ISSUERS: '[{}]', TAPROOT_BOOTSTRAP_OPERATORS: '[{"subject":"ann"}]' } },
      { issuers: [{ issuer }], bootstrap: { operators: [{ issuer, subject: 'ann' }] } },
    ],
  ]
  test.for(rows)("the issuer of the cluster's service account tokens is filled in for %s without an issuer", ([, given, expected]) => {
    expect(load(given)).toMatchObject({ config: expected as object, clusterIssuer: { issuer, tokenFile } })
  })

  test("the issuer of the cluster's service account tokens does not replace a configured issuer", () => {
    const { config } = load({ yaml: `issuers: [{ issuer: "${own}" }, { caFile: /ca.crt }]`, env: from(tokenFile) })
    expect(config.issuers.map((row) => row.issuer)).toEqual([own, issuer])
  })

  test("the issuer of the cluster's service account tokens is kubernetes.issuer if that is set, and no token is read", () => {
    const yaml = `issuers: [{}]\nbootstrap: { operators: [{ subject: ann }] }\nkubernetes: { issuer: "${own}" }\n`
    const { config, clusterIssuer } = load({ yaml, env: from('/none') })
    expect(config).toMatchObject({ issuers: [{ issuer: own }], bootstrap: { operators: [{ issuer: own, subject: 'ann' }] }, kubernetes: { issuer: own } })
    expect(clusterIssuer).toBeUndefined()
  })

  test.for([['api'], ['registry'], ['dev']] as const)(
    "the issuer of the cluster's service account tokens is not read in role %s if nothing needs it",
    ([role]) => {
      const env = { ...onEtcdFrom('/none'), TAPROOT_REGISTRY_UPSTREAM_URL: 'https://registry.example' }
      const { config, clusterIssuer } = load({ role, env, yaml: `issuers: [{ issuer: "${own}" }]` })
      expect(config.kubernetes).not.toHaveProperty('issuer')
      expect(clusterIssuer).toBeUndefined()
    },
  )

  const missing = (because: string, reason: string): string =>
    `kubernetes.issuer (TAPROOT_KUBERNETES_ISSUER) is missing: expected an http:// or https:// URL, or a service account token with such an issuer${because}; kubernetes.tokenFile (TAPROOT_KUBERNETES_TOKEN_FILE): TOKEN: ${reason}`
  const ofRow = (reason: string): string => missing(', because issuers[0] names no issuer', reason)
  const noUrl = 'the claim iss of the token is not an http:// or https:// URL'
  const oneRow = { yaml: 'issuers: [{}]' }
  const errors: readonly (readonly [sentence: string, content: string | undefined, given: Given, fault: string])[] = [
    ['is an error without a token in role controller', undefined, { role: 'controller', env: onEtcd }, missing('', 'ENOENT: no such file or directory')],
    [
      'is an error without a token, which names all entries that need it',
      undefined,
      { yaml: 'issuers: [{}]\nbootstrap: { operators: [{ subject: ann }] }\n' },
      missing(', because issuers[0] and bootstrap.operators[0] name no issuer', 'ENOENT: no such file or directory'),
    ],
    ['is an error if the file is not a token', 'hunter2', oneRow, ofRow('the token is not a valid signed JWT: Invalid Token or Protected Header formatting')],
    ['is an error if it is not a URL, as in the token of a Secret', tokenWithClaims({ iss: 'kubernetes/serviceaccount' }), oneRow, ofRow(noUrl)],
    ['is an error if the token has no issuer', tokenWithClaims({}), oneRow, ofRow('the token is not a valid signed JWT')],
  ]
  test.for(errors)('%s', ([, content, { env, ...given }, error]) => {
    const file = join(folder, 'faulty-token')
    rmSync(file, { force: true })
    if (content !== undefined) writeFileSync(file, content)
    expect(errorsOf({ ...given, env: { ...env, ...from(file) } }).map((line) => line.replace(file, 'TOKEN'))).toEqual([error])
  })
})
