import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer as createProxy } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { stringify } from 'yaml'
import { errorText } from '../../../src/base/error-text.ts'
import { selfSigned } from '../../auth/certificate.ts'
import { base64, callerOf, clientOf, clientWith, configOf, failureOf, own, person, startBench, type Caller, type KubeconfigBench } from './kubeconfig-bench.ts'

let bench: KubeconfigBench
beforeAll(async () => {
  bench = await startBench()
})
afterAll(() => bench?.stop())

describe('a user of a kubeconfig', () => {
  test.each<[string, object, Partial<Caller>]>([
    ['a token', { token: 'T' }, { authorization: 'Bearer T' }],
    ['a name and password', { username: 'u', password: 'p:w' }, { authorization: `Basic ${base64('u:p:w')}` }],
    ['a certificate', { 'client-certificate-data': base64(person.certificate), 'client-key-data': base64(person.key) }, { certificate: 'CN=person' }],
    ['no credential', {}, { authorization: undefined, certificate: undefined }],
  ])('%s reaches the API server', async (_title, user, seen) => {
    expect(await callerOf(bench, await clientWith(bench, user))).toMatchObject(seen)
  })

  test('files are named relative to the kubeconfig, and read again for each request', async () => {
    for (const [name, text] of Object.entries({ ca: own.certificate, cert: person.certificate, key: person.key, token: 'one\n' })) {
      await writeFile(join(bench.folder, `${name}.pem`), text)
    }
    const user = { 'client-certificate': 'cert.pem', 'client-key': 'key.pem', tokenFile: 'token.pem', token: 'not this one' }
    const client = await clientWith(bench, user, { 'certificate-authority': 'ca.pem' })
    expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer one', certificate: 'CN=person' })
    await writeFile(join(bench.folder, 'token.pem'), 'two\n')
    const other = selfSigned('other')
    await writeFile(join(bench.folder, 'cert.pem'), other.certificate)
    await writeFile(join(bench.folder, 'key.pem'), other.key)
    expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer two', certificate: 'CN=other' })
  })

  test('a user to act as reaches the API server with all that the kubeconfig says', async () => {
    const scopes = { scopes: ['view', 'deploy'], 'example.com/Team (a)': ['one'] }
    const user = { token: 'T', as: 'someone', 'as-uid': '7', 'as-groups': ['a', 'b'], 'as-user-extra': scopes }
    expect(await callerOf(bench, await clientWith(bench, user))).toMatchObject({
      authorization: 'Bearer T',
      headers: {
        'impersonate-user': ['someone'],
        'impersonate-uid': ['7'],
        'impersonate-group': ['a', 'b'],
        'impersonate-extra-scopes': ['view', 'deploy'],
        'impersonate-extra-example.com%2fteam%20%28a%29': ['one'],
      },
    })
  })

  test.each<[string, object, string]>([
    ['an auth-provider', { 'auth-provider': { name: 'oidc' } }, 'users[0].user.auth-provider is not supported by Taproot: use exec'],
    ['groups to act with, but no user', { token: 'T', 'as-groups': ['a'] }, 'users[0].user.as is missing'],
    ['a uid to act with, but no user', { token: 'T', 'as-uid': '7' }, 'users[0].user.as is missing'],
    ['more to act with, but no user', { token: 'T', 'as-user-extra': { a: ['b'] } }, 'users[0].user.as is missing'],
    ['a token that is a number', { token: 31_337 }, 'users[0].user.token must be text'],
    ['a password that is a number', { username: 'u', password: 31_337 }, 'users[0].user.password must be text'],
    ['a group that is a number', { as: 'a', 'as-groups': ['b', 31_337] }, 'users[0].user.as-groups[1] must be text'],
    ['a variable that is a number', { exec: { command: 'x', env: [{ name: 'A', value: 31_337 }] } }, 'users[0].user.exec.env[0].value must be text'],
    ['an argument that is a number', { exec: { command: 'x', args: [31_337] } }, 'users[0].user.exec.args[0] must be text'],
    ['a key that is not base64', { 'client-certificate-data': 'AAAA', 'client-key-data': '31337!' }, 'users[0].user.client-key-data is not valid base64'],
    ['a certificate without a key', { 'client-certificate-data': 'AAAA' }, 'users[0].user.client-key is missing'],
    ['a token and a user name', { token: 'T', username: 'u' }, 'users[0].user.username must not be set with a token'],
    ['a plugin without a command', { exec: {} }, 'users[0].user.exec.command is missing'],
    ['a plugin that needs a terminal', { exec: { command: 'x', interactiveMode: 'Always' } }, 'interactiveMode must not be Always'],
    ['a plugin of another mode', { exec: { command: 'x', interactiveMode: 'Sometimes' } }, 'interactiveMode must be Never or IfAvailable'],
  ])('%s is refused with the name of the field', async (_title, user, reason) => {
    const refused = await clientWith(bench, user).catch(errorText)
    expect(refused).toContain(reason)
    expect(refused).not.toContain('31337')
  })

  test('fields that are null are absent', async () => {
    const client = await clientWith(bench, { token: 'T', exec: null, 'auth-provider': null, 'as-groups': null, username: null })
    expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer T' })
  })

  test('an empty token file is an error', async () => {
    await writeFile(join(bench.folder, 'empty'), '\n')
    expect(errorText(await failureOf(await clientWith(bench, { tokenFile: 'empty' })))).toMatch(/token file .*empty is empty/)
  })
})

