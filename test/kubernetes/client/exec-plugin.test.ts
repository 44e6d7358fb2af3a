import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { errorText } from '../../../src/base/error-text.ts'
import { ExecCredentials } from '../../../src/kubernetes/client/exec-plugin.ts'
import { base64, callerOf, clientWith, failureOf, own, person, plugin, prints, startBench, type Caller, type KubeconfigBench } from './kubeconfig-bench.ts'

let bench: KubeconfigBench
beforeAll(async () => {
  bench = await startBench()
})
afterAll(() => bench?.stop())

describe('an exec plugin of a kubeconfig', () => {
  test('it runs again only after its token expired', async () => {
    const later = new Date(Date.now() + 3_600_000).toISOString()
    const counting = (name: string, expirationTimestamp: string): Promise<string> =>
      plugin(bench, name, `echo run >> "$LOG"; ${prints({ token: 'from plugin', expirationTimestamp })}`)
    for (const [name, expiry, runs] of [['fresh', later, 1] as const, ['expired', '2020-01-01T00:00:00Z', 3] as const]) {
      const log = join(bench.folder, `${name}.log`)
      const client = await clientWith(bench, { exec: { command: await counting(name, expiry), env: [{ name: 'LOG', value: log }] } })
      for (let i = 0; i < 3; i += 1) expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer from plugin' })
      expect(readFileSync(log, 'utf8').split('\n').length - 1).toBe(runs)
    }
  })

  test('requests at the same time wait for one run', async () => {
    const log = join(bench.folder, 'once.log')
    const command = await plugin(bench, 'once', `echo run >> "$LOG"; sleep 0.3; ${prints({ token: 'shared' })}`)
    const client = await clientWith(bench, { exec: { command, env: [{ name: 'LOG', value: log }] } })
    await Promise.all([callerOf(bench, client), callerOf(bench, client), callerOf(bench, client)])
    expect(readFileSync(log, 'utf8')).toBe('run\n')
  })

  test('its certificate is that of the client', async () => {
    const command = await plugin(bench, 'certificate', prints({ clientCertificateData: person.certificate, clientKeyData: person.key }))
    expect(await callerOf(bench, await clientWith(bench, { exec: { command } }))).toMatchObject({ certificate: 'CN=person', authorization: undefined })
  })

  test('it gets its arguments, and what it asks for about the cluster', async () => {
    const out = join(bench.folder, 'info.json')
    const command = await plugin(bench, 'info', `printf '%s' "$KUBERNETES_EXEC_INFO" > "$OUT"; [ "$1 $2" = "get token" ] || exit 1; ${prints({ token: 'T' })}`)
    const exec = {
      apiVersion: 'client.authentication.k8s.io/v1beta1',
      command,
      args: ['get', 'token'],
      env: [{ name: 'OUT', value: out }],
      provideClusterInfo: true,
      interactiveMode: 'Never',
    }
    const extensions = [
      { name: 'other', extension: { kind: 'Other' } },
      { name: 'client.authentication.k8s.io/exec', extension: { audience: 'a', list: [1] } },
    ]
    const cluster = { 'certificate-authority-data': base64(own.certificate), extensions }
    expect(await callerOf(bench, await clientWith(bench, { exec }, cluster))).toMatchObject({ authorization: 'Bearer T' })
    expect(JSON.parse(readFileSync(out, 'utf8'))).toEqual({
      apiVersion: 'client.authentication.k8s.io/v1beta1',
      kind: 'ExecCredential',
      spec: { interactive: false, cluster: { server: bench.url, 'certificate-authority-data': base64(own.certificate), config: { audience: 'a', list: [1] } } },
    })
  })

  test.each([
    ['that fails', 'echo "s3cret in stderr" >&2; echo s3cret; exit 3', /failed with exit code 3/],
    ['that prints no credential', 'echo "{}"', /printed no credential/],
    ['with an empty credential', prints({}), /neither a token nor a certificate/],
    ['with an empty token', prints({ token: ' ' }), /neither a token nor a certificate/],
    ['with a certificate but no key', prints({ clientCertificateData: person.certificate }), /without its key/],
    ['with a number for a token', prints({ token: 1 }), /status.token must be text/],
    ['with a date that cannot be read', prints({ token: 's3cret', expirationTimestamp: 'tomorrow' }), /expirationTimestamp is not a time of RFC 3339/],
    ['that prints no JSON', 'echo s3cret', /printed no JSON/],
    ['that prints too much', 'yes s3cret', /printed more than 1024 KiB/],
  ])('a plugin %s is an error with its reason and without its output, and runs again for the next request', async (title, script, reason) => {
    const name = title.replaceAll(' ', '-')
    const client = await clientWith(bench, { exec: { command: await plugin(bench, name, script), args: ['s3cret'] } })
    const failed = await failureOf(client)
    expect(failed).toMatchObject({ reason: 'unauthorized', cause: { message: expect.stringMatching(reason) as unknown } })
    expect(inspect(failed)).not.toContain('s3cret')
    await plugin(bench, name, prints({ token: 'now' }))
    expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer now' })
  })

  test('a credential that the API server refuses is dropped, once for all requests that had it', async () => {
    const log = join(bench.folder, 'refused.log')
    const status = { token: 'run-$(wc -l < "$LOG" | tr -d " ")', expirationTimestamp: null }
    const command = await plugin(
      bench,
      'refused',
      `echo run >> "$LOG"; ${prints(status)
        .replace("'END'", 'END')
        .replaceAll(String.raw`\"`, '"')}`,
    )
    const client = await clientWith(bench, { exec: { command, env: [{ name: 'LOG', value: log }] } })
    for (let i = 0; i < 2; i += 1) expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer run-1' })
    bench.refused.add('run-1')
    const failed = await Promise.all([failureOf(client), failureOf(client), failureOf(client)])
    expect(failed.map(({ reason }) => reason)).toEqual(['unauthorized', 'unauthorized', 'unauthorized'])
    for (let i = 0; i < 2; i += 1) expect(await callerOf(bench, client)).toMatchObject({ authorization: 'Bearer run-2' })
  })

  test('a credential that was refused does not drop a newer one', async () => {
    const log = join(bench.folder, 'newer.log')
    const command = join(bench.folder, await plugin(bench, 'newer', `echo run >> "$LOG"; ${prints({ token: 'T' })}`))
    const credentials = new ExecCredentials({ ...bare, command, env: { ...process.env, LOG: log } })
    const first = await credentials.get()
    credentials.drop(first)
    const second = await credentials.get()
    credentials.drop(first)
    expect(await credentials.get()).toBe(second)
    expect(readFileSync(log, 'utf8')).toBe('run\nrun\n')
  })

  test.each<[string, object, Partial<Caller>]>([
    ['token', { token: 'own' }, { authorization: 'Bearer own' }],
    ['name', { username: 'u', password: 'p' }, { authorization: `Basic ${base64('u:p')}` }],
    [
      'certificate',
      { 'client-certificate-data': base64(person.certificate), 'client-key-data': base64(person.key) },
      { certificate: 'CN=person', authorization: undefined },
    ],
  ])('it does not run for a user with a %s', async (_title, user, seen) => {
    expect(await callerOf(bench, await clientWith(bench, { ...user, exec: { command: 'taproot-no-such-plugin' } }))).toMatchObject(seen)
  })

  test('one that is not installed is an error that says how to install it', async () => {
    const client = await clientWith(bench, { exec: { command: 'taproot-no-such-plugin', installHint: 'Install\n\u001B[31mit\u001B[0m.' } })
    expect(errorText(await failureOf(client))).toContain('taproot-no-such-plugin was not found. Install it.')
  })

  test('its input ends at once', async () => {
    const command = await plugin(bench, 'reader', `cat > /dev/null; ${prints({ token: 'read' })}`)
    expect(await callerOf(bench, await clientWith(bench, { exec: { command } }))).toMatchObject({ authorization: 'Bearer read' })
  })

  test('one that takes too long is killed, although it ignores the request to end', async () => {
    const pid = join(bench.folder, 'stuck.pid')
    const command = join(bench.folder, await plugin(bench, 'stuck', `trap '' TERM; echo $$ > "$PID.new"; mv "$PID.new" "$PID"; while :; do sleep 0.1; done`))
    const credentials = new ExecCredentials({ ...bare, command, env: { ...process.env, PID: pid } }, 2000)
    await expect(credentials.get()).rejects.toThrow('took too long')
    const stuck = Number(readFileSync(pid, 'utf8'))
    await expect.poll(() => isRunning(stuck)).toBe(false)
  })
})

/** A plugin without a command. */
const bare = { args: [], apiVersion: 'client.authentication.k8s.io/v1', cluster: undefined }

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
