import { setTimeout as delay } from 'node:timers/promises'
import type { JsonObject } from '@bufbuild/protobuf'
import type { ApiClient, Options, Reply } from '../support/api-clients.ts'
import { builtInRoles } from '../../src/base/roles.ts'
import type { Subject } from './subject.ts'

/** Maximum attempts of a sign-in. */
const maxExchanges = 10

/** Maximum of groups and of identities of a worker, and their initial number. */
const maxLive = 80
/**
 * The interval between exchanges of access tokens, in milliseconds. With a clock 600 times as fast they live 6 s.
 * The server caches what it read of each for a second at most.
 */
const tokenLifeMs = 4_000
/** The share of `exchange` steps that exchange a token. */
const exchangePart = 0.1

const viewer = builtInRoles.find(({ name }) => name === 'viewer')?.uid ?? ''

/** The steps of a worker, repeated by their frequency. */
const steps = ['create', 'create', 'update', 'update', 'delete', 'bind', 'get', 'get', 'list', 'list', 'exchange', 'refused'] as const

interface Live {
  readonly kind: 'Group' | 'Identity'
  readonly uid: string
}

/** A client that endlessly creates, changes, deletes and reads in its own root group. Throws on an unexpected answer. */
export class Churner {
  operations = 0
  readonly #subject: Subject
  readonly #name: string
  #group = ''
  #identity = ''
  #live: Live[] = []
  #token = ''
  #tokenAt = -Infinity
  #names = 0

  constructor(subject: Subject, name: string) {
    this.#subject = subject
    this.#name = name
  }

