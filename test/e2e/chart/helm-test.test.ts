import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer as createHttpServer, type ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { selfSigned, type TestCertificate } from '../../auth/certificate.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { freshDirectory } from '../process/harness/taproot-process.ts'
import { one, render, type Rendered } from './helm.ts'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

const host = 'registry.example.com'
const realm = 'https://platform.example.com/token'

/** Starts a server that answers like the registry host, over TLS if it has a certificate. Resolves to its address. */
async function startHost(certificate?: TestCertificate): Promise<string> {
  const answer = (_: unknown, response: ServerResponse): void => {
    response.writeHead(401, { 'WWW-Authenticate': `Bearer realm="${realm}",service="${host}"` }).end()
  }
  const server = certificate === undefined ? createHttpServer(answer) : createServer({ cert: certificate.certificate, key: certificate.key }, answer)
  const port = await listenOnLoopback(server)
  onTestFinished(() => void server.close())
  return `${certificate === undefined ? 'http' : 'https'}://localhost:${port}`
}

describeWithPart('helm', 'the helm test pods', () => {
  const podOf = async (): Promise<Rendered['spec']> => {
    const tls = { existingSecret: 'registry-tls' }
    const objects = await render({ baseUrl: 'https://platform.example.com', registry: { host, tls } })
    return one(objects, 'Pod', 'taproot-test-registry').spec
  }
  /** Runs the script of the pod against another address. */
  const run = async (service: string, authority: string | undefined): Promise<{ code: number | null; printed: string }> => {
    const [{ command, args, env }] = (await podOf()).containers
    const file = join(await freshDirectory(), 'ca.crt')
    if (authority !== undefined) await writeFile(file, authority)
    const set = Object.fromEntries(env.map(({ name, value }: { name: string; value: string }) => [name, value])) as Record<string, string>
    expect(set).toMatchObject({ HOST: host, REALM: realm.replace('platform.example.com', host) })
    const more = { SERVICE: service, REALM: realm, NODE_EXTRA_CA_CERTS: file }
    const child = spawn(process.execPath, [...command.slice(1), ...args], { env: { ...set, ...more }, stdio: ['ignore', 'pipe', 'pipe'] })
    const [out, err] = [text(child.stdout), text(child.stderr)]
    const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
    return { code, printed: (await out) + (await err) }
  }

  test('the helm test pods trust the certificate authority in the Secret, for the public host name', async () => {
    const certificate = selfSigned(host)
    expect(await run(await startHost(certificate), certificate.certificate)).toEqual({
      code: 0,
      printed: expect.stringMatching(/ok +without a token it refuses\nok +tokens are at/) as unknown,
    })
    const { volumes } = await podOf()
    expect(volumes[0].projected.sources).toEqual([{ secret: { name: 'registry-tls', items: [{ key: 'ca.crt', path: 'ca.crt' }], optional: true } }])
  })

  test('the helm test pods trust no other certificate authority', async () => {
    const address = await startHost(selfSigned(host))
    for (const authority of [selfSigned(host).certificate, undefined])
      expect(await run(address, authority)).toMatchObject({ code: 1, printed: expect.stringMatching(/SELF_SIGNED|unable to verify|self-signed/) as unknown })
  })

  test('the helm test pods refuse a certificate of another name, even that of the Service', async () => {
    const certificate = selfSigned('localhost')
    expect(await run(await startHost(certificate), certificate.certificate)).toMatchObject({
      code: 1,
      printed: expect.stringContaining('ERR_TLS_CERT_ALTNAME_INVALID') as unknown,
    })
  })

  test('the helm test pods need no certificate if the pods serve without TLS', async () => {
    expect(await run(await startHost(), undefined)).toMatchObject({ code: 0 })
  })
})
