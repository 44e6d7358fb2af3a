import { createServer, type RequestListener } from 'node:http'
import Provider from 'oidc-provider'
import { defaultTreeAdapter, parse, type DefaultTreeAdapterMap } from 'parse5'
import { newKey } from '../../../iam/signin/issuers.ts'
import { closeNow, listenOnLoopback } from '../loopback.ts'

/** The provider's claims about a person besides the subject, which is their name at sign-in. */
export type PersonClaims = Readonly<Record<string, unknown>>

/** A client of a platform at the provider. */
export interface ProviderClient {
  readonly id: string
  /** Absent for a public client. */
  readonly secret?: string
  readonly redirectUris: readonly string[]
}

/** A real OpenID provider on loopback (package oidc-provider) where people sign in by forms with any password. */
export interface LoginProvider {
  readonly issuer: string
  /** The claims of people, by name at sign-in. */
  readonly people: Map<string, PersonClaims>
  /** Replaces the clients that it serves. */
  serve(clients: readonly ProviderClient[]): void
  stop(): Promise<void>
}

/** Starts a provider without accounts. `pkceRequired` refuses authorization requests without PKCE. */
export async function startLoginProvider({ pkceRequired = false } = {}): Promise<LoginProvider> {
  let handler: RequestListener = (_request, response) => void response.writeHead(404).end()
  const server = createServer((request, response) => void handler(request, response))
  const port = await listenOnLoopback(server)
  const issuer = `http://127.0.0.1:${port}`
  const keys = [await newKey('login', 'RS256')]
  const people = new Map<string, PersonClaims>()
  return {
    issuer,
    people,
    serve(clients) {
      handler = new Provider(issuer, {
        clients: clients.map(({ id, secret, redirectUris }) => ({
          client_id: id,
          redirect_uris: [...redirectUris],
          grant_types: ['authorization_code'],
          response_types: ['code'],
          ...(secret === undefined ? { token_endpoint_auth_method: 'none' } : { client_secret: secret }),
        })),
        jwks: { keys },
        cookies: { keys: ['one that nobody guesses'] },
        pkce: { required: () => pkceRequired },
        conformIdTokenClaims: false,
        claims: { openid: ['sub', 'email', 'email_verified', 'groups', 'name'] },
        findAccount: (_context: unknown, id: string) => ({ accountId: id, claims: () => Promise.resolve({ sub: id, ...people.get(id) }) }),
      }).callback()
    },
    stop: () => closeNow(server),
  }
}

/** Where a browser has come to. */
export interface Arrival {
  readonly url: URL
  readonly status: number
  readonly text: string
}

type Node = DefaultTreeAdapterMap['node']

function elementsOf(node: Node): DefaultTreeAdapterMap['element'][] {
  const children = 'childNodes' in node ? node.childNodes : []
  return [...(defaultTreeAdapter.isElementNode(node) ? [node] : []), ...children.flatMap(elementsOf)]
}

function attribute(element: DefaultTreeAdapterMap['element'], name: string): string | undefined {
  return element.attrs.find((attr) => attr.name === name)?.value
}

/** A person with a browser, as far as signing in needs one: cookies, redirects, forms. */
export class PersonWithBrowser {
  readonly #login: string
  /** The addresses of all redirects. */
  readonly visited: URL[] = []
  readonly #cookies = new Map<string, Map<string, string>>()

  constructor(login: string) {
    this.#login = login
  }

  /** Follows redirects and fills forms until there is nothing to do, or the browser is sent to `until`, which is not asked. */
  async open(start: string, until: string): Promise<Arrival> {
    let request: { url: URL; body?: URLSearchParams } = { url: new URL(start) }
    for (let steps = 0; steps < 20; steps++) {
      const { status, location, text } = await this.#send(request)
      if (location !== undefined) {
        const url = new URL(location, request.url)
        this.visited.push(url)
        if (url.href.startsWith(until)) return { url, status, text: '' }
        request = { url }
        continue
      }
      const form = this.#formIn(text, request.url)
      if (form === undefined) return { url: request.url, status, text }
      request = form
    }
    throw new Error('the sign-in goes round in circles')
  }

  /** What the browser would send to this address. */
  cookieFor(url: URL): string {
    return [...(this.#cookies.get(url.host) ?? [])].map(([name, value]) => `${name}=${value}`).join('; ')
  }

  async #send({ url, body }: { url: URL; body?: URLSearchParams }): Promise<{ status: number; location: string | undefined; text: string }> {
    const jar = this.#cookies.get(url.host) ?? new Map<string, string>()
    this.#cookies.set(url.host, jar)
    const cookie = this.cookieFor(url)
    const post = body === undefined ? {} : { method: 'POST', body }
    const response = await fetch(url, { redirect: 'manual', headers: cookie === '' ? {} : { cookie }, ...post })
    for (const line of response.headers.getSetCookie()) {
      const [pair = ''] = line.split(';')
      const equals = pair.indexOf('=')
      jar.set(pair.slice(0, equals), pair.slice(equals + 1))
    }
    return { status: response.status, location: response.headers.get('location') ?? undefined, text: await response.text() }
  }

  /** The page's form, filled in. */
  #formIn(text: string, at: URL): { url: URL; body: URLSearchParams } | undefined {
    const elements = elementsOf(parse(text))
    const form = elements.find((element) => element.tagName === 'form')
    if (form === undefined) return undefined
    const body = new URLSearchParams()
    // Like a person who presses the first button.
    const button = elementsOf(form).find((element) => element.tagName === 'button')
    const inputs = elementsOf(form).filter((element) => element.tagName === 'input')
    for (const input of button === undefined ? inputs : [...inputs, button]) {
      const name = attribute(input, 'name')
      if (name === undefined) continue
      const typed = name === 'login' || name === 'password' ? this.#login : undefined
      body.set(name, typed ?? attribute(input, 'value') ?? '')
    }
    return { url: new URL(attribute(form, 'action') ?? at.href, at), body }
  }
}