  /** Runs at most one step per `pauseMs` until `signal` aborts, after `setUp`. */
  async run(pauseMs: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const startedAt = performance.now()
      await this.#step(steps[Math.floor(Math.random() * steps.length)] ?? 'get')
      this.operations += 1
      await delay(Math.max(1, pauseMs - (performance.now() - startedAt)))
    }
  }

  /** Creates the initial objects of the worker. */
  async setUp(): Promise<void> {
    const { started } = this.#subject
    const owner = builtInRoles.find(({ name }) => name === 'owner')?.uid ?? ''
    const as = async (): Promise<Options> => ({ token: await this.#subject.ask<string>({ ask: 'operator-token' }) })
    this.#group = uidOf(await this.#subject.rest.call('CreateGroup', { group: { name: this.#name } }, await as()))
    const identity = { name: 'owner', claimMatch: { issuer: `${started.baseUrl}/dev/issuer`, subject: this.#name } }
    this.#identity = uidOf(await this.#subject.rest.call('CreateIdentity', { parent: this.#group, identity }, await as()))
    await expectOk(
      this.#subject.rest.call('CreateRoleBinding', { parent: this.#group, roleBinding: { identityUid: this.#identity, roleUid: owner } }, await as()),
    )
  }

  async #step(step: (typeof steps)[number]): Promise<void> {
    const apiClient = Math.random() < 0.5 ? this.#subject.rest : this.#subject.grpc
    const chosen = this.#live[Math.floor(Math.random() * this.#live.length)]
    if (step === 'exchange') return Math.random() < exchangePart ? await this.#exchange() : undefined
    if (step === 'refused') return await this.#refused(apiClient)
    if (step === 'list') return await this.#list(apiClient)
    if (step === 'create' || chosen === undefined)
      return this.#live.length < maxLive ? await this.#create(apiClient) : await this.#delete(apiClient, this.#live[0])
    if (step === 'delete') return await this.#delete(apiClient, chosen)
    if (step === 'bind') return await this.#bind(apiClient)
    if (step === 'get') return await expectOk(this.#call(apiClient, `Get${chosen.kind}`, { uid: chosen.uid }))
    const resource = chosen.kind === 'Group' ? 'group' : 'identity'
    await expectOk(this.#call(apiClient, `Update${chosen.kind}`, { [resource]: { uid: chosen.uid, description: this.#newName() } }))
  }

  /** Creates a binding, which is swept after the deletion of its identity. An existing binding counts as success. */
  async #bind(apiClient: ApiClient): Promise<void> {
    const identityUid = this.#live.find(({ kind }) => kind === 'Identity')?.uid
    if (identityUid === undefined) return
    const roleBinding = { identityUid, roleUid: viewer }
    const { code, message } = await this.#call(apiClient, 'CreateRoleBinding', { parent: this.#group, roleBinding })
    if (code !== 0 && code !== 6) throw new Error(`CreateRoleBinding: code ${code}: ${message}`)
  }

  async #create(apiClient: ApiClient): Promise<void> {
    const kind = Math.random() < 0.5 ? 'Group' : 'Identity'
    const name = this.#newName()
    const fields: JsonObject = kind === 'Group' ? { name } : { name, claimMatch: { issuer: 'https://issuer.example', subject: name } }
    const request = { parent: this.#group, [kind === 'Group' ? 'group' : 'identity']: fields }
    const once = { idempotencyKey: `${this.#name}-${name}` }
    const uid = uidOf(await this.#call(apiClient, `Create${kind}`, request, once))
    // A repeated request, as clients send it.
    if (uidOf(await this.#call(apiClient, `Create${kind}`, request, once)) !== uid) throw new Error(`${name} was made twice`)
    this.#live.push({ kind, uid })
  }

  async #delete(apiClient: ApiClient, chosen: Live | undefined): Promise<void> {
    if (chosen === undefined) return
    await expectOk(this.#call(apiClient, `Delete${chosen.kind}`, { uid: chosen.uid }))
    this.#live = this.#live.filter(({ uid }) => uid !== chosen.uid)
  }

  async #list(apiClient: ApiClient): Promise<void> {
    const orderBy = ['name', 'created_at desc', 'updated_at', 'uid'][Math.floor(Math.random() * 4)] ?? 'uid'
    const page = await this.#call(apiClient, 'ListGroups', { uidp: { descendantsOf: this.#group }, pageSize: 5, orderBy })
    const pageToken = String(okBody(page)['nextPageToken'] ?? '')
    if (pageToken !== '') await expectOk(this.#call(apiClient, 'ListGroups', { uidp: { descendantsOf: this.#group }, pageSize: 5, orderBy, pageToken }))
    await expectOk(this.#call(apiClient, 'ListRoleBindings', { uidp: { descendantsOf: this.#group } }))
  }

  /** Sends requests that are refused, which must leave nothing behind. */
  async #refused(apiClient: ApiClient): Promise<void> {
    const { code: unsigned } = await apiClient.call('ListGroups', {}, { token: `${this.#token}x` })
    const { code: missing } = await this.#call(apiClient, 'GetGroup', { uid: `${this.#group}/0123456789abcdef` })
    const { code: invalid } = await this.#call(apiClient, 'CreateGroup', { parent: this.#group, group: { name: 'NOT ALLOWED' } })
    if (unsigned !== 16 || missing !== 5 || invalid !== 3) throw new Error(`refused with ${unsigned}, ${missing}, ${invalid}`)
  }

  /** Calls with a fresh token; retries with another if the token expired on the way, which happens on a busy machine. */
  async #call(apiClient: ApiClient, rpc: string, request: JsonObject, options: Options = {}): Promise<Reply> {
    if (performance.now() - this.#tokenAt > tokenLifeMs) await this.#exchange()
    const reply = await apiClient.call(rpc, request, { ...options, token: this.#token })
    if (reply.code !== 16) return reply
    await this.#exchange()
    return await apiClient.call(rpc, request, { ...options, token: this.#token })
  }

  /** Exchanges a token; retries if the token expired on the way, since the clock is fast. */
  async #exchange(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const status = await this.#tryExchange()
      if (status === 200) return
      if (attempt === maxExchanges) throw new Error(`the exchange answered ${status}`)
    }
  }

  async #tryExchange(): Promise<number> {
    const { baseUrl, apiPort } = this.#subject.started
    const external = await this.#subject.ask<string>({ ask: 'sign-in-token', subject: this.#name })
    const query = new URLSearchParams({ aud: baseUrl, identity: this.#identity })
    const response = await fetch(`http://127.0.0.1:${apiPort}/sts/exchange?${query}`, { method: 'POST', headers: { authorization: `Bearer ${external}` } })
    const { token } = (await response.json()) as { token?: string } // a cast of the answer, as documented
    if (token !== undefined) {
      this.#token = token
      this.#tokenAt = performance.now()
    }
    return response.status
  }

  #newName(): string {
    this.#names += 1
    return `${this.#name}-${this.#names}`
  }
}

function okBody({ code, message, body }: Reply): JsonObject {
  if (code !== 0) throw new Error(`code ${code}: ${message}`)
  return body
}

function uidOf(reply: Reply): string {
  return String(okBody(reply)['uid'])
}

async function expectOk(reply: Promise<Reply>): Promise<void> {
  okBody(await reply)
}
