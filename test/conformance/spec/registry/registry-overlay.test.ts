import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { selfSigned } from '../../../auth/certificate.ts'
import { freshName, makeOrganisation } from '../../../support/test-server.ts'
import { expectFailure, fieldViolations, specSuite, uidOf } from '../spec-suite.ts'

const pair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const rsaKey = pair.publicKey.export({ type: 'spki', format: 'pem' }).toString()
const rsaPrivateKey = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
const pkcs1Key = pair.publicKey.export({ type: 'pkcs1', format: 'pem' }).toString()
const ecKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' }).toString()
const { certificate, key: certificateKey } = selfSigned('ca.example')

/** The same certificate without its version, which then is 1. */
function versionOne(pem: string): string {
  const der = Buffer.from(pem.replaceAll(/-----[A-Z ]+-----|\s/g, ''), 'base64')
  // Both outer lengths of a small certificate take two bytes; the five bytes of the version are cut out of the inner one.
  const version = der.indexOf(Buffer.from('a003020102', 'hex'))
  const shorter = Buffer.concat([der.subarray(0, version), der.subarray(version + 5)])
  for (const at of [2, version - 2]) shorter.writeUInt16BE(der.readUInt16BE(at) - 5, at)
  return `-----BEGIN CERTIFICATE-----\n${shorter.toString('base64')}\n-----END CERTIFICATE-----\n`
}

const keyring = (...entries: readonly JsonObject[]): JsonObject => ({ contents: { runtimeKeyring: [...entries] } })
const certificates = (...contents: readonly string[]): JsonObject => ({
  certificates: { additional: contents.map((content, at) => ({ name: `ca-${at}`, content })) },
})
const repositories = (...urls: readonly string[]): JsonObject => ({ contents: { runtimeRepositories: [...urls] } })

const keyringField = 'custom_overlay.contents.runtime_keyring'
const certificateField = 'custom_overlay.certificates.additional'

