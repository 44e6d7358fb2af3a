import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isFullTier } from '../../support/tier.ts'
import type { ClientResult } from '../../support/parts/run-client.ts'
import { describeOverBoth, type ClientWorld } from './client-world.ts'
import { ctrFlags, ctrPull, withContainerd } from './containerd.ts'
import { writeImageLayout } from './image.ts'

/** The steps of a client in its own repository: push, list, copy, pull, attach and delete, as far as the client supports them. */
type Session = (world: ClientWorld, repository: string) => Promise<void>

/** The digest of the image in the layout `image`. */
let digest: string

const skopeo: Session = async ({ run, token, host }, repository) => {
  const at = `docker://${repository}`
  await run('skopeo', ['login', '--tls-verify=false', '-u', '_token', '--password-stdin', host], { stdin: token })
  await run('skopeo', ['copy', '--dest-tls-verify=false', 'oci:image:v1', `${at}:v1`])
  expect(JSON.parse(await run('skopeo', ['inspect', '--tls-verify=false', `${at}:v1`]))).toMatchObject({ Digest: digest, Architecture: 'amd64' })
  await run('skopeo', ['copy', '--src-tls-verify=false', '--dest-tls-verify=false', `${at}:v1`, `${at}-copy:v2`])
  expect(JSON.parse(await run('skopeo', ['list-tags', '--tls-verify=false', `${at}-copy`]))).toMatchObject({ Tags: ['v2'] })
  await run('skopeo', ['copy', '--src-tls-verify=false', `${at}@${digest}`, 'oci:skopeo-pulled:v1'])
  await run('skopeo', ['delete', '--tls-verify=false', `${at}:v1`])
  await expect(run('skopeo', ['inspect', '--tls-verify=false', `${at}:v1`])).rejects.toThrow(/manifest unknown|no such manifest/)
}

const oras: Session = async ({ run, token, host, home }, repository) => {
  const plain = '--plain-http'
  const kind = ['--artifact-type', 'application/vnd.example.thing']
  await writeFile(join(home, 'thing.txt'), 'a thing')
  await writeFile(join(home, 'note.txt'), 'a note')
  await run('oras', ['login', plain, '-u', '_token', '--password-stdin', host], { stdin: token })
  await run('oras', ['push', plain, ...kind, `${repository}:v1`, 'thing.txt:text/plain'])
  await run('oras', ['tag', plain, `${repository}:v1`, 'v2'])
  expect(await run('oras', ['repo', 'tags', plain, repository])).toBe('v1\nv2')
  await run('oras', ['attach', plain, '--artifact-type', 'application/vnd.example.note', `${repository}:v1`, 'note.txt'])
  expect(JSON.parse(await run('oras', ['discover', plain, '--format', 'json', `${repository}:v1`]))).toMatchObject({
    referrers: [{ artifactType: 'application/vnd.example.note' }],
  })
  await run('oras', ['copy', '--recursive', '--from-plain-http', '--to-plain-http', `${repository}:v1`, `${repository}-copy:v1`])
  await run('oras', ['pull', plain, '--output', 'oras-pulled', `${repository}-copy:v1`])
  expect(await readFile(join(home, 'oras-pulled', 'thing.txt'), 'utf8')).toBe('a thing')
  await run('oras', ['manifest', 'delete', plain, '--force', `${repository}-copy:v1`])
  await expect(run('oras', ['pull', plain, `${repository}-copy:v1`])).rejects.toThrow('not found')
}

const regctl: Session = async ({ run, token, host, home }, repository) => {
  await writeFile(join(home, 'note.txt'), 'a note')
  await run('regctl', ['registry', 'set', '--skip-check', '--tls', 'disabled', host])
  await run('regctl', ['registry', 'login', host, '-u', '_token', '--pass-stdin'], { stdin: token })
  await run('regctl', ['image', 'copy', 'ocidir://image:v1', `${repository}:v1`])
  expect(await run('regctl', ['image', 'digest', `${repository}:v1`])).toBe(digest)
  await run('regctl', ['image', 'copy', `${repository}:v1`, `${repository}-copy:v2`])
  expect(await run('regctl', ['tag', 'ls', `${repository}-copy`])).toBe('v2')
  await run('regctl', ['artifact', 'put', '--artifact-type', 'application/vnd.example.note', '--subject', `${repository}:v1`, '--file', 'note.txt'])
  expect(await run('regctl', ['artifact', 'list', `${repository}:v1`])).toContain('application/vnd.example.note')
  await run('regctl', ['image', 'export', `${repository}:v1`, 'regctl-pulled.tar'])
  expect((await stat(join(home, 'regctl-pulled.tar'))).size).toBeGreaterThan(100_000)
  await run('regctl', ['tag', 'delete', `${repository}-copy:v2`])
  expect(await run('regctl', ['tag', 'ls', `${repository}-copy`]).catch(() => '')).toBe('')
  await run('regctl', ['manifest', 'delete', '--force-tag-dereference', `${repository}:v1`])
  await expect(run('regctl', ['manifest', 'head', `${repository}:v1`])).rejects.toThrow('not found')
}