describe('the text of a kubeconfig', () => {
  const yamlOf = (user: string): string => stringify(configOf(bench, { replaced: true })).replace('replaced: true', user)

  test.each<[string, (text: string) => string]>([
    ['merge keys', (text) => text.replace('token: T', '<<: {token: T}')],
    ['a second document', (text) => `${text}---\n`],
    ['a scheme in upper case', (text) => text.replace('https:', 'HTTPS:')],
  ])('may have %s', async (_title, change) => {
    expect(await callerOf(bench, await clientOf(bench, change(yamlOf('token: T'))))).toMatchObject({ authorization: 'Bearer T' })
  })

  test.each([
    ['text that is not YAML', 'token: "s3cret\\q"', /config, line \d+, column \d+: not valid YAML$/],
    ['the same key twice', 'token: s3cret\n      token: s3cret', /config, line \d+, column \d+: not valid YAML$/],
    ['a text with a leading asterisk', 'token: *s3cret', /config: it has an alias/],
    ['a user that is text', '- s3cret', /config: users\[0\].user must be a mapping/],
  ])('%s is an error that names the place and not the text', async (_title, user, reason) => {
    const refused = await clientOf(bench, yamlOf(user)).catch(errorText)
    expect(refused).toMatch(reason)
    expect(refused).not.toContain('s3cret')
  })

  test('an unknown tag causes no warning with the text', async () => {
    const warned: unknown[] = []
    const listener = (warning: unknown): void => void warned.push(warning)
    process.on('warning', listener)
    onTestFinished(() => void process.off('warning', listener))
    expect(await callerOf(bench, await clientOf(bench, yamlOf('token: !s3cret T')))).toMatchObject({ authorization: 'Bearer T' })
    expect(warned).toEqual([])
  })
})

describe('a cluster of a kubeconfig', () => {
  const unknown = base64(person.certificate)

  test.each<[string, object, Partial<Caller>]>([
    [
      'another name in its certificate',
      { 'certificate-authority-data': base64(own.certificate), 'tls-server-name': 'kube.example' },
      { serverName: 'kube.example' },
    ],
    ['a certificate that is not verified', { 'insecure-skip-tls-verify': true }, {}],
  ])('with %s is reached', async (_title, cluster, seen) => {
    expect(await callerOf(bench, await clientWith(bench, { token: 'T' }, cluster))).toMatchObject({ authorization: 'Bearer T', ...seen })
  })

  test.each<[string, object]>([
    ['another authority', { 'certificate-authority-data': unknown }],
    ['no authority', {}],
    ['another name', { 'certificate-authority-data': base64(own.certificate), 'tls-server-name': 'other.example' }],
  ])('with %s gets no credential', async (_title, cluster) => {
    bench.callers.length = 0
    const client = await clientWith(bench, { token: 'T' }, cluster)
    expect(await failureOf(client)).toMatchObject({ reason: 'unavailable' })
    expect(bench.callers).toEqual([])
  })

  test('a proxy is used for the connection', async () => {
    const targets: string[] = []
    const proxy = createProxy().on('connect', (request, socket) => {
      targets.push(request.url ?? '')
      const inner = connect(Number(request.url?.split(':')[1]), '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n')
        inner.pipe(socket).pipe(inner)
      })
      inner.on('error', () => socket.destroy())
      socket.on('error', () => inner.destroy())
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    onTestFinished(() => void proxy.close())
    const cluster = { 'certificate-authority-data': base64(own.certificate), 'proxy-url': `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` }
    expect(await callerOf(bench, await clientWith(bench, { token: 'T' }, cluster))).toMatchObject({ authorization: 'Bearer T' })
    expect(targets).toEqual([bench.url.slice('https://'.length)])
  })

  test('a proxy of another kind is refused', async () => {
    await expect(clientWith(bench, {}, { 'proxy-url': 'socks5://127.0.0.1:1' })).rejects.toThrow('not an HTTP proxy')
  })

  test.each<[string, object, string]>([
    ['an authority and no verification', { 'certificate-authority-data': unknown, 'insecure-skip-tls-verify': true }, 'remove one of them'],
    ['an authority that is not base64', { 'certificate-authority-data': '-----BEGIN' }, 'clusters[0].cluster.certificate-authority-data is not valid base64'],
    ['text for a flag', { 'insecure-skip-tls-verify': 'yes' }, 'clusters[0].cluster.insecure-skip-tls-verify must be true or false'],
    ['no https', { server: 'http://127.0.0.1:1' }, 'not https'],
  ])('with %s is refused', async (_title, cluster, reason) => {
    await expect(clientWith(bench, { token: 'T' }, cluster)).rejects.toThrow(reason)
  })
})
