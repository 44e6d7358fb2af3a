import { Agent, ProxyAgent, type Dispatcher } from 'undici'
import { ExecCredentials } from './exec-plugin.ts'
import { textFrom, tokenFrom, type Impersonation, type KubeAccess } from './kubeconfig.ts'

const identityFields = ['ca', 'cert', 'key'] as const

/** How long an idle connection stays open, in milliseconds. API servers keep connections longer. */
const keepAliveMs = 60_000
const connectMs = 10_000
/** Interval of keep-alive probes on idle connections, in milliseconds, so that no network device drops them. */
const probeMs = 30_000

type RequestHeaders = Record<string, string | string[]>

/** The dispatcher and the headers with which to send a request. */
export interface KubeRoute {
  readonly dispatcher: Dispatcher
  readonly headers: Readonly<RequestHeaders>
  /** To be called if the API server refuses the credential. Then the next route has a new one, if a plugin makes them. */
  refused(): void
}

/** The TLS credentials of a connection, as PEM. A change of any of them needs a new connection. */
interface Identity {
  readonly ca: string | undefined
  readonly cert: string | undefined
  readonly key: string | undefined
}

/** The connections to one API server, and the credential for each request. Files are read for each request, because credentials rotate. */
export class KubeConnection {
  readonly server: string
  readonly #access: KubeAccess
  readonly #exec: ExecCredentials | undefined
  #open: { readonly identity: Identity; readonly dispatcher: Dispatcher } | undefined

  constructor(access: KubeAccess) {
    this.#access = access
    this.server = access.cluster.server
    this.#exec = access.user.exec && new ExecCredentials(access.user.exec)
  }

  /** Returns the current route. Rejects if a credential cannot be read. */
  async route(): Promise<KubeRoute> {
    const { cluster, user } = this.#access
    const [ca, certificate, key, ownToken] = await Promise.all([textFrom(cluster.ca), textFrom(user.certificate), textFrom(user.key), tokenFrom(user.token)])
    const printed = await this.#exec?.get()
    const token = printed?.token ?? ownToken
    const headers = {
      ...(user.actAs !== undefined && impersonationHeaders(user.actAs)),
      ...(user.basic !== undefined && { authorization: `Basic ${Buffer.from(user.basic).toString('base64')}` }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    }
    return {
      dispatcher: this.#dispatcher({ ca, cert: printed?.certificate ?? certificate, key: printed?.key ?? key }),
      headers,
      refused: () => printed && this.#exec?.drop(printed),
    }
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    await this.#open?.dispatcher.destroy()
  }

  #dispatcher(identity: Identity): Dispatcher {
    if (this.#open !== undefined && isSame(this.#open.identity, identity)) return this.#open.dispatcher
    // Requests and watches on the old connections continue to their end. Closing an already destroyed dispatcher fails, which is ignored.
    this.#open?.dispatcher.close().catch(() => undefined)
    this.#open = { identity, dispatcher: this.#connect(identity) }
    return this.#open.dispatcher
  }

  #connect(identity: Identity): Dispatcher {
    const { skipTlsVerify, tlsServerName, proxyUrl } = this.#access.cluster
    const tls = {
      ...Object.fromEntries(identityFields.flatMap((field) => (identity[field] === undefined ? [] : [[field, identity[field]]]))),
      rejectUnauthorized: !skipTlsVerify,
      ...(tlsServerName !== undefined && { servername: tlsServerName }),
    }
    const pool = { allowH2: false, keepAliveTimeout: keepAliveMs, keepAliveMaxTimeout: keepAliveMs }
    const connect = { timeout: connectMs, keepAlive: true, keepAliveInitialDelay: probeMs }
    return proxyUrl === undefined
      ? new Agent({ ...pool, connect: { ...tls, ...connect } })
      : new ProxyAgent({ ...pool, uri: proxyUrl, requestTls: tls, connect })
  }
}

function isSame(one: Identity, other: Identity): boolean {
  return identityFields.every((field) => one[field] === other[field])
}

function impersonationHeaders({ user, uid, groups, extra }: Impersonation): RequestHeaders {
  return {
    'impersonate-user': user,
    ...(uid !== undefined && { 'impersonate-uid': uid }),
    ...(groups.length > 0 && { 'impersonate-group': [...groups] }),
    ...Object.fromEntries([...extra].map(([key, values]) => [`impersonate-extra-${headerNameOf(key)}`, [...values]])),
  }
}

/** Returns a key as part of a header's name. The API server decodes percent signs. */
function headerNameOf(key: string): string {
  return encodeURIComponent(key).replaceAll('(', '%28').replaceAll(')', '%29')
}
