import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { contextNamed, readContexts, type LoginContext } from '../../../src/cli/sign-in/contexts.ts'
import { login, type SignInTools } from '../../../src/cli/sign-in/login.ts'
import { createOutput } from '../../../src/cli/client/output.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import { freshDirectory } from '../../e2e/process/harness/taproot-process.ts'
import { PersonWithBrowser, startLoginProvider, type LoginProvider } from '../../support/parts/sign-in/login-provider.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { MemorySink } from '../client-world.ts'

/** A server, and an organisation whose people sign in at a real provider. */
export interface SignInWorld {
  readonly server: TestServer
  readonly idp: LoginProvider
  readonly org: Organisation & { readonly provider: string; readonly name: string }
  stop(): Promise<void>
}

/** Starts a server with a provider of one organisation. */
export async function startSignInWorld(): Promise<SignInWorld> {
  const idp = await startLoginProvider()
  const server = await startTestServer({ env: { TAPROOT_ISSUERS: JSON.stringify([{ issuer: idp.issuer, allowPrivate: true }]) } })
  const name = freshName('org')
  const organisation = await makeOrganisation(server, name)
  const oidc = { issuer: idp.issuer, clientId: 'taproot', pkceEnabled: true, clientSecret: 'a secret' }
  const identityProvider = { name: freshName('login'), defaultRole: roleUid('owner'), oidc }
  const made = ok(await server.rest.call('CreateIdentityProvider', { parent: organisation.group, identityProvider }, { token: organisation.token }))
  const provider = String(made['uid'])
  idp.serve([{ id: 'taproot', secret: 'a secret', redirectUris: [`${server.config.baseUrl}/oauth/callback/${provider}`] }])
  return {
    server,
    idp,
    org: { ...organisation, provider, name },
    async stop() {
      await server.stop()
      await idp.stop()
    },
  }
}

/** A person's account on a machine, with the output of its commands. */
export interface Account extends SignInTools {
  /** The folder of contexts. */
  readonly folder: string
  readonly notes: string[]
  readonly printed: () => string
}

/** A new account without sign-ins, whose home is removed after the test if `env` names none. `options` replace parts of it. */
export async function newAccount({ env, ...options }: Partial<SignInTools> = {}): Promise<Account> {
  const home = env?.['HOME'] ?? (await freshDirectory())
  const sink = new MemorySink()
  const notes: string[] = []
  return {
    env: { HOME: home, XDG_CONFIG_HOME: home, ...env },
    platform: 'linux',
    clock: systemClock,
    random: systemRandom,
    ask: undefined,
    wait: () => Promise.reject(new Error('no one signs in')),
    output: createOutput(sink, {}),
    note: (text) => void notes.push(text),
    folder: join(home, 'taproot'),
    notes,
    printed: () => sink.written.join(''),
    ...options,
  }
}

/** The stored context with this name, or the only one. Throws without one. */
export async function storedContext({ folder }: Account, name?: string): Promise<LoginContext> {
  const contexts = await readContexts(folder)
  const context = name === undefined ? contexts.contexts[0] : contextNamed(contexts, name)
  if (context === undefined) throw new Error('there is no context')
  return context
}

/** Writes the file of contexts with a change to its text. */
export async function editContexts({ folder }: Account, change: (text: string) => string): Promise<void> {
  const file = join(folder, 'config.yaml')
  await writeFile(file, change(await readFile(file, 'utf8')))
}

/** Lets all access tokens of an account seem to be expired. */
export async function expireTokens(account: Account): Promise<void> {
  await editContexts(account, (text) => text.replaceAll(/(expires: ).*/g, '$12020-01-01T00:00:00.000Z'))
}

/** Signs an account in at the server with a code, which the person types into another browser. */
export async function signIn(world: SignInWorld, account: Account, person = freshName('person')): Promise<string> {
  account.notes.length = 0
  await login({ ...account, wait: () => confirmDevice(world, shownCode(account.notes), person) }, world.server.config.baseUrl, { device: true })
  return person
}

/** The code that a device sign-in shows. */
export function shownCode(notes: readonly string[]): string {
  return /code (\S+)$/.exec(notes[0] ?? '')?.[1] ?? ''
}

async function confirmDevice({ org, server }: SignInWorld, code: string, person: string): Promise<void> {
  const query = new URLSearchParams({ user_code: code, idp_id: org.provider })
  const page = await new PersonWithBrowser(person).open(`${server.config.baseUrl}/oauth?${query.toString()}`, 'http://nowhere.invalid')
  if (!page.text.includes('You are signed in')) throw new Error(`the sign-in ended at ${page.url.href}: ${page.text}`)
}
