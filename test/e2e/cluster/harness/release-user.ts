import { expect } from 'vitest'
import type { Cluster } from './cluster.ts'
import { cranePod, craneSecret } from './crane-pod.ts'
import { ask, startLoad, type Answer, type Ask } from './load.ts'
import { orReport } from './or-report.ts'
import { release } from './release.ts'

/** The name of the registry host inside the cluster. */
export const registryHost = 'taproot-registry.taproot.svc.cluster.local'
/** The image that `pushImage` pushes. */
export const image = `${registryHost}/acme/web/shop:1`
/** The roles that serve requests. */
export const served = ['api', 'registry'] as const

/** The organisation's operator and a workload of its namespace `acme`, as users of a release. Later methods need the state of earlier ones. */
export class ReleaseUser {
  readonly #cluster: Cluster
  /** URLs of the Services. */
  readonly urls = { api: '', registry: '' }
  /** An access token of the operator. */
  operator = ''
  /** The uid of the organisation. */
  group = ''
  /** Credentials of the workload at the registry host: `user:password` in base64. */
  deployer = ''

  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  /** Finds the Services, and signs in with the command in the notes of the release. */
  async signIn(notes: string): Promise<void> {
    for (const component of served) this.urls[component] = `http://${await this.#cluster.resolve(`taproot-${component}.${release}`)}`
    const [, command = ''] = /TOKEN=\$\(kubectl (.+)\)/.exec(notes) ?? []
    this.operator = (await this.#cluster.kubectl(command.split(' '))).trim()
  }

  /** Returns a request to the API by the operator. */
  request(path: string, more: Partial<Ask> = {}): Ask {
    return { url: `${this.urls.api}${path}`, headers: { authorization: `Bearer ${this.operator}`, 'content-type': 'application/json' }, ...more }
  }

  /** Returns the record in an answer, which must be 200. */
  async record(answer: Promise<Answer>): Promise<Record<string, unknown>> {
    const { status, text } = await answer
    expect({ status, text }).toMatchObject({ status: 200 })
    return JSON.parse(text) as Record<string, unknown> // a cast: every record is an object
  }

  /** Creates the organisation with the command in the notes of the release. */
  async makeOrganisation(notes: string): Promise<void> {
    const [, body = '', path = ''] = /-d '(.+)' \$API(\S+)/.exec(notes) ?? []
    this.group = String((await this.record(ask(this.request(path, { method: 'POST', body })))).uid)
  }

  /** Returns the uid in the status of an object in the namespace `acme`, such as `platformgroup/web`. */
  uidOf(object: string): Promise<string> {
    return this.#cluster.kubectl(['--namespace', 'acme', 'get', object, '--output', 'jsonpath={.status.uid}'])
  }

  /** Waits until every object of the namespace `acme` is ready. */
  allReady(): Promise<string> {
    return orReport(this.#cluster, () => this.#cluster.kubectl(['--namespace', 'acme', 'wait', 'platform', '--all', '--for=condition=Ready', '--timeout=60s']))
  }

  /** Returns the login of the service account `deployer` at the registry host: `user:password` in base64, with a new token. */
  async deployerLogin(audience: string): Promise<string> {
    const token = await this.#cluster.kubectl(['--namespace', 'acme', 'create', 'token', 'deployer', '--audience', audience])
    return Buffer.from(`${await this.uidOf('platformidentity/deployer')}:${token.trim()}`).toString('base64')
  }

  /** Runs crane in a pod to its end. Returns its output. */
  async runCrane(name: string, args: readonly string[]): Promise<string> {
    await this.#cluster.kubectl(['apply', '--filename', '-'], JSON.stringify(cranePod(name, args)))
    const wait = ['--namespace', 'acme', 'wait', `pod/${name}`, '--for=jsonpath={.status.phase}=Succeeded', '--timeout=60s']
    await orReport(this.#cluster, () => this.#cluster.kubectl(wait))
    return this.#cluster.kubectl(['--namespace', 'acme', 'logs', name])
  }

  /** Pushes `image` from a pod, as the workload. */
  async pushImage(): Promise<void> {
    this.deployer = await this.deployerLogin(registryHost)
    await this.#cluster.kubectl(['apply', '--filename', '-'], JSON.stringify(await craneSecret(registryHost, this.deployer)))
    await this.runCrane('pushes', ['append', '--oci-empty-base', '--new_layer=/crane/layer.tar', `--new_tag=${image}`])
  }

  /** Runs the step while requests of all kinds arrive at the Services. Fails if any of them fails. */
  async underLoad(step: () => Promise<void>): Promise<void> {
    const tokens = {
      url: `${this.urls.registry}/token?service=${registryHost}&scope=repository:acme/web/shop:pull,push`,
      headers: { authorization: `Basic ${this.deployer}` },
    }
    const authorization = `Bearer ${String((await this.record(ask(tokens))).token)}`
    const manifest = { url: `${this.urls.registry}/v2/acme/web/shop/manifests/1`, headers: { authorization } }
    const { type, text } = await ask(manifest)
    const load = startLoad({
      'read a group': () => this.request(`/iam/v2/groups/${this.group}`),
      'change a group': (count) => this.request(`/iam/v2/groups/${this.group}`, { method: 'PATCH', body: JSON.stringify({ description: `change ${count}` }) }),
      'sign in': () => tokens,
      pull: () => manifest,
      push: (count) => ({
        url: `${this.urls.registry}/v2/acme/web/shop/manifests/load-${count}`,
        method: 'PUT',
        headers: { authorization, 'content-type': type },
        body: text,
      }),
    })
    const { failed, answered } = await step().then(load.stop, async (error: unknown) => {
      await load.stop()
      throw error
    })
    expect(failed).toEqual([])
    expect(Object.values(answered).filter((count) => count > 10)).toHaveLength(5)
  }
}
