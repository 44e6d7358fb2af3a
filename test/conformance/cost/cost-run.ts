import { fromJson, toBinary, type JsonObject } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../src/base/schema/method.ts'
import { registry } from '../../../src/base/schema/schema.ts'
import { slowness } from '../../budgets.ts'
import { sendGrpc } from '../fuzz/grpc-client.ts'
import type { GrpcDraft } from '../fuzz/requests/grpc-draft.ts'
import { sendHttp } from '../fuzz/http-client.ts'
import { looseProto } from '../fuzz/loose-proto.ts'
import type { Corpus } from '../fuzz/protocol.ts'
import { Random } from '../fuzz/random.ts'
import { restDraft } from '../fuzz/requests/rest-request.ts'
import type { Target } from '../fuzz/target.ts'
import { caseName, methodNamed } from '../walk/cases/method-case.ts'
import { bodyForms, dearRequest, messageForms } from './dear-request.ts'

/** How many times slower than the reference machine this machine is. */
const factor = slowness()
/** Maximum cost of a request on the reference machine, by caller, in milliseconds of the main thread. */
const referenceLimits = { 'no credential': 10, 'no rights': 10, 'full rights': 50 } as const
/** Maximum cost of a request, by caller, in milliseconds of the main thread. */
export const limits = {
  'no credential': referenceLimits['no credential'] * factor,
  'no rights': referenceLimits['no rights'] * factor,
  'full rights': referenceLimits['full rights'] * factor,
} as const
export type Caller = keyof typeof limits

/** Returns the maximum cost now, in milliseconds: the machine may be slower than at the start. */
export function limitNow(caller: Caller): number {
  return referenceLimits[caller] * slowness()
}
export const callers = Object.keys(limits) as Caller[]

const boundMs = 60_000

/**
 * Number of equal requests, each with different texts, of which the cheapest counts. A single request may be slow because code is compiled or memory
 * collected.
 */
const defaultRepeats = 20

/** Number of requests that are first measured together: if all of them cost less than one may, each does. */
const together = 4

/** A run ends after this many expensive requests. */
const maxDear = 5

/** What is measured. */
export interface Run {
  readonly target: Target
  readonly corpus: Corpus
  readonly seed: number
  readonly methods: readonly MethodRow[]
  /** Number of requests of each method. */
  readonly bodies: number
  /** Number of equal requests of which the cheapest counts, if not the usual one. */
  readonly repeats?: number
}

/** One request of a run. Everything but its salt follows from it. */
interface Asked {
  readonly method: MethodRow
  readonly caller: Caller
  readonly number: number
}

/** A request that can be sent. */
export interface Sending {
  readonly what: string
  send(): Promise<unknown>
}

/** The result of a run. */
export interface Found {
  /** One line for each request above the limit of its caller. */
  readonly dear: readonly string[]
  readonly sent: number
}

/** Returns an example request and its token. */
function exampleFor(
  { corpus }: Run,
  { method, caller }: Asked,
  random: Random,
): { readonly example: Corpus['examples'][number] | undefined; readonly token: string | undefined } {
  const example = random.pickMaybe(corpus.examples.filter((one) => one.method === caseName(method)))
  const tokens = { 'no credential': undefined, 'no rights': corpus.outsider, 'full rights': example?.token ?? corpus.tokens[0] }
  return { example, token: tokens[caller] }
}

/** Returns the first row of a table in most cases, which leaves a value unchanged. */
function formOf<T>(forms: Readonly<Record<string, T>>, random: Random): readonly [string, T] {
  const entries = Object.entries(forms)
  const [plain] = entries
  return plain !== undefined && random.chance(0.7) ? plain : random.pick(entries)
}

/** Returns the encoded message, or similar bytes if its type does not accept the request. */
function messageOf({ input }: MethodRow, request: JsonObject): Buffer {
  try {
    return Buffer.from(toBinary(input, fromJson(input, request, { registry })))
  } catch {
    return looseProto(input, request)
  }
}

/** Returns a call. A change is a dry run, so that its record stays for the next call. */
function grpcDraft(method: MethodRow, message: Buffer, headers: Readonly<Record<string, string>>): GrpcDraft {
  return {
    path: `/${method.service}/${method.rpc}`,
    headers: {
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
      ...(method.mutation ? { 'validate-only': 'true' } : {}),
      // A stream does not end by itself.
      ...(method.streaming ? { 'grpc-timeout': '100m' } : {}),
    },
    message,
    body: undefined,
    connection: undefined,
    ending: 'end',
  }
}

