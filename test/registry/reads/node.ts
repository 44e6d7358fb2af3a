import { Agent, request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { buffer } from 'node:stream/consumers'

/** The answer to one request. */
export interface NodeAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** One machine of a cluster that pulls images. */
export interface NodeOptions {
  readonly port: number
  /** Credentials for `/token`; none for a public image. */
  readonly authorization?: string
  /** Concurrent pulls of layers. */
  readonly parallel?: number
}

interface Manifest {
  readonly config: { readonly digest: string }
  readonly layers: readonly { readonly digest: string }[]
}

/** Pulls like containerd: challenge, token, HEAD and GET of the manifest, then config and layers concurrently, each once. */
export class PullingNode {
  /** The statuses of all answers, in order. */
  readonly statuses: number[] = []
  readonly #options: NodeOptions
  readonly #agent: Agent
  #token: string | undefined

  constructor(options: NodeOptions) {
    this.#options = options
    this.#agent = new Agent({ keepAlive: true })
  }

  /** Resolves with the number of complete blobs; rejects at the first unexpected answer. */
  async pull(repository: string, tag: string): Promise<number> {
    try {
      const base = `/v2/${repository}`
      const challenge = await this.#ask('HEAD', `${base}/manifests/${tag}`)
      if (challenge.status === 401) await this.#signIn(repository)
      const { headers } = challenge.status === 401 ? await this.#ask('HEAD', `${base}/manifests/${tag}`) : challenge
      const { status, body } = await this.#ask('GET', `${base}/manifests/${String(headers['docker-content-digest'])}`)
      if (status !== 200) return 0
      const { config, layers } = JSON.parse(body.toString()) as Manifest
      return await this.#blobs(
        base,
        [config, ...layers].map(({ digest }) => digest),
      )
    } finally {
      this.#agent.destroy()
    }
  }

  async #signIn(repository: string): Promise<void> {
    const { authorization } = this.#options
    const { body } = await this.#ask('GET', `/token?${new URLSearchParams({ scope: `repository:${repository}:pull` }).toString()}`, authorization)
    this.#token = String((JSON.parse(body.toString()) as { token?: unknown }).token)
  }

  async #blobs(base: string, digests: readonly string[]): Promise<number> {
    const left = [...digests]
    let whole = 0
    const worker = async (): Promise<void> => {
      for (let digest = left.shift(); digest !== undefined; digest = left.shift()) {
        const { status, headers, body } = await this.#ask('GET', `${base}/blobs/${digest}`)
        if (status === 200 && body.length === Number(headers['content-length'])) whole++
      }
    }
    await Promise.all(Array.from({ length: this.#options.parallel ?? 3 }, worker))
    return whole
  }

  async #ask(method: string, path: string, given?: string): Promise<NodeAnswer> {
    const authorization = given ?? (this.#token === undefined ? undefined : `Bearer ${this.#token}`)
    const { promise, resolve, reject } = Promise.withResolvers<NodeAnswer>()
    const headers = authorization === undefined ? {} : { authorization }
    const sent = httpRequest({ host: '127.0.0.1', port: this.#options.port, method, path, headers, agent: this.#agent }, (response) => {
      buffer(response).then((body) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }), reject)
    })
    sent.on('error', reject)
    sent.end()
    const answer = await promise
    this.statuses.push(answer.status)
    return answer
  }
}
