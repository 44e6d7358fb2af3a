import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect } from 'vitest'
import { Cosign, offline } from '../../../registry/clients/cosign/cosign.ts'
import { crane, type CraneOptions } from '../../../support/parts/crane.ts'
import { requirePart } from '../../../support/parts/require-part.ts'
import { until } from '../../process/harness/ops.ts'
import type { Cluster } from './cluster.ts'
import { ask } from './load.ts'
import { orReport } from './or-report.ts'
import { pushProgramImage } from './program-image.ts'
import type { ReleaseUser } from './release-user.ts'
import { shell } from './shell.ts'

const namespace = 'signed'
const secret = 'taproot-pull'

/** A cluster that pulls from the registry host, and options for clients on the machine that are signed in there. */
export interface SignedPulls {
  readonly cluster: Cluster
  readonly user: ReleaseUser
  readonly registry: string
  readonly options: CraneOptions
}

/** An index with one image, as it was pushed. */
interface PushedIndex {
  /** The repository, with the registry host. */
  readonly path: string
  /** Digests of the index and of its image. */
  readonly index: string
  readonly image: string
}

/** Pushes an index of one image to a repository of its own, under the tag `1`. */
async function pushIndex({ registry, options }: SignedPulls, name: string): Promise<PushedIndex> {
  const path = `${registry}/acme/web/${name}`
  const digestOf = async (tag: string): Promise<string> => (await crane(['--insecure', 'digest', `${path}:${tag}`], options)).stdout.trim()
  await pushProgramImage({ name: `${path}:image`, programs: [requirePart('pause')] }, options)
  expect(await crane(['--insecure', 'index', 'append', '--manifest', `${path}:image`, '--tag', `${path}:1`], options)).toMatchObject({ code: 0 })
  return { path, index: await digestOf('1'), image: await digestOf('image') }
}

/** Creates a pod that pulls an image by its name. */
function startPod(cluster: Cluster, pod: string, image: string): Promise<string> {
  const container = { name: 'pause', image, imagePullPolicy: 'Always' }
  const spec = { imagePullSecrets: [{ name: secret }], automountServiceAccountToken: false, containers: [container] }
  const object = { apiVersion: 'v1', kind: 'Pod', metadata: { name: pod }, spec }
  return cluster.kubectl(['--namespace', namespace, 'apply', '--filename', '-'], JSON.stringify(object))
}

/** Waits until the pods run. */
async function awaitReady(cluster: Cluster, ...pods: readonly string[]): Promise<void> {
  const names = pods.map((pod) => `pod/${pod}`)
  await orReport(cluster, () => cluster.kubectl(['--namespace', namespace, 'wait', ...names, '--for=condition=Ready', '--timeout=120s']))
}

/** Waits until the events of the pod say that its pull is forbidden. */
async function awaitRefused(cluster: Cluster, pod: string): Promise<void> {
  const isRefused = async (): Promise<boolean> =>
    /Failed to pull image [^\n]*403 Forbidden/.test(await cluster.kubectl(['--namespace', namespace, 'describe', 'pod', pod]))
  await orReport(cluster, () => until(isRefused, 60_000))
}

/** Makes a Secret for a namespace of its own that may pull, and no more. Resolves with options for a client with the same rights. */
async function makePullSecret({ cluster, user, registry, options }: SignedPulls, home: string): Promise<CraneOptions> {
  await cluster.kubectl(['create', 'namespace', namespace])
  const token = join(home, 'token')
  await writeFile(token, user.operator)
  const here = `--url ${user.urls.api} --registry ${registry} --token-file ${token}`
  const make = `${process.execPath} bin/taproot.js pull-token create --group acme/web --name ${namespace} ${here} --secret ${secret}`
  await shell(cluster, `${make} | kubectl -n ${namespace} apply -f -`)
  const config = await cluster.kubectl(['--namespace', namespace, 'get', 'secret', secret, '--output', 'jsonpath={.data.\\.dockerconfigjson}'])
  await writeFile(join(home, 'config.json'), Buffer.from(config, 'base64'))
  return { ...options, env: { ...options.env, DOCKER_CONFIG: home } }
}

/**
 * Lets a group require signatures of cosign, and pods pull two indexes, one of them signed. The kubelet pulls the image of an index by digest. Pods of the
 * signed one must run, by tag and by the digest of its image. Those of the other one must be refused until it is signed, too.
 */
export async function startSigned(pulls: SignedPulls): Promise<void> {
  const { cluster, user, options } = pulls
  const cosign = await Cosign.start()
  try {
    const puller = await makePullSecret(pulls, cosign.home)
    const [signed, unsigned] = [await pushIndex(pulls, 'signed'), await pushIndex(pulls, 'unsigned')]
    const signer = await cosign.keyPair('signer')
    const rules = [{ requireSignature: { keys: [signer.pem] }, mode: 'ENFORCE', onUnknown: 'DENY' }]
    const policies = `/registry/v2/pullPolicies/${await user.uidOf('platformgroup/web')}`
    await user.record(ask(user.request(policies, { method: 'POST', body: JSON.stringify({ name: 'signed', rules }) })))
    const sign = ({ path, index }: PushedIndex): Promise<void> =>
      cosign.run(['sign', ...offline, '--key', signer.file, `${path}@${index}`], options.env === undefined ? {} : { env: options.env })

    await sign(signed)
    for (const [name, { path, image }] of Object.entries({ signed, unsigned })) {
      await startPod(cluster, name, `${path}:1`)
      await startPod(cluster, `${name}-image`, `${path}@${image}`)
    }
    await awaitReady(cluster, 'signed', 'signed-image')
    for (const pod of ['unsigned', 'unsigned-image']) await awaitRefused(cluster, pod)
    const { stderr } = await crane(['--insecure', 'manifest', `${unsigned.path}@${unsigned.image}`], puller)
    expect(stderr).toContain('DENIED: a pull policy refuses this: signed (requireSignature: there is no signature')
    await sign(unsigned)
    await awaitReady(cluster, 'unsigned', 'unsigned-image')
  } finally {
    await cosign.stop()
  }
}