/** podman and buildah, which share their commands for images. */
const containersOf =
  (part: 'podman' | 'buildah'): Session =>
  async ({ run, token, host, home }, repository) => {
    const store = ['--storage-driver', 'vfs', '--root', join(home, part), '--runroot', join(home, `${part}-run`)]
    await writeFile(join(home, 'policy.json'), JSON.stringify({ default: [{ type: 'insecureAcceptAnything' }] }))
    const there = ['--tls-verify=false']
    const policy = ['--signature-policy', 'policy.json']
    await run(part, ['login', ...there, '-u', '_token', '--password-stdin', host], { stdin: token })
    await run(part, [...store, 'pull', ...policy, 'oci:image:v1'])
    const id = (await run(part, [...store, 'images', '--quiet'])).split('\n')[0] ?? ''
    await run(part, [...store, 'push', ...there, ...policy, id, `docker://${repository}:v1`])
    await run(part, [...store, 'rmi', '--all', '--force'])
    await run(part, [...store, 'pull', ...there, ...policy, `${repository}:v1`])
    await run(part, [...store, 'tag', `${repository}:v1`, `${repository}:v2`])
    await run(part, [...store, 'push', ...there, ...policy, `${repository}:v2`])
    expect(await run(part, [...store, 'images'])).toContain(repository)
    await run(part, [...store, 'rmi', '--all', '--force'])
  }

const helm: Session = async ({ run, token, host, home, organisation }) => {
  const chart = join(home, 'helm-chart')
  await mkdir(join(chart, 'templates'), { recursive: true })
  await writeFile(join(chart, 'Chart.yaml'), 'apiVersion: v2\nname: helm-chart\nversion: 1.2.3\n')
  await run('helm', ['package', chart])
  await run('helm', ['registry', 'login', '--plain-http', '-u', '_token', '--password-stdin', host], { stdin: token })
  await run('helm', ['push', '--plain-http', 'helm-chart-1.2.3.tgz', `oci://${host}/${organisation}/charts`])
  await rm(join(home, 'helm-chart-1.2.3.tgz'))
  const reference = `oci://${host}/${organisation}/charts/helm-chart`
  expect(await run('helm', ['show', 'chart', '--plain-http', reference])).toContain('version: 1.2.3')
  await run('helm', ['pull', '--plain-http', reference, '--version', '1.2.3'])
  expect((await stat(join(home, 'helm-chart-1.2.3.tgz'))).size).toBeGreaterThan(100)
}

const cosign: Session = async ({ run, token, host }, repository) => {
  const plain = ['--allow-http-registry', '--allow-insecure-registry']
  const env = { COSIGN_PASSWORD: '' }
  await run('cosign', ['login', host, '-u', '_token', '--password-stdin'], { stdin: token })
  await run('crane', ['push', '--insecure', 'image', `${repository}:v1`])
  await run('cosign', ['generate-key-pair'], { env })
  const image = `${repository}@${digest}`
  const offline = ['--use-signing-config=false', '--tlog-upload=false', '--yes']
  await run('cosign', ['sign', ...plain, ...offline, '--key', 'cosign.key', image], { env })
  await run('cosign', ['verify', ...plain, '--insecure-ignore-tlog', '--key', 'cosign.pub', image])
  expect(await run('cosign', ['tree', ...plain, image])).toContain('sha256:')
  await run('cosign', ['copy', ...plain, `${repository}:v1`, `${repository}-copy:v1`])
  expect(await run('crane', ['digest', '--insecure', `${repository}-copy:v1`])).toBe(digest)
}

/** Pulls with a separate containerd, like Kubernetes and docker. */
const containerd: Session = ({ run, token, home }, repository) =>
  withContainerd(home, async (ctr) => {
    await run('crane', ['auth', 'login', repository.split('/')[0] ?? '', '-u', '_token', '--password-stdin'], { stdin: token })
    await run('crane', ['push', '--insecure', 'image', `${repository}:v1`])
    const ended = async (ending: Promise<ClientResult>): Promise<string> => {
      const { code, stdout, stderr } = await ending
      expect({ code, stderr }).toMatchObject({ code: 0 })
      return stdout
    }
    await ended(ctrPull(ctr, { image: `${repository}:v1`, token }))
    expect(await ended(ctr(['images', 'list']))).toContain(digest)
    await ended(ctr(['images', 'tag', `${repository}:v1`, `${repository}-pushed:v2`]))
    await ended(ctr(['images', 'push', '--local', ...ctrFlags(token), `${repository}-pushed:v2`]))
    expect(await run('crane', ['digest', '--insecure', `${repository}-pushed:v2`])).toBe(digest)
  })

/** The clients that docs/registry.md names; `npm test` runs the first. */
const sessions = { skopeo, oras, regctl, containerd, podman: containersOf('podman'), buildah: containersOf('buildah'), helm, cosign } as const

describeOverBoth('real clients', (start) => {
  let world: ClientWorld

  beforeAll(async () => {
    world = await start()
    digest = await writeImageLayout(join(world.home, 'image'))
  })

  afterAll(() => world?.stop())

  for (const [name, session] of Object.entries(sessions)) {
    test.runIf(isFullTier || name === 'skopeo')(`${name} pushes, pulls and uses its other commands`, () =>
      session(world, `${world.host}/${world.organisation}/${name}`),
    )
  }
})