function sendingOf(run: Run, asked: Asked, repeat: string): Sending {
  const { method, caller, number } = asked
  const random = new Random(run.seed, number)
  const salt = `${number.toString(36)}${repeat}`
  const { example, token } = exampleFor(run, asked, random)
  const { shape, request } = dearRequest({ method, example, random, salt, uids: run.corpus.uids })
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const name = (transport: string, form: string): string =>
    `${caseName(method)} over ${transport} by a caller with ${caller}: ${shape}, ${form}, TAPROOT_SEED=${run.seed} number ${number}`
  if (random.chance(0.5)) {
    const [form, change] = formOf(messageForms, random)
    const draft = grpcDraft(method, change(messageOf(method, request), method.maxRequestBytes), headers)
    return { what: name('grpc', form), send: () => sendGrpc(draft, { port: run.target.ports.api, boundMs }) }
  }
  const [form, change] = formOf(bodyForms, random)
  const draft = restDraft(random.pick(method.http), request, headers)
  if (method.mutation) draft.query.push('validateOnly=true')
  if (draft.body !== undefined) {
    const { body, encoding } = change(draft.body, method.maxRequestBytes)
    draft.body = body
    if (encoding !== undefined) draft.headers.push(['Content-Encoding', encoding])
  }
  return { what: name('rest', form), send: () => sendHttp(draft, { port: run.target.ports.api, boundMs }) }
}

/** Returns the processor time of the server's main thread during the work, in milliseconds. */
async function costOf(target: Target, work: () => Promise<unknown>): Promise<number> {
  const before = await target.work()
  await work()
  return (await target.work()).totalMs - before.totalMs
}

/** Returns the least cost of a request, and its description. Each attempt uses different texts, so that a cache does not hide the cost. */
export async function leastCost(
  { target, repeats = defaultRepeats }: Run,
  caller: Caller,
  sendingWith: (salt: string) => Sending,
): Promise<{ readonly ms: number; readonly what: string }> {
  let [ms, what] = [Infinity, '']
  for (let repeat = 0; repeat < repeats && ms >= limits[caller]; repeat++) {
    const sending = sendingWith(`z${repeat}`)
    what = sending.what
    ms = Math.min(ms, await costOf(target, () => sending.send()))
  }
  return { ms, what }
}

/** Sends expensive requests to every method as this caller. */
export async function measure(run: Run, caller: Caller): Promise<Found> {
  const all = run.methods.flatMap((method, index) => Array.from({ length: run.bodies }, (_, body): Asked => ({ method, caller, number: index * 1000 + body })))
  const dear: string[] = []
  for (let at = 0; at < all.length && dear.length < maxDear; at += together) {
    const some = all.slice(at, at + together)
    const sendings = some.map((asked) => sendingOf(run, asked, 'y'))
    const ms = await costOf(run.target, async () => {
      for (const { send } of sendings) await send()
    })
    if (ms < limits[caller]) continue
    for (const asked of some) {
      const least = await leastCost(run, caller, (salt) => sendingOf(run, asked, salt))
      if (least.ms >= limits[caller] && least.ms >= limitNow(caller)) dear.push(`${least.ms.toFixed(1)} ms: ${least.what}`)
    }
  }
  return { dear, sent: all.length }
}

/** Returns the methods without an accepted example, each tried as a dry run with its own token. */
export async function refusedExamples({ target, corpus }: Run): Promise<readonly string[]> {
  const accepted = new Map<string, boolean>()
  for (const { method: name, request, token } of corpus.examples) {
    const method = methodNamed(name)
    const draft = grpcDraft(method, messageOf(method, request), { authorization: `Bearer ${token}` })
    const { code } = await sendGrpc(draft, { port: target.ports.api, boundMs })
    // The deadline ends a started stream.
    accepted.set(name, accepted.get(name) === true || code === 0 || (method.streaming && code === 4))
  }
  return [...accepted].filter(([, isAccepted]) => !isAccepted).map(([name]) => name)
}
