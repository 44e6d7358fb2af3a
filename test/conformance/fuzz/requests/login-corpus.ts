import { generateKeyPairSync } from 'node:crypto'
import { trustedUid } from '../../../../src/base/uid.ts'
import { beginDeviceLogin, endDeviceLogin, type DeviceOutcome } from '../../../../src/iam/signin/pending-logins.ts'
import { freshName } from '../../../support/test-server.ts'
import { PersonWithBrowser, type LoginProvider } from '../../../support/parts/sign-in/login-provider.ts'
import { cases } from '../../walk/cases/cases.ts'
import { made, type World } from '../../walk/world.ts'
import type { BoundToBrowser, LoginCorpus } from '../protocol.ts'

const ofEach = 4

function times<T>(make: () => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: ofEach }, make))
}

/** Returns a public key in the encoding of a headless client. */
function headlessCode(): string {
  return generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' }).x ?? ''
}

/** Creates the data for sign-ins, with people who sign in at the OpenID provider. */
export class LoginCorpusMaker {
  readonly #idp: LoginProvider
  readonly #redirectUris: string[] = []

  constructor(idp: LoginProvider) {
    this.#idp = idp
  }

  async corpus(world: World): Promise<LoginCorpus> {
    const { baseUrl } = world.server.config
    const provider = await this.#newProvider(world)
    const begin = (query: Readonly<Record<string, string>>): string => `${baseUrl}/oauth?${new URLSearchParams({ idp_id: provider, ...query }).toString()}`
    const headlessCodes = Array.from({ length: 2 * ofEach }, headlessCode)
    const devices = [...(await times(() => newDevice(world))), ...(await times(() => newDevice(world)))]
    const outcomes: DeviceOutcome[] = [
      { kind: 'refused' },
      { kind: 'done', identity: trustedUid(world.owner), token: world.token, expiryMs: Date.now() + 60_000, refreshToken: '' },
    ]
    const ended = await Promise.all(outcomes.map((outcome) => newDevice(world, outcome)))
    const asked = [
      ...headlessCodes.slice(0, ofEach).map((code) => ({ headless_code: code })),
      ...devices.slice(0, ofEach).map(({ userCode }) => ({ user_code: userCode })),
    ]
    return {
      baseUrl,
      provider,
      group: world.group,
      headlessCodes: headlessCodes.slice(ofEach),
      userCodes: devices.slice(ofEach).map(({ userCode }) => userCode),
      deviceCodes: [...devices, ...ended].map(({ deviceCode }) => deviceCode),
      refreshTokens: await times(() => refreshToken(world)),
      confirmations: await Promise.all(asked.map((end) => confirmation(begin(end)))),
      callbacks: await times(() => callback(begin({ redirect: 'http://localhost:39999/', create_refresh_token: 'true' }), `${baseUrl}/oauth/callback/`)),
    }
  }

  async #newProvider(world: World): Promise<string> {
    const oidc = { issuer: this.#idp.issuer, clientId: 'taproot', clientSecret: 'a secret' }
    const identityProvider = { name: freshName('login'), defaultRole: world.plainRole, oidc }
    const uid = await made(world, 'CreateIdentityProvider', { parent: world.group, identityProvider })
    this.#redirectUris.push(`${world.server.config.baseUrl}/oauth/callback/${uid}`)
    this.#idp.serve([{ id: 'taproot', secret: 'a secret', redirectUris: this.#redirectUris }])
    return uid
  }
}

async function newDevice({ server }: World, outcome?: DeviceOutcome): Promise<{ deviceCode: string; userCode: string }> {
  const { baseUrl } = server.config
  const { services } = server.running.engine
  const signal = AbortSignal.timeout(60_000)
  const requested = { clientId: baseUrl, audiences: [baseUrl], scopes: [], refresh: true, remoteAddress: '127.0.0.1' }
  const device = await beginDeviceLogin(services, requested, signal)
  if (outcome !== undefined) await endDeviceLogin(services, { userCode: device.userCode, outcome }, signal)
  return device
}

async function refreshToken(world: World): Promise<string> {
  return String(await cases['SecurityTokenService/ExchangeRefreshToken']?.caller?.(world))
}

/** With a limit per address, only few requests are accepted. */
const nothingBegun: BoundToBrowser = { fields: [['state', 'x']], cookie: 'a=b' }
const tooMany = 429

/** Opens the page that asks the person to confirm the sign-in. */
async function confirmation(url: string): Promise<BoundToBrowser> {
  const answer = await fetch(url)
  if (answer.status === tooMany) return nothingBegun
  const request = /name="request" value="([^"]*)"/.exec(await answer.text())?.[1]
  if (request === undefined) throw new Error(`no page to confirm: ${answer.status} at ${url}`)
  return { fields: [['request', request]], cookie: answer.headers.getSetCookie()[0]?.split(';')[0] ?? '' }
}

/** Signs a person in at the provider, up to the redirect back. */
async function callback(url: string, until: string): Promise<BoundToBrowser> {
  const browser = new PersonWithBrowser(freshName('person'))
  const arrival = await browser.open(url, until)
  if (arrival.status === tooMany) return nothingBegun
  if (!arrival.url.href.startsWith(until)) throw new Error(`no person was signed in: ${arrival.status} at ${arrival.url.href}`)
  return { fields: [...arrival.url.searchParams], cookie: browser.cookieFor(arrival.url) }
}