specSuite('custom overlays', (spec) => {
  const attempt = async (customOverlay: JsonObject) => {
    const { group, token } = await makeOrganisation(spec.server)
    return spec.call('CreateRepo', { parent: group, repo: { name: freshName('repo'), customOverlay } }, { token })
  }

  // docs/spec/registry.md#custom-overlays
  test('custom overlays are stored and returned as given', async () => {
    const customOverlay = {
      contents: {
        packages: ['curl', 'jq=1.7'],
        runtimeRepositories: ['https://packages.example/main'],
        runtimeKeyring: [{ name: 'team.rsa.pub', content: rsaKey }],
      },
      environment: { LANG: 'C.UTF-8' },
      annotations: { 'example.com/team': 'web' },
      accounts: {
        runAs: 'app',
        users: [{ username: 'app', uid: 1000, gid: 1000, groupName: '', shell: '/bin/sh', homeDir: '/app' }],
        groups: [{ groupname: 'app', gid: 1000, members: ['app'] }],
      },
      certificates: { additional: [{ name: 'ca', content: certificate }], providers: ['system'] },
    }
    const { group, token } = await makeOrganisation(spec.server)
    const made = await spec.ok('CreateRepo', { parent: group, repo: { name: 'assembled', customOverlay } }, { token })
    expect(made['customOverlay']).toEqual(customOverlay)
    const changed = await spec.ok(
      'UpdateRepo',
      { repo: { uid: uidOf(made), customOverlay: { environment: {} } }, updateMask: 'customOverlay.environment' },
      { token },
    )
    expect(changed['customOverlay']).toEqual({ ...customOverlay, environment: {} })
  })

  // docs/spec/registry.md#custom-overlays
  test.each([
    ['https://localhost/a'],
    ['https://localhost./a'],
    ['https://api.localhost/a'],
    ['https://127.0.0.1/a'],
    ['https://127.1/a'],
    ['https://0x7f000001/a'],
    ['https://2130706433/a'],
    ['https://[::1]/a'],
    ['https://[::ffff:10.0.0.1]/a'],
    ['https://[fd00::1]/a'],
    ['https://10.1.2.3:8443/a'],
    ['https://172.16.0.1/a'],
    ['https://192.168.1.1/a'],
    ['https://169.254.169.254/latest'],
    ['https://user@169.254.169.254/latest'],
    ['https://metadata.google.internal/a'],
    ['https://printer.local/a'],
    ['https://packages.web.svc.cluster.local/a'],
    ['https://packages.web.svc.cluster.local./a'],
    ['https://packages/a'],
    ['https://'],
    ['https://a b/'],
  ])('custom overlays refuse %s as a runtime repository', async (url) => {
    const field = 'custom_overlay.contents.runtime_repositories[1]'
    expectFailure(await attempt(repositories('https://packages.example/main', url)), { code: 3, fields: [field] })
  })

  // docs/spec/registry.md#custom-overlays
  test.each([['https://packages.example/main'], ['https://93.184.216.34/main'], ['https://localhost.example/'], ['https://[2606:2800:220:1::1]/']])(
    'custom overlays accept %s as a runtime repository',
    async (url) => {
      expect((await attempt(repositories(url))).code).toBe(0)
    },
  )

  // docs/spec/registry.md#custom-overlays
  test.each([
    ['text that is not a key', 'ssh-rsa AAAA'],
    ['a private key', rsaPrivateKey],
    ['a key in a block of another type', pkcs1Key],
    ['an elliptic-curve key', ecKey],
    ['two keys', rsaKey + rsaKey],
    ['a key and a private key', rsaKey + rsaPrivateKey],
    ['text before the key', `key:\n${rsaKey}`],
    ['a block of invalid data', '-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n'],
    ['a certificate', certificate],
  ])('custom overlays refuse as a key of a runtime keyring: %s', async (_, content) => {
    expectFailure(await attempt(keyring({ name: 'good', content: rsaKey }, { name: 'bad', content })), { code: 3, fields: [`${keyringField}[1].content`] })
  })

  // docs/spec/registry.md#custom-overlays
  test('custom overlays accept a key with line ends of either sort', async () => {
    expect((await attempt(keyring({ name: 'unix', content: rsaKey }, { name: 'dos', content: rsaKey.replaceAll('\n', '\r\n') }))).code).toBe(0)
  })

  // docs/spec/registry.md#custom-overlays
  test.each([
    ['used twice', [{ name: 'one' }, { name: 'one' }], '[1]'],
    ['reserved', [{ name: 'platform.rsa.pub' }], '[0]'],
    ['a dot file', [{ name: '.key' }], '[0]'],
    ['a path', [{ name: 'a/b' }], '[0]'],
    ['a path with backslashes', [{ name: 'a\\b' }], '[0]'],
    ['the parent folder', [{ name: '..' }], '[0]'],
  ] as const)('custom overlays refuse a key name that is %s', async (_, entries, at) => {
    const reply = await attempt(keyring(...entries.map((entry) => ({ ...entry, content: rsaKey }))))
    expectFailure(reply, { code: 3, fields: [`${keyringField}${at}.name`] })
  })

  // docs/spec/registry.md#custom-overlays
  test('limit a keyring to 512 KiB in all', async () => {
    const padded = rsaKey + ' '.repeat(300_000 - rsaKey.length)
    expect((await attempt(keyring({ name: 'one', content: padded }))).code).toBe(0)
    expectFailure(await attempt(keyring({ name: 'one', content: padded }, { name: 'two', content: padded })), { code: 3, fields: [keyringField] })
  })

  // docs/spec/registry.md#custom-overlays
  test.each([
    ['text that is not a certificate', 'certificate'],
    ['a key', rsaKey],
    ['a private key', certificateKey],
    ['a certificate and its private key', certificate + certificateKey],
    ['a chain of two', certificate + certificate],
    ['a block of invalid data', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'],
    ['a certificate of version 1', versionOne(certificate)],
  ])('custom overlays refuse as an additional certificate: %s', async (_, content) => {
    expectFailure(await attempt(certificates(certificate, content)), { code: 3, fields: [`${certificateField}[1].content`] })
  })

  // docs/spec/registry.md#custom-overlays
  test('limit additional certificates to 50 KiB in all', async () => {
    const padded = certificate + ' '.repeat(30_000 - certificate.length)
    expect((await attempt(certificates(padded))).code).toBe(0)
    expectFailure(await attempt(certificates(padded, padded)), { code: 3, fields: [certificateField] })
  })

  // docs/spec/registry.md#custom-overlays
  test('custom overlays report all faults at once, each at its own field, and never quote a key', async () => {
    const reply = await attempt({ ...keyring({ name: 'platform', content: rsaPrivateKey }), ...certificates('x'), environment: {} })
    expectFailure(reply, { code: 3, fields: [`${keyringField}[0].name`, `${keyringField}[0].content`, `${certificateField}[0].content`] })
    expect(JSON.stringify(fieldViolations(reply))).not.toContain(rsaPrivateKey.slice(100, 140))
    expect(createPublicKey(rsaKey).asymmetricKeyType).toBe('rsa')
  })

  // docs/spec/registry.md#custom-overlays
  test.each([
    ['environment', { environment: { TAPROOT_TOKEN: 'x' } }, 'custom_overlay.environment["TAPROOT_TOKEN"]'],
    ['annotations', { annotations: { 'dev.taproot.source': 'x' } }, 'custom_overlay.annotations["dev.taproot.source"]'],
    ['annotations', { annotations: { 'org.opencontainers.image.source': 'x' } }, 'custom_overlay.annotations["org.opencontainers.image.source"]'],
  ])('custom overlays refuse reserved keys in %s', async (_, overlay, field) => {
    expectFailure(await attempt(overlay), { code: 3, fields: [field] })
  })

  // docs/spec/registry.md#custom-overlays
  test('custom overlays reserve keys by their prefix only', async () => {
    const overlay = { environment: { MY_TAPROOT_TOKEN: 'x', taproot_x: 'y' }, annotations: { 'my.dev.taproot.x': 'x', 'org.opencontainer.x': 'y' } }
    expect((await attempt(overlay)).code).toBe(0)
  })
})
