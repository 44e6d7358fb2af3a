/** The process under test: a server of role `dev` with real records. Forked by target.ts, and controlled by messages. */
import { randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import { toBinary } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import type { Clock } from '../../../src/base/runtime.ts'
import { handlers } from '../../../src/domains/handlers.ts'
import type { Handler } from '../../../src/engine/services.ts'
import { RegistryWorld } from '../../registry/tokens/registry-world.ts'
import { cpuTimeMs } from '../../support/cpu-time.ts'
import { fill, filledBinding, filledGroup, filledIdentity, type Filled } from '../../support/fill-bindings.ts'
import { fillHistory } from '../../support/fill-history.ts'
import { makeMember, roleUid, startTestServer, type LogLine, type TestServer } from '../../support/test-server.ts'
import { answerQuestions, chosenSettings } from '../../support/parts/asked-process.ts'
import { startLoginProvider } from '../../support/parts/sign-in/login-provider.ts'
import { memoryInUse } from '../../support/parts/memory-in-use.ts'
import { makeDirectory } from '../../iam/scim/directory.ts'
import { cases } from '../walk/cases/cases.ts'
import { accessOf, methodNamed } from '../walk/cases/method-case.ts'
import { makeWorld, swept, trustedIssuer, walkFeeds, walkTerms, type World } from '../walk/world.ts'
import type { Corpus, DearMethod, Example, Filling, LoggedError, Ports, Question, Work } from './protocol.ts'
import { LoginCorpusMaker } from './requests/login-corpus.ts'
import { StateLook } from './state-look.ts'

/** Returns valid requests of every method with a row in the walk tests. */
async function examplesOf(world: World): Promise<Example[]> {
  const examples: Example[] = []
  const operator = await world.server.operatorToken()
  for (const [method, row] of Object.entries(cases)) {
    const request = await row.request(world)
    const isOwn = row.caller === undefined && accessOf(methodNamed(method)) !== 'signedIn'
    const token = row.caller === undefined ? operator : await row.caller(world)
    examples.push({ method, request, token })
    if (isOwn) examples.push({ method, request: await row.request(world), token: world.token })
  }
  return examples
}

async function corpusOf(server: TestServer, logins: LoginCorpusMaker): Promise<Corpus> {
  const world = await makeWorld(server)
  const registry = new RegistryWorld(server)
  const tenant = await registry.tenant()
  const examples = await examplesOf(world)
  const viewer = await makeMember(server, world.group, { role: 'viewer' })
  const outsider = await makeMember(server, world.group)
  const directory = await makeDirectory(server)
  const ids = await Promise.all(Array.from({ length: 10 }, (_, index) => directory.add({ active: index % 3 !== 0 })))
  const { tables } = server.running.engine.cache
  const below = (uid: string): boolean => [world.group, world.other.group, tenant.group].some((root) => uid.startsWith(root))
  const uids = [...tables.kinds()].flatMap((table) => [...table.records()].map(({ uid }) => uid as string).filter(below))
  const registryToken = await registry.tokenFor(`repository:${tenant.path}:pull,push`, tenant.authorization)
  return {
    examples,
    tokens: [await server.operatorToken(), world.token, world.other.token, viewer.token],
    outsider: outsider.token,
    uids,
    login: await logins.corpus(world),
    scim: { provider: directory.provider, token: directory.scimToken, ids },
    registry: { path: tenant.path, host: registry.host, authorizations: [tenant.authorization, `Bearer ${registryToken}`] },
  }
}

/** Returns log lines about unexpected errors, and clears the log. */
function takeErrors(server: TestServer): LoggedError[] {
  const lines = server.logs.splice(0)
  return lines.filter(isLoggedError).map((line) => ({ requestId: String(line.fields['requestId'] ?? ''), text: inspect(line, { depth: 6 }) }))
}

function isLoggedError({ level, message, fields }: LogLine): boolean {
  return (
    level === 'error' ||
    /unexpected|unhandled/i.test(message) ||
    Object.values(fields).some((value) => value instanceof TypeError || value instanceof RangeError)
  )
}

/** Returns new uids directly below `parent`. */
function uidsAt(parent: string, count: number): readonly string[] {
  const base = randomBytes(4).toString('hex')
  return Array.from({ length: count }, (_, at) => `${parent}/${base}${at.toString(16).padStart(8, '0')}`)
}

function recordsOf(filling: Filling): readonly Filled[] {
  const { parent } = filling
  const below = '1'.repeat(16)
  switch (filling.records) {
    case 'bindings':
      return uidsAt(parent, filling.count).map((uid) => filledBinding(uid, uid, roleUid('viewer')))
    case 'teams':
      return uidsAt(parent, filling.count).flatMap((uid) => [
        filledGroup(uid, `team ${uid.slice(-16)}`),
        filledBinding(`${uid}/${below}`, filling.identity, roleUid('viewer')),
      ])
    case 'identities':
      return uidsAt(parent, filling.issuers.length).map((uid, at) => filledIdentity(uid, filling.issuers[at] ?? ''))
  }
}

async function filled(server: TestServer, filling: Filling): Promise<readonly string[]> {
  const records = recordsOf(filling)
  await fill(server, records)
  return records.map(({ uid }) => uid)
}

/** The server and records that messages refer to. */
interface Subject {
  readonly server: TestServer
  readonly look: StateLook
  readonly logins: LoginCorpusMaker
}

async function answer({ server, look, logins }: Subject, question: Exclude<Question, { ask: 'stop' }>): Promise<unknown> {
  switch (question.ask) {
    case 'corpus':
      return await corpusOf(server, logins)
    case 'state':
      if (question.settle) await swept(server)
      return await look.changes()
    case 'memory':
      server.logs.length = 0
      return await memoryInUse()
    case 'faults':
      return takeErrors(server)
    case 'work':
      return takeWork()
    case 'fill':
      return await filled(server, question.filling)
    case 'swept':
      return await swept(server, question.boundMs)
    case 'token':
      return await server.tokenFor(question.identity)
  }
}

/** Makes a method expensive, to simulate a fault. */
function makeDear({ method: name, ms: dearMs }: DearMethod): void {
  const method = methodNamed(name)
  const handler = handlers.get(method)
  if (handler === undefined) throw new Error(`${name} has no handler`)
  const dear: Handler = (services, context, message) => {
    if (toBinary(method.input, message).length > 1024) for (const endMs = cpuTimeMs() + dearMs; cpuTimeMs() < endMs;);
    return handler(services, context, message)
  }
  // The handlers are a map, which only this process changes.
  ;(handlers as Map<MethodRow, Handler>).set(method, dear)
}

let [lastMs, longestTurnMs] = [cpuTimeMs(), 0]

/** Samples the processor time. A turn of the event loop lies between at least two samples. */
function lookAtWork(): void {
  const totalMs = cpuTimeMs()
  longestTurnMs = Math.max(longestTurnMs, totalMs - lastMs)
  lastMs = totalMs
}

function takeWork(): Work {
  lookAtWork()
  const work = { totalMs: lastMs, longestTurnMs }
  longestTurnMs = 0
  return work
}

setInterval(lookAtWork, 5).unref()

const [, , storeName, dearMethods = '[]'] = process.argv
// startTarget writes them.
for (const dear of JSON.parse(dearMethods) as DearMethod[]) makeDear(dear)
const clock: Clock = { now: () => Date.now() }
const idp = await startLoginProvider()
const issuers = [{ issuer: trustedIssuer }, { issuer: idp.issuer, allowPrivate: true }]
const server = await startTestServer({
  clock,
  store: storeName === 'etcd' ? 'etcd' : 'sqlite',
  env: {
    TAPROOT_ISSUERS: JSON.stringify(issuers),
    TAPROOT_TERMS: JSON.stringify(walkTerms),
    TAPROOT_EVENTS_DELIVER: 'false',
    TAPROOT_CATALOGUES_FEEDS: walkFeeds,
    ...chosenSettings(),
  },
})
await fillHistory(server)
const logins = new LoginCorpusMaker(idp)
const look = new StateLook(server.running.engine.store)
const { api, ops, registry } = server.config
const started: Ports = { api: api.port, ops: ops.port, registry: registry.port }
async function stop(): Promise<void> {
  await server.stop()
  await idp.stop()
}

answerQuestions<Question>(started, { answer: (question) => answer({ server, look, logins }, question), stop })
